"""Refinement over bottlenecks, sums of gradients and chains: worked instances, brute force, what bounds promise."""

import dataclasses
import random
from itertools import islice

import numpy as np
import pytest

from planner.search.chains.chain import Chain
from planner.search.chains.kernel import numpy_rows
from planner.search.chains.refine import Certificate, Effort, refine_chains
from planner.search.partition import NO_PLAN, PartitionProblem
from tests.helpers.cuts import INSTANCES, brute_force_step, random_instance, with_reductions

EXACT = Effort(rows=numpy_rows)


def last(problems: list[PartitionProblem], effort: Effort = EXACT) -> Certificate:
    *_, found = refine_chains([Chain(problem) for problem in problems], effort)
    return found


@pytest.mark.parametrize(("name", "step_ns"), [("A", 211), ("B", 182), ("C", 307)])
def test_optimum_of_the_instances(name: str, step_ns: int) -> None:
    found = last([INSTANCES[name].problem()])
    assert found.step_ns == found.bound_ns == step_ns
    assert found.open_chains == ()


def test_more_micro_batches_choose_the_least_bottleneck() -> None:
    # instance A: m = 1, 2: one stage, 60, 120; m = 3: 168; from m = 5 on the plan of bottleneck 37
    found = {m: last([INSTANCES["A"].problem(num_micro_batches=m)]).step_ns for m in (1, 2, 3, 5)}
    assert found == {1: 60, 2: 120, 3: 168, 5: 252}


def _check(problems: list[PartitionProblem], effort: Effort) -> None:
    values = [brute_force_step(problem) for problem in problems]
    expected = min((value for value in values if value is not None), default=NO_PLAN)
    certificates = list(refine_chains([Chain(problem) for problem in problems], effort))
    bounds = [certificate.bound_ns for certificate in certificates]
    steps = [certificate.step_ns for certificate in certificates]
    assert bounds == sorted(bounds)
    assert steps == sorted(steps, reverse=True)
    assert bounds[-1] <= expected <= steps[-1]
    if effort.most_table_bytes:
        assert bounds[-1] == steps[-1]
    if certificates[-1].cut is not None:
        assert values[certificates[-1].chain] is not None
        stages = certificates[-1].cut.stages
        assert [stage.first_layer for stage in stages[1:]] == [stage.end_layer for stage in stages[:-1]]


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_on_tiny_problems(seed: int) -> None:
    """20 x 110 problems: one chain, with sums of gradients, and two chains at once."""
    source = random.Random(seed)
    for _ in range(50):
        _check([random_instance(source)], EXACT)
    for _ in range(30):
        _check([with_reductions(random_instance(source), source)], EXACT)
    for _ in range(15):
        _check([with_reductions(random_instance(source), source), random_instance(source)], EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_without_tables_bounds_and_steps_stay_on_their_sides(seed: int) -> None:
    """Prices alone: bounds below, cuts above, and the refinement ends."""
    source = random.Random(seed)
    for _ in range(40):
        _check([with_reductions(random_instance(source), source)], Effort(most_table_bytes=0, rows=numpy_rows))


@pytest.mark.parametrize(("cutoff_ns", "step_ns"), [(212, 211), (211, 211), (150, 150)])
def test_only_shorter_steps_than_a_known_one_are_looked_for(cutoff_ns: int, step_ns: int) -> None:
    # instance A: 211; at a cutoff of 211 and below nothing is found, and the bound says so
    *_, found = refine_chains([Chain(INSTANCES["A"].problem())], EXACT, cutoff_ns=cutoff_ns)
    assert (found.step_ns, found.bound_ns, found.cut is None) == (step_ns, step_ns, cutoff_ns <= 211)


def test_messages_lengthen_the_way_and_not_the_bottleneck() -> None:
    # instance A, every stage but the first adds 10 to the way: one stage 240 + 0, the optimum 211 + 10
    problem = INSTANCES["A"].problem()
    longer = np.where(np.arange(problem.num_layers) > 0, 10, 0)[:, None]
    options = tuple(dataclasses.replace(option, way_ns=option.time_ns + longer) for option in problem.options)
    found = last([dataclasses.replace(problem, options=options)])
    assert (found.step_ns, found.bound_ns) == (221, 221)
    assert found.cut is not None
    assert (found.cut.bottleneck_ns, found.cut.sum_ns) == (43, 92)


def test_it_can_be_ended_at_any_moment() -> None:
    for certificate in islice(refine_chains([Chain(INSTANCES["C"].problem())], EXACT), 2):
        assert certificate.bound_ns <= 307 <= certificate.step_ns


def test_a_tolerance_ends_it_early() -> None:
    exact = last([INSTANCES["A"].problem()])
    early = last([INSTANCES["A"].problem()], Effort(tolerance=0.2, rows=numpy_rows))
    assert early.evaluations < exact.evaluations
    assert early.gap <= 0.2
