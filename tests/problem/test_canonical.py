"""Canonical JSON and digests: equal documents have equal bytes, whatever their order, spaces or number forms."""

import hashlib
import json

import pytest
import rfc8785

from planner.problem.canonical import canonical_bytes, canonical_digest, document_bytes, document_digest
from planner.problem.cluster import Cluster
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.workload import Workload
from tests.helpers.documents import make_cluster, make_profile, make_workload
from tests.helpers.edits import edited, json_of, without


def test_worked_example() -> None:
    """Computed with rfc8785 0.1.4; RFC 8785 sorts keys and leaves out spaces."""
    value = {
        "workload": {"sequence_length": 4096, "global_batch_size": 64},
        "profiles": ["aa"],
        "options": {"seed": 1, "mode": "reproducible"},
        "cluster": "bb",
    }
    expected = (
        b'{"cluster":"bb","options":{"mode":"reproducible","seed":1},"profiles":["aa"],'
        b'"workload":{"global_batch_size":64,"sequence_length":4096}}'
    )
    assert canonical_bytes(value) == expected
    assert canonical_digest(value) == "654f8a1cacd780dd85e4845da2b2e65da8ca94e790f9df3215cd3c0d839a8bc6"


def test_number_forms() -> None:
    assert canonical_bytes({"a": 1.0, "b": 1e21, "c": 2**53 - 1, "d": 0.1}) == (
        b'{"a":1,"b":1e+21,"c":9007199254740991,"d":0.1}'
    )
    with pytest.raises(rfc8785.IntegerDomainError):
        canonical_bytes({"a": 2**53 + 1})


def test_order_spaces_and_defaults_do_not_change_a_digest() -> None:
    cluster = make_cluster(("a", 2, 2), ("b", 1, 1))
    value = json_of(cluster)
    shuffled = json.dumps(dict(reversed(value.items())), indent=3).encode()
    spare = json.dumps(without(value, "/node_groups/0/price_per_hour")).encode()
    assert read_document(shuffled, Cluster).digest == read_document(spare, Cluster).digest == cluster.digest


def test_digest_is_sha256_of_the_canonical_document() -> None:
    workload = make_workload()
    assert document_digest(workload) == hashlib.sha256(document_bytes(workload)).hexdigest()


def test_left_out_fields_do_not_count() -> None:
    one, other = make_workload(), make_workload()
    changed = read_document(json.dumps(edited(json_of(other), "/sequence_length", 99)).encode(), Workload)
    leave_out = frozenset({"sequence_length"})
    assert document_digest(one) != document_digest(changed)
    assert document_digest(one, leave_out=leave_out) == document_digest(changed, leave_out=leave_out)


def test_negative_zero_is_zero() -> None:
    value = json_of(make_profile())
    forms = [edited(value, "/device/wall_over_cpu_p50", number) for number in (-0.0, 0.0, 0)]
    digests = {read_document(json.dumps(form).encode(), ModelProfile).digest for form in forms}
    assert len(digests) == 1


def test_composed_and_decomposed_names_are_one_name() -> None:
    value = json_of(make_profile())
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    forms = [edited(value, "/device/identity", name) for name in (composed, decomposed)]
    documents = [read_document(json.dumps(form).encode(), ModelProfile) for form in forms]
    assert documents[0] == documents[1]
    assert documents[0].digest == documents[1].digest


@pytest.mark.parametrize("document", [make_workload(), make_cluster(("a", 2, 2)), make_profile()])
def test_canonical_bytes_read_back_as_the_same_document(document: Workload | Cluster | ModelProfile) -> None:
    again = read_document(document_bytes(document), type(document))
    assert again == document
    assert document_bytes(again) == document_bytes(document)
