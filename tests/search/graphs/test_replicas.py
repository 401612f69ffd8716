"""Stages copied on several machines: a worked case, every cut and every number of copies by brute force."""

import math
import random
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

from planner.errors import ProblemError
from planner.search.graphs.replicas import ReplicaLayer, ReplicaProblem, ReplicaStage, replica_answers
from tests.helpers.graph_search import closed_chains


def value_of(problem: ReplicaProblem, stages: tuple[ReplicaStage, ...]) -> int:
    """From the definition, in whole ns, rounded up."""
    worst = 0
    for number, stage in enumerate(stages):
        r, ns = stage.num_machines, 10**9 / problem.bandwidth_bytes_per_s
        time = sum(problem.layers[layer].time_ns for layer in stage.layers)
        weights = sum(problem.layers[layer].weight_bytes for layer in stage.layers)
        took = (time + 4 * (r - 1) * weights / r * ns) / r
        if problem.cuts == "priced" and number > 0:
            before = {layer for one in stages[:number] for layer in one.layers}
            took = max(took, 2 * crossing(problem, before) / r * ns)
            if number + 1 < len(stages):
                took = max(took, 2 * crossing(problem, before | set(stage.layers)) / r * ns)
        worst = max(worst, math.ceil(took - 1e-6))
    return worst


def crossing(problem: ReplicaProblem, inside: set[int]) -> int:
    leaving = {a for a, b in problem.reads if a in inside and b not in inside}
    return sum(problem.layers[layer].output_bytes for layer in leaving)


def shares(machines: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every way to give each stage at least one machine, all used."""
    for cuts in combinations(range(1, machines), stages - 1):
        ends = (0, *cuts, machines)
        yield tuple(b - a for a, b in pairwise(ends))


def best_of_all(problem: ReplicaProblem) -> int:
    best = 10**18
    for parts in closed_chains(len(problem.layers), problem.reads):
        for share in shares(problem.num_machines, len(parts)):
            stages = tuple(ReplicaStage(tuple(p), r) for p, r in zip(parts, share, strict=True))
            best = min(best, value_of(problem, stages))
    return best


def random_problem(seed: int) -> ReplicaProblem:
    draw = random.Random(seed)
    size = draw.randint(1, 5)
    layers = tuple(
        ReplicaLayer(f"{n}", draw.randint(0, 40), draw.randint(0, 20), draw.randint(0, 8)) for n in range(size)
    )
    reads = tuple(pair for pair in combinations(range(size), 2) if draw.random() < 0.5)
    cuts = "priced" if draw.random() < 0.5 else "free"
    return ReplicaProblem(layers, reads, draw.randint(1, 4), draw.choice([10**9, 7 * 10**8]), cuts)


@pytest.mark.parametrize("block", range(5))
def test_brute_force_agrees(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        problem = random_problem(seed)
        best, answers = best_of_all(problem), list(replica_answers(problem))
        assert all(answer.bound_ns <= best for answer in answers), seed
        assert (answers[-1].value_ns, answers[-1].bound_ns, answers[-1].limit) == (best, best, "optimal"), seed
        assert value_of(problem, answers[-1].stages) == best
        assert sum(stage.num_machines for stage in answers[-1].stages) == problem.num_machines


def test_a_slow_layer_gets_the_copies() -> None:
    # 30 and 10 on four machines: three copies of the first, 10 each. Four copies of both would move 30 bytes:
    # (40 + 4 x 3 x 30 / 4) / 4 = 32.5.
    layers = (ReplicaLayer("a", 30, 0, 0), ReplicaLayer("b", 10, 0, 30))
    *_, answer = replica_answers(ReplicaProblem(layers, ((0, 1),), 4, 10**9, "priced"))
    assert answer.stages == (ReplicaStage((0,), 3), ReplicaStage((1,), 1))
    assert answer.value_ns == 10


def test_a_dear_cut_is_left_alone() -> None:
    # The same with an output of 100 bytes at 1 byte/ns: two copies of everything take 20, the cut would take 200 / 1.
    layers = (ReplicaLayer("a", 30, 100, 0), ReplicaLayer("b", 10, 0, 0))
    *_, answer = replica_answers(ReplicaProblem(layers, ((0, 1),), 2, 10**9, "priced"))
    assert answer.stages == (ReplicaStage((0, 1), 2),)
    assert answer.value_ns == 20


def test_a_stop_leaves_a_bound() -> None:
    *_, answer = replica_answers(random_problem(3), stop=lambda: True)
    assert answer.limit == "wall"
    assert answer.bound_ns <= best_of_all(random_problem(3))


def test_a_circle_is_refused() -> None:
    layers = tuple(ReplicaLayer(name, 1, 1, 1) for name in "ab")
    with pytest.raises(ProblemError, match="in a circle"):
        ReplicaProblem(layers, ((0, 1), (1, 0)), 2, 10**9, "free")
