"""Pipelines with degrees, recompute and micro-batches in flight: worked figures, everything by brute force."""

import math
import random
from itertools import combinations, count, product

import pytest

from planner.errors import InfeasibleError, ProblemError
from planner.search.graphs.in_flight import pipeline_answers
from planner.search.graphs.pipeline import (
    PipelineChoice,
    PipelineLayer,
    PipelineProblem,
    PipelineRead,
    PipelineStage,
    stage_bytes,
    stage_ns,
)
from tests.helpers.graph_search import NOTHING, closed_chains
from tests.helpers.public_instances import pipeline


def named(problem: PipelineProblem, layers: range, data: int) -> PipelineStage:
    """Without recompute, tensor degree 1."""
    chosen = tuple(problem.layers[layer].choices[0] for layer in layers)
    assert {choice.name for choice in chosen} == {"vanilla"}
    return PipelineStage(tuple(layers), chosen, 1, data)


def test_the_worked_stages_of_piper() -> None:
    # Layer 21 on 16 ranks: (130,023,424 / 16 + 345,697.5) / (25 x 2^30) + 0.030479 / 16 s; memory at 13 in flight.
    problem = pipeline()
    stage = named(problem, range(21, 22), 16)
    assert stage_ns(problem, stage) == pytest.approx(2_220_550.1, abs=0.1)
    assert stage_bytes(stage, later_data=13 * 16 - 16) == 606_478_336 * 13 + 353_994_240 == 8_238_212_608
    last = named(problem, range(30, 37), 80)
    assert stage_ns(problem, last) == pytest.approx(2_546_827.1, abs=0.1)
    assert stage_bytes(last, later_data=0) == 5_823_791_616
    assert sum(layer.choices[0].time_ns for layer in problem.layers) == 972_864_000


def legal_values(problem: PipelineProblem, parts: tuple[frozenset[int], ...]) -> list[float]:
    """Of every legal way to run these stages: its slowest stage."""
    found = []
    degrees = list(product(problem.tensors, problem.data_degrees))
    for chosen in product(degrees, repeat=len(parts)):
        if sum(t * d for t, d in chosen) > problem.num_devices:
            continue
        values = []
        for place, (part, (t, d)) in enumerate(zip(parts, chosen, strict=True)):
            later = sum(data for _, data in chosen[place + 1 :])
            options = [[c for c in problem.layers[n].choices if c.tensor == t] for n in sorted(part)]
            stages = (PipelineStage(tuple(sorted(part)), picks, t, d) for picks in product(*options))
            fitting = (s for s in stages if stage_bytes(s, later_data=later) <= problem.memory_bytes)
            values.append(min((stage_ns(problem, s) for s in fitting), default=float(NOTHING)))
        found.append(max(values))
    return found


def best_of_all(problem: PipelineProblem) -> int:
    reads = [(read.producer, read.consumer) for read in problem.reads]
    values = [v for parts in closed_chains(len(problem.layers), reads) for v in legal_values(problem, parts)]
    best = min(values, default=float(NOTHING))
    return NOTHING if best >= NOTHING else math.ceil(best - 1e-6)


def random_problem(seed: int) -> PipelineProblem:
    draw = random.Random(seed)
    size = draw.randint(1, 4)
    reads = tuple(
        PipelineRead(a, b, draw.randint(0, 30)) for a, b in combinations(range(size), 2) if draw.random() < 0.5
    )
    layers = []
    for number in range(size):
        choices = []
        for tensor in (1, 2) if draw.random() < 0.5 else (1,):
            weights, time, kept = draw.randint(0, 9), draw.randint(0, 90), draw.randint(1, 6)
            others = {r.producer + r.consumer - number: draw.randint(0, 9) for r in reads if number in r[:2]}
            choices.append(PipelineChoice("none", tensor, time, weights, kept, weights, others))
            if draw.random() < 0.7:
                again = PipelineChoice("full", tensor, time + draw.randint(0, 30), weights, 1, weights + 1, others)
                choices.append(again)
        layers.append(PipelineLayer(f"{number}", tuple(choices)))
    memory = draw.choice([10, 16, 25, 1_000])
    return PipelineProblem(tuple(layers), reads, draw.randint(1, 4), memory, draw.choice([2, 4, 6]), 10**9)


@pytest.mark.parametrize("block", range(5))
def test_brute_force_agrees(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        problem = random_problem(seed)
        best = best_of_all(problem)
        if best >= NOTHING:
            with pytest.raises(InfeasibleError):
                list(pipeline_answers(problem))
            continue
        answers = list(pipeline_answers(problem))
        assert all(answer.bound_ns <= best for answer in answers), seed
        assert all(answer.value_ns is None or answer.value_ns >= best for answer in answers), seed
        assert (answers[-1].value_ns, answers[-1].bound_ns, answers[-1].limit) == (best, best, "optimal"), seed


def test_a_stop_leaves_stages_and_a_bound() -> None:
    asked = count()
    *_, answer = pipeline_answers(random_problem(4), stop=lambda: next(asked) > 1)
    assert answer.bound_ns <= best_of_all(random_problem(4))


def choice(kept: int, fixed: int = 0, weights: int = 0) -> PipelineChoice:
    return PipelineChoice("none", 1, 5, weights, kept, fixed, {})


def test_a_layer_that_fits_nowhere_is_named() -> None:
    layers = (PipelineLayer("small", (choice(1),)), PipelineLayer("big", (choice(5, 6),)))
    problem = PipelineProblem(layers, (PipelineRead(0, 1, 1),), 2, 10, 2, 10**9)
    with pytest.raises(InfeasibleError, match=r"layer 'big' needs 11 bytes, a device has 10, 1 bytes short"):
        list(pipeline_answers(problem))


def test_layers_that_fit_one_by_one_only_may_lack_devices() -> None:
    layers = tuple(PipelineLayer(name, (choice(3, 5),)) for name in "abc")
    reads = (PipelineRead(0, 1, 1), PipelineRead(1, 2, 1))
    with pytest.raises(InfeasibleError, match="no stages on 2 devices of 8 bytes"):
        list(pipeline_answers(PipelineProblem(layers, reads, 2, 8, 2, 10**9)))


def test_recompute_that_changes_weights_is_refused() -> None:
    layers = (PipelineLayer("a", (choice(1, weights=3), choice(2, weights=4))),)
    with pytest.raises(ProblemError, match=r"weights of \[3, 4\] bytes at tensor degree 1"):
        PipelineProblem(layers, (), 2, 10, 2, 10**9)
