"""Where two ranks differ all of them refuse, and the message names what differs and both values."""

import pytest

from planner.executor.handshake import differences
from tests.helpers.ranks import Ranks

CASE = "tests.helpers.executor_cases:disagree"
CODES = {
    "plan": "plan_mismatch",
    "seed": "seed_mismatch",
    "max_gradient_norm": "max_gradient_norm_mismatch",
    "version of torch": "version_mismatch",
    "version of planner": "version_mismatch",
    "weights": "weights_mismatch",
    "border 0->1 route 0 layer 3": "border_mismatch",
    "bucket 0": "bucket_mismatch",
    "batch": "batch_mismatch",
}
REFUSALS = {  # what one rank finds wrong alone, its code and its error
    "model": ("model_mismatch", "HandshakeError"),
    "dtype": ("model_mismatch", "HandshakeError"),
    "cut": ("model_mismatch", "HandshakeError"),
    "device": ("device_kind", "HandshakeError"),
    "world size": ("world_size", "HandshakeError"),
    "unsupported": ("unsupported_plan", "UnsupportedPlanError"),
}


@pytest.mark.parametrize("odd_rank", [0, 1])
@pytest.mark.parametrize("what", list(CODES))
def test_a_difference_is_refused_on_all_ranks(what: str, odd_rank: int, ranks: Ranks) -> None:
    answers = ranks.run(CASE, 2, what=what, odd_rank=odd_rank)
    assert [(answer.error, answer.code) for answer in answers] == [("HandshakeError", CODES[what])] * 2
    for answer in answers:
        assert what in answer.message
        assert "on rank 0" in answer.message
        assert "on rank 1" in answer.message


@pytest.mark.parametrize("odd_rank", [0, 1])
@pytest.mark.parametrize("what", list(REFUSALS))
def test_what_one_rank_refuses_all_refuse(what: str, odd_rank: int, ranks: Ranks) -> None:
    answers = ranks.run(CASE, 2, what=what, odd_rank=odd_rank)
    code, error = REFUSALS[what]
    assert (answers[odd_rank].error, answers[odd_rank].code) == (error, code)
    other = answers[1 - odd_rank]
    assert (other.error, other.code) == ("HandshakeError", code)
    assert f"rank {odd_rank} refused: {answers[odd_rank].message}" == other.message
    assert ("planner run --emulate" in answers[odd_rank].message) == (what == "device")


def test_equal_facts_have_no_difference() -> None:
    assert differences({0: {"plan": "a"}, 1: {"plan": "a"}}) == []


def test_each_value_is_named_with_its_ranks() -> None:
    facts = {0: {"plan": "a", "cut": "x"}, 1: {"plan": "b", "cut": "x"}, 2: {"plan": "a"}}
    found = differences(facts)
    assert [fault.message for fault in found] == [
        "the ranks differ in plan: a on ranks 0, 2, b on rank 1",
        "the ranks differ in cut: x on ranks 0, 1, nothing on rank 2",
    ]
