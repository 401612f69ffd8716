"""Bounds of a step and of a period, against the cases' own values and hand-made ones."""

from dataclasses import replace
from typing import Any

import pytest

from planner.search.synthesis.bounds import best_step_bound, period_bounds, step_bounds
from tests.helpers.order_problems import CASES, case_problem, equal_stages, placements


@pytest.mark.parametrize("placement", ["line", "v"])
@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: str(case["name"]))
def test_every_model_gives_the_value_of_the_case(case: dict[str, Any], placement: str) -> None:
    expected = case["placements"][placement]
    problem = case_problem(case, placement)
    assert {bound.model: bound.step_ns for bound in step_bounds(problem)} == expected["bounds"]
    assert best_step_bound(problem).step_ns == expected["bound_step"]


@pytest.mark.parametrize(
    ("placement", "num_groups", "bubble"),
    [("line", 8, 7), ("v", 8, 7), ("loop", 8, 7), ("two lines", 8, 3), ("two v", 8, 3), ("wave", 8, 7)],
)
def test_head_and_work_of_equal_split_stages(placement: str, num_groups: int, bubble: int) -> None:
    """In ticks of one stage: p-1 before the last group of a line, half of it with a route from either end."""
    problem = equal_stages(placements(placement, num_groups), 32, limit=1000)
    work = max(problem.group_work_ns)
    assert dict(step_bounds(problem))["head_work"] == work + bubble


def test_a_fused_backward_ends_with_its_way_back() -> None:
    """Line of 4, F 1, B 2: 3 before the last group, 3 x 2 after its last B: 3(p-1) = 9."""
    problem = equal_stages(placements("line", 4), 8, limit=4, ticks=(1, 2, 0))
    assert dict(step_bounds(problem))["head_work"] == 3 * 8 + 9


def test_periods() -> None:
    """V of 2 groups, F = I = W = 1, message 2: a group works 6. Stage 0 is kept from its F to its W: there and back
    8 and two messages each way, less one of them at the tip ... counted: F I of 4 stages 8, borders 0-1 and 2-3 crossed
    twice each 8, W 1 = 17; stage 3: 3. Group 0 with room for 2: 20/2 = 10."""
    problem = equal_stages(placements("v", 2), 4, limit=2, message=2)
    assert dict(period_bounds(problem)) == {"work": 6, "memory_area": 10}


def test_more_memory_never_raises_a_bound() -> None:
    problem = equal_stages(placements("v", 4), 16, limit=3)
    more = replace(problem, limit=(4,) * 4)
    pairs = zip(step_bounds(problem), step_bounds(more), strict=True)
    assert all(one.step_ns >= other.step_ns for one, other in pairs)
