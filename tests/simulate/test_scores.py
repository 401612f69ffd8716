"""What families are worth: worked numbers of equal costs, the limit, refusals."""

import pytest

from planner.errors import PlanError
from planner.plan.instruction import Instruction
from planner.schedules.families import FAMILIES
from planner.schedules.family import FamilyShape, FamilySpec
from planner.schedules.placements import line, one_route
from planner.simulate.scores import GroupCost, Measures, score_family

EQUAL = GroupCost(10_000_000, 10_000_000, 10_000_000)


def measured(family: str, num_groups: int, num_micro_batches: int, cost: GroupCost = EQUAL) -> Measures:
    score = score_family(FAMILIES[family], FamilyShape(num_groups, num_micro_batches), cost)
    assert score.measures is not None
    return score.measures


@pytest.mark.parametrize(
    ("family", "bubble", "span", "memory", "messages", "copies"),
    [
        # p = 4, m = 16: 2 (p-1) m messages on a line, 2 (2p-1) m on a loop of two legs, 2 (2p-2) m on a V
        ("gpipe", 9, 9, 16, 96, 1),
        ("1f1b", 9, 9, 4, 96, 1),
        ("interleaved", 4.5, 4.5, 5.5, 224, 1),
        ("breadth-first", 4.5, 4.5, 16, 224, 1),
        ("zb-h1", 3, 3, 4, 96, 1),
        ("zb-h2", 3, 0, 7, 96, 1),
        ("zb-v", 1.5, 0, 4, 192, 1),
        ("dualpipe-v", 1.5, 1.5, 4.5, 192, 1),
        ("bitpipe", 5, 5, 4, 192, 2),
    ],
)
def test_worked_numbers(family: str, bubble: float, span: float, memory: float, messages: int, copies: int) -> None:
    found = measured(family, 4, 16)
    assert (found.bubble_units, found.span_units, found.memory_units) == (bubble, span, memory)
    assert (found.messages, found.weight_copies) == (messages, copies)
    assert found.step_ns == (3 * 16 + bubble) * EQUAL.forward_ns
    assert found.bubble_share == pytest.approx(bubble / (48 + bubble))


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("cost", [EQUAL, GroupCost(700, 1100, 400, 150)])
def test_no_family_is_below_its_bound(family: str, cost: GroupCost) -> None:
    score = score_family(FAMILIES[family], FamilyShape(4, 16), cost)
    found = score.measures
    assert found is not None, score.reason
    assert found.bubble_units >= found.bound_units >= 0
    assert found.bubble_units >= found.span_units


def test_a_schedule_above_the_memory_limit_is_no_candidate_and_keeps_its_numbers() -> None:
    score = score_family(FAMILIES["zb-h2"], FamilyShape(4, 16), EQUAL, memory_units=6.5)
    assert (score.is_candidate, score.reason) == (False, "memory 7, limit 6.5")
    assert score.measures == measured("zb-h2", 4, 16)
    assert score_family(FAMILIES["zb-h2"], FamilyShape(4, 16), EQUAL, memory_units=7).is_candidate


def test_a_shape_that_a_family_refuses_has_a_reason_and_no_numbers() -> None:
    score = score_family(FAMILIES["chimera"], FamilyShape(3, 6), EQUAL)
    assert score.measures is None
    assert score.reason is not None
    assert "even" in score.reason
    assert not score.is_candidate


def test_what_changes_results_is_no_candidate() -> None:
    score = score_family(FAMILIES["1f1b-asynchronous"], FamilyShape(4, 16), EQUAL)
    assert score.measures is not None
    assert (score.is_candidate, score.reason) == (False, "changes results: stale weights")


def test_a_family_gets_only_the_choices_that_it_reads() -> None:
    shape = FamilyShape(4, 16, num_stages=16, num_slices=2)
    line, loop = (score_family(FAMILIES[name], shape, EQUAL).measures for name in ("1f1b", "interleaved"))
    slices = score_family(FAMILIES["seq1f1b"], shape, EQUAL).measures
    assert line == measured("1f1b", 4, 16)
    assert loop is not None
    assert slices is not None
    assert (loop.bubble_units, slices.bubble_units) == (9 / 4, 9 / 2)  # 3(p-1)/v, 3(p-1)/n


def test_one_group_has_no_bubble() -> None:
    found = measured("1f1b", 1, 5)
    assert (found.bubble_units, found.span_units, found.messages, found.bound_units) == (0, 0, 0, 0)


def test_layers_without_weights_are_no_copies() -> None:
    """HelixPipe: attention stages lie on all routes, weights on one group."""
    assert measured("helixpipe", 4, 4).weight_copies == 1


def test_a_rule_that_cannot_go_on_is_named() -> None:
    """Two groups, one micro-batch: B of the first stage, which waits for that of the second, stands before its F."""
    streams = [[Instruction("B", 0, 0), Instruction("F", 0, 0)], [Instruction("F", 1, 0), Instruction("B", 1, 0)]]
    stuck = FamilySpec("stuck", "never ends", "none", "line", lambda shape: one_route(shape, line(2), streams))
    with pytest.raises(PlanError, match=r"^schedule family stuck: .*0B0"):
        score_family(stuck, FamilyShape(2, 1), EQUAL)
