"""The eleven public rows: optima equal, best known reached, bounds honest, CPU time below the authors'."""

import itertools
import time

import numpy as np
import pytest

from planner.errors import InfeasibleError
from planner.search.graphs.anywhere import AnywhereEffort, anywhere_answers
from planner.search.graphs.contiguous import contiguous_answers
from planner.search.graphs.in_flight import pipeline_answers
from planner.search.graphs.kernels import plain_kernels
from planner.search.graphs.placement import Effort
from planner.search.graphs.plan import load_ns, plan_of
from planner.search.graphs.problem import GraphProblem
from planner.search.graphs.replicas import replica_answers
from planner.search.partition import PartitionProblem, StageOption
from planner.search.refinement import refine
from tests.helpers.public_instances import CASES, Case, max_load, pipeline, replicas

MAX_LOAD = [name for name in CASES if name.startswith("dnn/")]
CLOSE = 1e-4


def near(found_ns: int, expected_ns: int) -> bool:
    return abs(found_ns - expected_ns) <= CLOSE * expected_ns


@pytest.mark.parametrize("name", MAX_LOAD)
def test_contiguous_optimum(name: str) -> None:
    case, problem = CASES[name], max_load(name)
    answers = list(contiguous_answers(problem))
    plan = answers[-1].plan
    assert plan is not None
    assert near(plan.value_ns, case.contiguous_ns)
    assert (answers[-1].bound_ns, answers[-1].limit) == (plan.value_ns, "optimal")
    assert all(answer.bound_ns <= case.contiguous_ns * (1 + CLOSE) for answer in answers)


@pytest.mark.parametrize("name", MAX_LOAD)
def test_best_known_without_the_rule(name: str) -> None:
    """Reached within 1 % by the local search alone, plain loops, and no bound crossed."""
    case = CASES[name]
    effort = AnywhereEffort(Effort(rounds=2, tries=60_000), 0)
    *_, answer = anywhere_answers(max_load(name), effort=effort, kernels=plain_kernels())
    assert answer.plan is not None
    assert case.any_best_known_ns is not None
    assert case.any_bound_ns is not None
    assert answer.plan.value_ns <= 1.01 * case.any_best_known_ns
    assert answer.plan.value_ns >= case.any_bound_ns
    assert answer.bound_ns <= case.any_best_known_ns


def test_proof_without_the_rule() -> None:
    case = CASES["dnn/bert24_training"]
    effort = AnywhereEffort(Effort(rounds=1, tries=20_000), 10.0)
    *_, answer = anywhere_answers(max_load(case.name), effort=effort, kernels=plain_kernels())
    assert answer.plan is not None
    assert case.any_best_known_ns is not None
    assert answer.limit == "optimal"
    assert near(answer.plan.value_ns, case.any_best_known_ns)


@pytest.mark.soak
@pytest.mark.parametrize("name", MAX_LOAD)
def test_bounds_without_the_rule(name: str) -> None:
    """With the whole effort: the best known reached, the bound below it."""
    case = CASES[name]
    *_, answer = anywhere_answers(max_load(name))
    assert answer.plan is not None
    assert case.any_best_known_ns is not None
    assert answer.plan.value_ns <= case.any_best_known_ns * (1 + CLOSE)
    assert answer.bound_ns <= answer.plan.value_ns
    if case.any_is_proven:
        assert answer.limit == "optimal"


@pytest.mark.parametrize("name", MAX_LOAD)
def test_one_device_holds_everything_or_is_refused(name: str) -> None:
    case, problem = CASES[name], max_load(name)
    everything = range(len(problem.layers))
    assert near(load_ns(problem, 0, everything), case.one_device_ns)
    alone = GraphProblem(
        tuple(layer._replace(times_ns=layer.times_ns[:1]) for layer in problem.layers),
        problem.reads,
        (problem.kinds[0]._replace(num_devices=1),),
    )
    if "resnet50" in name:
        with pytest.raises(InfeasibleError, match="no contiguous parts of them fit"):
            list(contiguous_answers(alone))
    else:
        *_, answer = contiguous_answers(alone)
        assert answer.plan is not None
        assert near(answer.plan.value_ns, case.one_device_ns)


