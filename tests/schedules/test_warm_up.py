"""Warm-up counts for slow borders: the rule against the simulator."""

from itertools import product

import pytest

from planner.costs.prices import VisitPrice
from planner.errors import PlanError
from planner.schedules.warm_up import warm_up_counts
from planner.simulate.simulate import simulate
from tests.helpers.plans import line_plan, make_prices


def step_ns(
    counts: tuple[int, ...], num_micro_batches: int, *, border: int, delay_ns: int, backward_ns: int = 1
) -> int:
    plan = line_plan("1f1b", len(counts), num_micro_batches, forwards_first=counts)
    prices = make_prices(
        plan,
        lambda stage: VisitPrice(1, backward_ns, 0, 0),
        message_ns=lambda one, other: delay_ns if (one, other) == (border, border + 1) else 0,
    )
    return simulate(plan, prices).step_ns


@pytest.mark.parametrize(
    ("delay_ns", "counts", "expected_ns"),
    [(0, (4, 3, 2, 1), 70), (1, (5, 4, 2, 1), 72), (2, (6, 5, 2, 1), 74), (3, (7, 6, 2, 1), 76), (4, (8, 7, 2, 1), 78)],
)
def test_the_middle_border_is_slow(delay_ns: int, counts: tuple[int, ...], expected_ns: int) -> None:
    """F = B = 1, p = 4, m = 32: one count more for each tick of delay, on all groups before the border."""
    found = warm_up_counts((0, delay_ns, 0), period_ns=2)
    assert found == (counts, ())
    assert step_ns(found.counts, 32, border=1, delay_ns=delay_ns) == expected_ns


@pytest.mark.parametrize("backward_ns", [1, 2])
@pytest.mark.parametrize("border", [0, 1])
def test_the_steady_state_is_undisturbed_exactly_where_the_rule_says(border: int, backward_ns: int) -> None:
    """p = 3: all falling counts up to 6, delays 0..4; period = F + B."""
    period_ns = 1 + backward_ns
    for first, second, delay_ns in product(range(2, 7), range(1, 6), range(5)):
        counts = (first, second, 1)
        if not (first > second or (first >= second and border == 1)) or (border == 0 and second < 2):
            continue
        steps = [step_ns(counts, m, border=border, delay_ns=delay_ns, backward_ns=backward_ns) for m in (24, 48)]
        gap = counts[border] - counts[border + 1] - 1
        others = all(counts[n] - counts[n + 1] - 1 >= 0 for n in (0, 1))
        undisturbed = steps[1] - steps[0] == 24 * period_ns
        assert undisturbed == (others and 2 * delay_ns <= gap * period_ns), (counts, delay_ns)


def test_memory_limits_the_counts_and_names_the_borders_that_stay_slow() -> None:
    """Group 0 may keep 5: the second border would want (7, 6, 2, 1)."""
    assert warm_up_counts((0, 3, 0), period_ns=2, most_kept=(5, 9, 9, 9)) == ((5, 4, 2, 1), (1,))
    assert step_ns((5, 4, 2, 1), 32, border=1, delay_ns=3) < step_ns((5, 5, 2, 1), 32, border=1, delay_ns=3)
    assert warm_up_counts((0, 3, 0), period_ns=2, most_kept=(9, 9, 9, 9)) == ((7, 6, 2, 1), ())
    assert warm_up_counts((), period_ns=1) == ((1,), ())


def test_the_next_count_is_never_above_the_one_before() -> None:
    found = warm_up_counts((1, 1), period_ns=2, most_kept=(2, 9, 9))
    assert found.counts == (2, 1, 1)
    assert line_plan("1f1b", 3, 6, forwards_first=found.counts).num_ranks == 3


def test_groups_that_may_keep_nothing_are_refused() -> None:
    with pytest.raises(PlanError, match="2 counts of at least 1") as error:
        warm_up_counts((1,), period_ns=2, most_kept=(2, 0))
    assert error.value.code == "warm_up"
