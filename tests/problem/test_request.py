"""Requests and options: documents inline or by digest, pointers that follow the document, conflicts of constraints."""

import json

import pytest

from planner.problem.cluster import Cluster
from planner.problem.options import SearchOptions
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.request import Request
from tests.helpers.documents import make_cluster, make_profile, make_workload
from tests.helpers.edits import edited, json_of, refusal, without

DIGEST = "ab" * 32
INLINE = {
    "schema": "request/1",
    "profiles": [json_of(make_profile())],
    "cluster": json_of(make_cluster()),
    "workload": json_of(make_workload()),
}
BY_DIGEST = {**INLINE, "profiles": [DIGEST], "cluster": DIGEST}


def _read(value: dict[str, object]) -> Request:
    return read_document(json.dumps(value).encode(), Request)


def test_documents_come_inline_or_by_digest() -> None:
    inline, named = _read(INLINE), _read(BY_DIGEST)
    assert isinstance(inline.cluster, Cluster)
    assert isinstance(inline.profiles[0], ModelProfile)
    assert (named.cluster, named.profiles) == (DIGEST, (DIGEST,))
    mixed = _read({**INLINE, "profiles": [DIGEST, INLINE["profiles"][0]]})  # type: ignore[index]
    assert isinstance(mixed.profiles[1], ModelProfile)


def test_options_have_their_defaults() -> None:
    assert _read(BY_DIGEST).options == SearchOptions()


@pytest.mark.parametrize(
    ("pointer", "value", "code", "at"),
    [
        ("/cluster", "ab", "pattern", "/cluster"),
        ("/cluster", DIGEST.upper(), "pattern", "/cluster"),
        ("/cluster", 7, "type", "/cluster"),
        ("/cluster", None, "type", "/cluster"),
        ("/profiles", [], "too_short", "/profiles"),
        ("/profiles", [DIGEST] * 65, "limit", "/profiles"),
        ("/profiles/0", "x", "pattern", "/profiles/0"),
        ("/profiles/0/layers/0/causal", 1, "type", "/profiles/0/layers/0/causal"),
        ("/profiles/0/layers/1/id", "layers.0", "duplicate_id", "/profiles/0"),
        ("/profiles/0/schema", "profile/2", "schema", "/profiles/0/schema"),
        ("/profiles/0/layers", [{}] * 4097, "limit", "/profiles/0/layers"),
        ("/cluster/schema", "cluster/9", "schema", "/cluster/schema"),
        ("/cluster/node_groups/0/usable_bytes", 0, "range", "/cluster/node_groups/0/usable_bytes"),
        ("/cluster/node_groups", [], "empty_cluster", "/cluster"),
        ("/workload", DIGEST, "type", "/workload"),
        ("/workload/schema", "plan/1", "schema", "/workload/schema"),
        ("/time_limit_ns", 0, "range", "/time_limit_ns"),
        ("/time_limit_ns", -1, "range", "/time_limit_ns"),
        ("/time_limit_ns", 10**18, "range", "/time_limit_ns"),
        ("/time_limit_ns", 3_600 * 10**9 + 1, "range", "/time_limit_ns"),
        ("/time_limit_ns", 10**9 - 1, "range", "/time_limit_ns"),
        ("/time_limit_ns", 1.5e9, "type", "/time_limit_ns"),
        ("/seed", -1, "range", "/seed"),
        ("/seed", 2**31, "range", "/seed"),
        ("/mode", "quick", "choice", "/mode"),
        ("/objective", "cost", "choice", "/objective"),
        ("/target", "elsewhere", "choice", "/target"),
        ("/validate_only", 1, "type", "/validate_only"),
        ("/threads", 8, "unknown_field", "/threads"),
        ("/constraints", {"families": ["zb"]}, "choice", "/constraints/families/0"),
        ("/constraints", {"data_degrees": [0]}, "range", "/constraints/data_degrees/0"),
        ("/constraints", {"micro_batch_sizes": [0]}, "range", "/constraints/micro_batch_sizes/0"),
        ("/constraints", {"micro_batch_sizes": [-1]}, "range", "/constraints/micro_batch_sizes/0"),
        ("/constraints", {"num_stages": 0}, "range", "/constraints/num_stages"),
        ("/constraints", {"most_legs": 65}, "range", "/constraints/most_legs"),
        ("/constraints", {"num_stages": 5, "most_stages": 4}, "conflict", "/constraints"),
        ("/constraints", {"pins": [{"layer": 3, "device_kind": "a"}] * 4097}, "limit", "/constraints/pins"),
        (
            "/constraints",
            {"pins": [{"layer": 3, "device_kind": "a"}, {"layer": 3, "device_kind": "b"}]},
            "conflict",
            "/constraints",
        ),
        (
            "/constraints",
            {"pins": [{"layer": 3, "device_kind": "a"}], "unused_kinds": ["a"]},
            "conflict",
            "/constraints",
        ),
    ],
)
def test_a_broken_request(pointer: str, value: object, code: str, at: str) -> None:
    error = refusal(edited(INLINE, pointer, value), Request)
    assert (error.code, error.pointer) == (code, at)


def test_a_nested_document_without_schema() -> None:
    error = refusal(without(INLINE, "/cluster/schema"), Request)
    assert (error.code, error.pointer) == ("schema", "/cluster/schema")


def test_limits_of_time_are_inclusive() -> None:
    for limit in (10**9, 3_600 * 10**9):
        assert _read({**BY_DIGEST, "time_limit_ns": limit}).options.time_limit_ns == limit


def test_equal_pins_are_no_conflict() -> None:
    pins = [{"layer": 3, "device_kind": "a"}] * 2
    assert len(_read({**BY_DIGEST, "constraints": {"pins": pins}}).constraints.pins) == 2