def test_the_published_cut_of_bert24() -> None:
    """Loads of the cut 1-8, 9-12, 13-16, 17-20, 21-25, 26-32, in ns."""
    problem = max_load("dnn/bert24_inference")
    ends = (0, 8, 12, 16, 20, 25, 32)
    number = {layer.name: place for place, layer in enumerate(problem.layers)}
    parts = [(0, [number[f"node{n}"] for n in range(first + 1, end + 1)]) for first, end in itertools.pairwise(ends)]
    loads = [part.load_ns for part in plan_of(problem, parts).parts]
    expected = (15_063_953, 14_396_906, 14_417_906, 14_231_906, 17_789_906, 16_524_953)
    assert all(abs(a - b) <= 2 for a, b in zip(loads, expected, strict=True))


REPLICAS = [("vgg16", "priced"), ("vgg16", "free"), ("resnet50", "priced"), ("resnet50", "free")]


@pytest.mark.parametrize(("model", "cuts"), REPLICAS)
def test_replicated_stages(model: str, cuts: str) -> None:
    case = CASES[f"pipedream/{model}-4-cuts-{cuts}"]
    *_, answer = replica_answers(replicas(model, cuts))  # type: ignore[arg-type]
    assert answer.value_ns is not None
    assert near(answer.value_ns, case.contiguous_ns)
    assert answer.limit == "optimal"


def test_a_chain_through_the_partition_programme() -> None:
    """vgg16 is a chain: stages of 1..4 machines are its options, and with many micro-batches T alone counts."""
    problem = replicas("vgg16", "free")
    times = np.array([0, *(problem.layers[layer].time_ns for layer in problem.order)]).cumsum()
    weights = np.array([0, *(problem.layers[layer].weight_bytes for layer in problem.order)]).cumsum()
    options = []
    for r in range(1, 5):
        time_ns = times[None, :] - times[:-1, None]
        summed = 4 * (r - 1) * (weights[None, :] - weights[:-1, None]) / r
        stage_ns = np.ceil(np.maximum(time_ns + summed, 0) / r - 1e-6).astype(np.int64)
        room = np.ones_like(stage_ns)
        options.append(StageOption(0, r, stage_ns, room, np.diff(times), np.zeros(len(times) - 1, np.int64)))
    chain = PartitionProblem(tuple(options), (4,), 10**6, (1, 1, 1, 1), (2**40,))
    *_, found = refine(chain, start_ns=int(times[-1]) // 4 - 1)
    assert found.cut.bottleneck_ns == CASES["pipedream/vgg16-4-cuts-free"].contiguous_ns


def test_pipeline_with_recompute() -> None:
    """The best known is reached, and now proven to a nanosecond."""
    case = CASES["piper/bert32a100-main"]
    problem = pipeline()
    *_, answer = pipeline_answers(problem)
    assert answer.value_ns is not None
    assert answer.value_ns <= case.contiguous_ns
    assert (answer.bound_ns, answer.limit) == (answer.value_ns, "optimal")
    assert sum(stage.data * stage.tensor for stage in answer.stages) <= problem.num_devices


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_less_cpu_time_than_the_authors(name: str) -> None:
    """The least of three runs, as a share of theirs."""
    spent = min(cpu_s(CASES[name]) for _ in range(3))
    assert spent < CASES[name].authors_limit_s


def cpu_s(case: Case) -> float:
    before = time.process_time()
    if case.name.startswith("dnn/"):
        list(contiguous_answers(max_load(case.name)))
    elif case.name.startswith("pipedream/"):
        _, model, _, _, cuts = case.name.replace("/", "-").split("-")
        list(replica_answers(replicas(model, cuts)))  # type: ignore[arg-type]
    else:
        list(pipeline_answers(pipeline()))
    return time.process_time() - before
