"""Solved slice lengths against brute force and against equal slices."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from planner.costs.prices import VisitPrice
from planner.errors import PlanError
from planner.plan.plan import VisitShape
from planner.schedules.families import family_plan
from planner.schedules.family import FamilyShape
from planner.schedules.slice_lengths import solve_slice_lengths
from planner.simulate.simulate import simulate
from tests.helpers.plans import make_prices


def attention_cost(fixed: int, linear: int, square: int) -> Callable[[int, int], int]:
    """c + a l + b l (prefix + l/2), in halves."""
    return lambda first, end: 2 * fixed + 2 * linear * (end - first) + square * (end - first) * (end + first)


def formula(cost: Callable[[int, int], int], cuts: tuple[int, ...], *, num_groups: int, work: int) -> int:
    costs = [cost(first, end) for first, end in pairwise(cuts)]
    return work * sum(costs) + (num_groups - 1) * max(costs)


@pytest.mark.parametrize("work", [1, 4])
@pytest.mark.parametrize(("fixed", "linear", "square"), [(0, 5, 0), (3, 1, 0), (20, 2, 1), (100, 0, 3), (0, 0, 1)])
def test_brute_force_over_all_cuts(fixed: int, linear: int, square: int, work: int) -> None:
    """9 tokens in blocks of 1: all 256 ways; the answer is at most a thousandth above the best."""
    cost = attention_cost(fixed, linear, square)
    for num_groups in (1, 2, 8):
        best = min(
            formula(cost, (0, *inner, 9), num_groups=num_groups, work=work)
            for count in range(9)
            for inner in combinations(range(1, 9), count)
        )
        found = solve_slice_lengths(cost, num_tokens=9, block_tokens=1, num_groups=num_groups, work=work)
        assert found.step_ns == formula(cost, found.cuts, num_groups=num_groups, work=work)
        assert best <= found.step_ns <= best * 1.001


def test_later_slices_are_shorter_and_beat_the_best_equal_ones() -> None:
    """Attention as dear as the rest at the end of 8192 tokens, 8 groups."""
    cost = attention_cost(200_000, 1000, 1)
    found = solve_slice_lengths(cost, num_tokens=8192, block_tokens=128, num_groups=8)
    lengths = [end - first for first, end in pairwise(found.cuts)]
    assert lengths[0] > lengths[-1]
    equal = [
        formula(cost, tuple(8192 * part // n for part in range(n + 1)), num_groups=8, work=1) for n in range(1, 65)
    ]
    assert found.step_ns < min(equal)


def test_the_simulated_step_is_that_of_the_formula() -> None:
    """TeraPipe forward and backward with F = cost, B = 2 F: three times the formula of the forward cost."""
    cost = attention_cost(50, 3, 1)
    found = solve_slice_lengths(cost, num_tokens=16, block_tokens=1, num_groups=4, work=2)
    plan = family_plan("terapipe", FamilyShape(4, 2, cuts=found.cuts))
    prices = make_prices(plan, lambda stage: VisitPrice(0, 0, 0, 0))

    def price(shape: VisitShape) -> VisitPrice:
        forward = cost(shape.first_token, shape.end_token)
        return VisitPrice(forward, 2 * forward, 0, 0)

    priced = replace(prices, visits={key: price(key[1]) for key in prices.visits})
    assert simulate(plan, priced).step_ns <= 3 * found.step_ns


def test_tokens_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(PlanError, match="found 10 tokens in blocks of 4"):
        solve_slice_lengths(attention_cost(1, 1, 0), num_tokens=10, block_tokens=4, num_groups=2)
