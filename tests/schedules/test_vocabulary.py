"""The head cut by vocabulary: the period of the steady state by blocks in flight and barrier time.

F = 2, B = 4, S = T = 1 of every group, so the ideal period is 8. Expected values: greedy streams replayed by an
independent implementation; ours must be as good or better.
"""

import pytest

from planner.check.structure import check_plan
from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.plan import Plan
from planner.schedules.families import abstract_plan
from planner.schedules.family import FamilyShape
from planner.schedules.vocabulary import vocabulary
from planner.simulate.simulate import simulate

# (barriers, barrier time in ticks of F/2) -> period at p = 4 and 8 with p-d, p-d+1, p-d+2 blocks in flight on group d
PERIODS = {
    (1, 0): ((9, 9), (8, 8), (8, 8)),
    (1, 1): ((10, 11), (8, 8), (8, 8)),
    (1, 2): ((11, 11.7), (8, 8), (8, 8)),
    (2, 0): ((13, 13), (8, 8), (8, 8)),
    (2, 1): ((14, 14), (10, 8), (8, 8)),
    (2, 2): ((15, 18.5), (10.7, 11.3), (8, 8)),
}


def prices(plan: Plan, *, num_barriers: int, barrier_ns: int) -> PlanPrices:
    """Barrier 1 = parts to combine, barrier 2 = parts' gradients to the last block."""
    p = len(plan.groups)
    (shape,) = {plan.visit_shape(number, 0) for number in range(len(plan.micro_batches))}
    block, part, combine = VisitPrice(2, 4, 0, 0, kept_bytes=1), VisitPrice(1, 1, 0, 1), VisitPrice(0, 0, 0, 0)
    visits = {stage: block if stage < p else part if stage < 2 * p else combine for stage in range(2 * p + 1)}
    borders = {(s, s + 1, shape): BorderPrice(0, 0, 0) for s in range(p)} | {
        (p - 1, 2 * p, shape): BorderPrice(0, 0, 0)
    }
    for number in range(p, 2 * p):
        borders[p - 1, number, shape] = BorderPrice(0, barrier_ns if num_barriers == 2 else 0, 0)
        borders[number, 2 * p, shape] = BorderPrice(barrier_ns, 0, 0)
    return PlanPrices(
        visits={(stage, shape): price for stage, price in visits.items()},
        borders=borders,
        sum_ns=(0,) * (2 * p),
        update_ns=(0,) * (2 * p + 1),
        state_bytes=(0,) * p,
        limit_bytes=(2**40,) * p,
        costs="measured",
    )


def step_ns(num_barriers: int, ticks: int, p: int, m: int, more: int, *, planned_ticks: int | None = None) -> int:
    counts = tuple(p - group + more for group in range(p))
    planned = ticks if planned_ticks is None else planned_ticks
    shape = FamilyShape(p, m, forwards_first=counts)
    plan = abstract_plan(vocabulary(shape, num_barriers=num_barriers, barrier_ticks=planned))
    timeline = simulate(plan, prices(plan, num_barriers=num_barriers, barrier_ns=ticks))
    assert timeline.peak_bytes is not None
    assert all(peak <= count for peak, count in zip(timeline.peak_bytes, counts, strict=True))
    return timeline.step_ns


@pytest.mark.parametrize(("num_barriers", "ticks"), PERIODS)
def test_period(num_barriers: int, ticks: int) -> None:
    for more, expected in enumerate(PERIODS[num_barriers, ticks]):
        for p, period in zip((4, 8), expected, strict=True):
            steps = [step_ns(num_barriers, ticks, p, rounds * p, more) for rounds in (8, 12)]
            assert (steps[1] - steps[0]) / (4 * p) <= period + 0.01


@pytest.mark.parametrize("num_barriers", [1, 2])
@pytest.mark.parametrize("num_groups", [2, 3, 4, 6, 8])
def test_one_block_more_in_flight_keeps_the_full_rate_at_any_barrier(num_barriers: int, num_groups: int) -> None:
    """Planned for a barrier as long as F: shorter ones are no worse."""
    p = num_groups
    for ticks in (0, 1, 2):
        steps = [step_ns(num_barriers, ticks, p, rounds * p, 1, planned_ticks=2) for rounds in (8, 16)]
        assert (steps[1] - steps[0]) / (8 * p) <= 8.01


def test_the_visits_of_the_parts() -> None:
    """One barrier: F W, the block is read detached; two: F B. Combine hands gradients back, it has no weights."""
    for num_barriers, backward in ((1, "W"), (2, "B")):
        plan = abstract_plan(vocabulary(FamilyShape(2, 3), num_barriers=num_barriers))
        assert check_plan(plan).ok
        found = {(visit.stage, text) for visit, text in plan.visit_operations.items()}
        assert found == {(0, "FB"), (1, "FB"), (2, "F" + backward), (3, "F" + backward), (4, "FI")}
        assert [stage.group for stage in plan.stages] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("num_barriers", [1, 2])
@pytest.mark.parametrize("num_groups", [4, 8])
def test_logits_are_freed_soon(num_barriers: int, num_groups: int) -> None:
    """However many micro-batches: a part keeps two at most."""
    lists = vocabulary(FamilyShape(num_groups, 8 * num_groups), num_barriers=num_barriers)
    for stream in lists.streams:
        live = 0
        for instruction in stream:
            if num_groups <= instruction.stage < 2 * num_groups:
                live += 1 if instruction.operation == "F" else -1
                assert live <= 2
        assert live == 0
