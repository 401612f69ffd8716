"""CP-SAT on small problems: proofs of the cases, brute force, refusal of large ones."""

import pytest

from planner.errors import SolverError
from planner.search.synthesis.engine import Engine, Schedule
from planner.search.synthesis.kernels import plain_kernels
from planner.search.synthesis.named import named_schedules
from planner.search.synthesis.polish import MOST_INSTRUCTIONS, PolishLimits, polish
from planner.search.synthesis.templates import plain_keys
from tests.helpers.order_problems import CASES, case_problem, equal_stages, placements

EXACT = PolishLimits(deterministic_s=10.0, ticks=None)


def plain_start(engine: Engine) -> Schedule:
    name, keys = next(plain_keys(engine))
    found = engine.by_priority(keys, name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["two_kinds_p4", "two_kinds_p8", "input_gradient_heavy_p8", "slow_links_p8"])
def test_zb_h1_is_proven_optimal_on_lines(name: str) -> None:
    case = next(case for case in CASES["cases"] if case["name"] == name)
    engine = Engine(case_problem(case, "line"), plain_kernels())
    best = min(named_schedules(engine), key=lambda schedule: schedule.step_ns)
    found = polish(engine, best, EXACT)
    assert found.is_optimal
    assert found.bound_ns == case["placements"]["line"]["proven_optimum_step"]


@pytest.mark.parametrize(("limit", "least"), [(2, 23), (3, 20), (4, 16)])
def test_the_best_of_every_order_on_a_v(limit: int, least: int) -> None:
    """V of two groups, two micro-batches, F = I = W = message = 1; every order tried in test_synthesise."""
    engine = Engine(equal_stages(placements("v", 2), 2, limit=limit, message=1), plain_kernels())
    found = polish(engine, plain_start(engine), EXACT)
    assert found.schedule.step_ns == least
    assert found.is_optimal


def test_coarse_ticks_keep_only_the_order() -> None:
    """Two kinds, p = 4, V: never longer than the start, exact times, no bound claimed."""
    problem = case_problem(CASES["cases"][0], "v")
    engine = Engine(problem, plain_kernels())
    start = plain_start(engine)
    found = polish(engine, start, PolishLimits(deterministic_s=1.0, ticks=10))
    assert found.bound_ns is None
    assert found.schedule.step_ns <= start.step_ns
    again = engine.of_order(found.schedule.order, "again")
    assert again is not None
    assert again.step_ns == found.schedule.step_ns


def test_the_same_answer_twice() -> None:
    engine = Engine(case_problem(CASES["cases"][0], "line"), plain_kernels())
    limits = PolishLimits(deterministic_s=0.5, ticks=10)
    one, other = (polish(engine, plain_start(engine), limits) for _ in range(2))
    assert one.schedule.order.tolist() == other.schedule.order.tolist()


def test_a_large_problem_is_refused() -> None:
    engine = Engine(equal_stages(placements("line", 8), 100, limit=8), plain_kernels())
    assert engine.num_instructions > MOST_INSTRUCTIONS
    with pytest.raises(SolverError, match="2400 instructions"):
        polish(engine, plain_start(engine))
