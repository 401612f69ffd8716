"""The partition programme against the worked instances A, B, C and against brute force.

Common to A, B, C: stage time = 3 x sum of forward (4 x with recompute full) + border 1 if the stage is not the first;
state of a stage = ceil(sum state / tensor); kept = min(j, m) x ceil(sum saved / tensor), or with full recompute
min(j, m) x number of layers + ceil(max saved / tensor); a step takes (m-1) T + S.
"""

import random

import pytest

from planner.search.bounds import bottleneck_start_ns
from planner.search.partition import NO_PLAN, best_cut
from planner.search.refinement import elastic_values, halfway, refine, stage_times
from tests.helpers.cuts import INSTANCES, Instance, brute_force_cuts, brute_force_step, random_instance, without_limits


@pytest.fixture(params=sorted(INSTANCES))
def instance(request: pytest.FixtureRequest) -> Instance:
    return INSTANCES[request.param]


OPTIMA = {
    "A": (211, [("fast", 1, 0, 4), ("slow", 1, 4, 5)]),
    "B": (182, [("fast", 1, 0, 2), ("slow", 1, 2, 3), ("fast", 1, 3, 6)]),
    "C": (307, [("fast", 1, 0, 2), ("slow", 2, 2, 4), ("fast", 1, 4, 6)]),
}
FEASIBLE = {"A": 32, "B": 19, "C": 10}
LEAST_SUMS = {
    "A": {37: 104, 43: 82, 49: 79, 55: 67, 60: 60},
    "B": {31: 96, 37: 71},
    "C": {31: 90, 37: 87, 43: 52},
}
STARTS = {"A": 30, "B": 20, "C": 23}
BOUNDS = {
    "A": [153, 175, 193, 198, 202, 208, 211],
    "B": [134, 158, 170, 176, 179, 182],
    "C": [220, 258, 286, 290, 300, 307],
}
FIRST_VALUES = {"A": 240, "B": 182, "C": 353}


def test_optimum_and_stages_of_the_instances(instance: Instance) -> None:
    problem = instance.problem()
    *_, last = refine(problem, start_ns=0)
    value, stages = OPTIMA[instance.name]
    assert last.cut.step_ns(problem.num_micro_batches) == value == last.bound_ns
    assert [instance.described(pick) for pick in last.cut.stages] == stages


def test_number_of_feasible_plans(instance: Instance) -> None:
    assert len(list(brute_force_cuts(instance.problem()))) == FEASIBLE[instance.name]


def test_least_sums_at_realised_bottlenecks(instance: Instance) -> None:
    problem = instance.problem()
    found = {}
    for limit_ns in stage_times(problem):
        cut = best_cut(problem, limit_ns)
        if cut is not None and cut.bottleneck_ns == limit_ns:
            found[limit_ns] = cut.sum_ns
    assert found == LEAST_SUMS[instance.name]


def test_start_of_the_linear_programme(instance: Instance) -> None:
    assert bottleneck_start_ns(instance.problem()) == STARTS[instance.name]


def test_sequence_of_the_refinement(instance: Instance) -> None:
    problem = instance.problem()
    steps = list(refine(problem, start_ns=STARTS[instance.name], middle=halfway))
    assert [step.bound_ns for step in steps] == BOUNDS[instance.name]
    assert steps[0].cut.step_ns(problem.num_micro_batches) == FIRST_VALUES[instance.name]
    assert steps[-1].cut.step_ns(problem.num_micro_batches) == OPTIMA[instance.name][0]


ELASTIC = {  # by (fast, slow); what is missing is infeasible
    "A": {(0, 1): 612, (0, 2): 418, (1, 0): 240, (1, 1): 211, (1, 2): 211},
    "B": {(1, 2): 221, (2, 1): 182, (2, 2): 182},
    "C": {(2, 1): 356, (2, 2): 307},
}


def test_elastic_table(instance: Instance) -> None:
    problem = instance.problem()
    values = elastic_values(problem)
    found = {v: int(values[n]) for n, v in enumerate(problem.vectors) if values[n] < NO_PLAN}
    assert found == ELASTIC[instance.name]


def test_more_micro_batches_choose_the_least_bottleneck() -> None:
    # instance A: m = 1, 2: one stage, 60, 120; m = 3: 168; from m = 5 on the plan of bottleneck 37
    values = {}
    for count in (1, 2, 3, 5):
        *_, last = refine(INSTANCES["A"].problem(num_micro_batches=count), start_ns=0)
        values[count] = last.cut.step_ns(count)
    assert values == {1: 60, 2: 120, 3: 168, 5: 252}


def test_without_memory_limits() -> None:
    found = {}
    for name, instance in INSTANCES.items():
        *_, last = refine(instance.problem(capacity=10**6), start_ns=0)
        found[name] = last.cut.step_ns(instance.num_micro_batches)
    assert found == {"A": 211, "B": 163, "C": 289}


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_on_tiny_problems(seed: int) -> None:
    """20 x 100 problems of up to 6 layers, 4 devices, 2 kinds, with memory limits that bind."""
    source, binding = random.Random(seed), 0
    for _ in range(100):
        problem = random_instance(source)
        expected = brute_force_step(problem)
        certificates = list(refine(problem, start_ns=bottleneck_start_ns(problem)))
        if expected is None:
            assert certificates == []
            continue
        binding += expected > (brute_force_step(without_limits(problem)) or 0)
        assert certificates[-1].cut.step_ns(problem.num_micro_batches) == expected
        assert certificates[-1].bound_ns == expected
        assert all(certificate.bound_ns <= expected for certificate in certificates)
        bounds = [certificate.bound_ns for certificate in certificates]
        assert bounds == sorted(bounds)
    assert binding >= 5  # memory changes the answer of more than one problem in twenty
