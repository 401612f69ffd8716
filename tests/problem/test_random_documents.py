"""Random documents and random damage: what is accepted comes back with its digest, what is refused says so properly."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import DocumentError
from planner.problem.canonical import document_bytes, document_digest
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.request import Request
from planner.problem.workload import Workload
from tests.helpers.damage import damaged
from tests.helpers.documents import make_cluster, make_profile, make_workload
from tests.helpers.edits import json_of

Json = dict[str, object]
PROFILE = json_of(
    make_profile(layer_forward_ns=(1_000, 2_000), micro_batch_sizes=(1, 2), sequence_lengths=(16,), tied=[(0, 1)])
)
CLUSTER = json_of(make_cluster(("cpu-a", 2, 2), ("b", 1, 2)))
WORKLOAD = json_of(make_workload())
GOOD: dict[type[Contract], Json] = {
    ModelProfile: PROFILE,
    Cluster: CLUSTER,
    Workload: WORKLOAD,
    Request: {
        "schema": "request/1",
        "profiles": [PROFILE, "ab" * 32],
        "cluster": CLUSTER,
        "workload": WORKLOAD,
        "constraints": {"pins": [{"layer": 0, "device_kind": "b"}], "families": ["1f1b"]},
    },
}

names = st.text("aB9-/ä é\u4e2d\U0001f600", min_size=1, max_size=8).filter(lambda name: name == name.strip())


@st.composite
def clusters(draw: st.DrawFn) -> Json:
    """Connected: the first node group is joined with every other one, and they with each other."""
    shapes = st.tuples(names, st.integers(1, 3), st.integers(1, 3))
    found = draw(st.lists(shapes, min_size=1, max_size=4, unique_by=lambda shape: shape[0]))
    kinds = draw(st.lists(names, min_size=len(found), max_size=len(found)))
    groups: list[Json] = []
    for (name, num_nodes, ranks), kind in zip(found, kinds, strict=True):
        groups.append(
            {
                "name": name,
                "device_kind": kind,
                "num_nodes": num_nodes,
                "ranks_per_node": ranks,
                "usable_bytes": draw(st.integers(1, 2**53 - 1)),
                "price_per_hour": draw(st.none() | st.floats(0, 1e6)),
            }
        )
    links: list[Json] = []
    for one, group in enumerate(groups):
        for other in groups[: one + 1]:
            tiers = ["between_nodes"] if other is not group or group["num_nodes"] != 1 else []
            tiers += ["inside_node"] if other is group and group["ranks_per_node"] != 1 else []
            links += [
                {
                    "source": group["name"],
                    "target": other["name"],
                    "tier": tier,
                    "latency_ns": draw(st.integers(0, 10**6)),
                    "bandwidth_bytes_per_s": draw(st.integers(1, 2**40)),
                }
                for tier in tiers
            ]
    return {"schema": "cluster/1", "node_groups": groups, "links": links}


def _comes_back(document: Contract) -> None:
    data = document_bytes(document)
    again = read_document(data, type(document))
    assert again == document
    assert document_bytes(again) == data
    assert document_digest(again) == document_digest(document)


@given(clusters())
def test_an_accepted_cluster_comes_back_with_its_digest(value: Json) -> None:
    _comes_back(read_document(json.dumps(value).encode(), Cluster))


@given(
    st.lists(st.integers(1, 10**12), min_size=1, max_size=5),
    st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    st.integers(0, 2**40),
)
def test_a_profile_comes_back_with_its_digest(times: list[int], sizes: list[int], saved: int) -> None:
    times = [min(time, 10**15 // (4 * max(sizes))) for time in times]
    _comes_back(make_profile(layer_forward_ns=times, micro_batch_sizes=sizes, saved_bytes=saved // (2 * max(sizes))))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
@pytest.mark.parametrize("kind", list(GOOD), ids=lambda kind: kind.__name__)
def test_damage_is_refused_or_harmless(kind: type[Contract], data: st.DataObject) -> None:
    text = json.dumps(damaged(data, GOOD[kind])).encode()
    try:
        document = read_document(text, kind)
    except DocumentError as error:
        for fault in error.faults:
            assert fault.code.isidentifier()
            assert 0 < len(fault.message) <= 512
            assert fault.pointer == "" or fault.pointer.startswith("/")
            assert fault.pointer.isprintable()
        return
    _comes_back(document)


@settings(max_examples=300)
@given(st.data())
def test_random_bytes_never_surprise(data: st.DataObject) -> None:
    """A good document with random bytes put in, cut out or changed."""
    text = bytearray(json.dumps(WORKLOAD).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        first = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(first, min(len(text), first + 8)))
        text[first:end] = data.draw(st.binary(max_size=4) | st.sampled_from([b"{", b"[", b'"', b"\\u", b"1e", b"-"]))
    try:
        document = read_document(bytes(text), Workload)
    except DocumentError:
        return
    _comes_back(document)
