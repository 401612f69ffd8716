"""Periods: the published case with its proof, brute force on tiny ones, expansion to whole schedules."""

from itertools import product

import pytest

from planner.search.synthesis.engine import Engine
from planner.search.synthesis.kernels import plain_kernels
from planner.search.synthesis.modulo import least_period, periodic_keys, slots_at
from planner.search.synthesis.order_problem import OrderProblem
from tests.helpers.order_problems import equal_stages, placements


def check_slots(problem: OrderProblem, period: int, starts: tuple[tuple[int, ...], ...]) -> None:
    """Waits, circular slots and the count of kept micro-batches, without the solver."""
    times = problem.forward_ns, problem.backward_input_ns, problem.backward_weight_ns
    for stage, (forward, inputs, weights) in enumerate(starts):
        assert inputs >= forward + problem.forward_ns[stage]
        assert weights >= inputs + problem.backward_input_ns[stage]
        before = problem.before[stage]
        if before >= 0:
            arrives = starts[before][0] + problem.forward_ns[before] + problem.forward_message_ns[stage]
            assert forward >= arrives
            back = inputs + problem.backward_input_ns[stage] + problem.backward_message_ns[before]
            assert starts[before][1] >= back
    for group, limit in enumerate(problem.limit):
        stages = [stage for stage, owner in enumerate(problem.group_of_stage) if owner == group]
        used = [(starts[s][o] + tick) % period for s in stages for o in range(3) for tick in range(times[o][s])]
        assert len(used) == len(set(used))
        kept = [-(-(starts[s][2] + problem.backward_weight_ns[s] - starts[s][0]) // period) for s in stages]
        assert sum(kept) <= limit


def test_half_memory_on_a_v_of_eight_groups() -> None:
    """5 ticks an instruction, message 4, 10 stages kept a group: 30 to 34 are infeasible, 35 is not."""
    problem = equal_stages(placements("v", 8), 32, limit=10, ticks=(5, 5, 5), message=4)
    found = least_period(problem, most_ns=40)
    assert [(one.period_ns, one.slots.status) for one in found.tried] == [
        *((period, "infeasible") for period in range(30, 35)),
        (35, "feasible"),
    ]
    assert found.bound_ns == 30
    assert found.is_proven
    assert found.best is not None
    check_slots(problem, 35, found.best.slots.starts_ns)


def least_by_trying(problem: OrderProblem, most: int) -> int:
    """One group, one stage: every start of I and W up to two periods behind its F."""
    ((f, i, w),) = zip(problem.forward_ns, problem.backward_input_ns, problem.backward_weight_ns, strict=True)
    for period in range(1, most + 1):
        for inputs, weights in product(range(f, 3 * period), range(f + i, 4 * period)):
            used = [*range(f), *range(inputs, inputs + i), *range(weights, weights + w)]
            kept = -(-(weights + w) // period)
            if weights >= inputs + i and kept <= problem.limit[0] and len({t % period for t in used}) == len(used):
                return period
    raise AssertionError("no period")


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("ticks", [(1, 1, 1), (2, 1, 3), (1, 3, 2)])
def test_one_stage_alone(limit: int, ticks: tuple[int, int, int]) -> None:
    problem = equal_stages([[0]], 4, limit=limit, ticks=ticks)
    found = least_period(problem, most_ns=12)
    assert found.best is not None
    assert found.best.period_ns == least_by_trying(problem, 12)


@pytest.mark.parametrize("placement", ["line", "loop", "v", "two lines", "two v"])
def test_slots_of_every_placement_keep_all_rules(placement: str) -> None:
    problem = equal_stages(placements(placement, 4), 16, limit=8, ticks=(2, 3, 1), message=1)
    found = least_period(problem, most_ns=80)
    assert found.best is not None
    check_slots(problem, found.best.period_ns, found.best.slots.starts_ns)


def test_a_period_becomes_a_schedule() -> None:
    """Its starts as priorities; the step is no shorter than the work and fits the memory."""
    problem = equal_stages(placements("v", 4), 16, limit=6, ticks=(5, 5, 5), message=2)
    found = least_period(problem, most_ns=60)
    assert found.best is not None
    engine = Engine(problem, plain_kernels())
    schedule = engine.by_priority(periodic_keys(engine, found.best), "periodic")
    assert schedule is not None
    assert max(problem.group_work_ns) <= schedule.step_ns <= 2 * 16 * found.best.period_ns


def test_no_period_below_what_is_asked() -> None:
    problem = equal_stages(placements("v", 8), 32, limit=10, ticks=(5, 5, 5), message=4)
    found = least_period(problem, most_ns=32)
    assert found.best is None
    assert not found.is_proven
    assert slots_at(problem, 31).starts_ns == ()
