"""Verdicts on a plan against its problem: one plan that fits, and one case for each rule."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.check.problem import check_against
from planner.costs.price import price_plan
from planner.plan.graph import LayerGraph, Node
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Prediction, Stage
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.schedules.build import PlanParts, build_plan
from planner.simulate.simulate import simulate
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload

TIED = make_problem(profiles=[make_profile(tied=[(0, 3)])])
PLAIN = make_problem()


def parts_of(problem: Problem, /, **changes: Any) -> PlanParts:
    """Two stages of two layers on two ranks, 4 micro-batches of 2 samples."""
    model = problem.profiles[0].model
    tied = tuple(found.layers for found in model.tied)
    fields: dict[str, Any] = {
        "problem": problem.digest,
        "precision": problem.workload.precision,
        "graph": LayerGraph(model=model.fingerprint, num_layers=problem.num_layers, reads=model.reads, tied=tied),
        "nodes": (Node(node_group="cpu-a", device_kind="cpu-a", num_ranks=2),),
        "groups": ((0,), (1,)),
        "stages": (Stage(group=0, first_layer=0, end_layer=2), Stage(group=1, first_layer=2, end_layer=4)),
        "routes": ((0, 1),),
        "micro_batches": (MicroBatch(route=0, samples=2, cuts=(0, 32)),) * 4,
    }
    return PlanParts(**(fields | changes))


def plan_of(problem: Problem, /, **changes: Any) -> Plan:
    return build_plan(parts_of(problem, **changes), "1f1b")


def predicted(plan: Plan, problem: Problem, **changes: Any) -> Plan:
    """The plan with a true prediction, but for ``changes``."""
    prices = price_plan(plan, problem)
    timeline = simulate(plan, prices)
    fields: dict[str, Any] = {
        "step_ns": timeline.step_ns,
        "bound_ns": timeline.step_ns // 2,
        "bound_model": "any_schedule",
        "bubble": timeline.bubble,
        "peak_bytes": timeline.peak_bytes,
        "memory_limit_bytes": prices.limit_bytes,
        "costs": prices.costs,
    }
    return plan.model_copy(update={"prediction": Prediction(**(fields | changes))})


def test_a_plan_that_fits() -> None:
    """F 2 x 1 ms x 2 samples a stage, B twice that, 4 micro-batches: (4 + 1) x 12 ms and the messages and sums."""
    plan = predicted(plan_of(PLAIN), PLAIN)
    verdict = check_against(plan, PLAIN)
    assert verdict.fault is None
    assert verdict.fit is not None
    assert plan.prediction is not None
    assert verdict.fit.step_ns == plan.prediction.step_ns
    assert 60_000_000 < verdict.fit.step_ns < 60_100_000
    assert verdict.fit.peak_bytes == plan.prediction.peak_bytes
    assert verdict.fit.costs == "measured"


def test_a_plan_without_prediction_fits_too() -> None:
    assert check_against(plan_of(PLAIN), PLAIN).ok


GRAPH = parts_of(PLAIN).graph
RULES: list[tuple[str, Problem, dict[str, Any], str]] = [
    ("problem_mismatch", PLAIN, {"problem": "0" * 64}, "/problem"),
    ("precision_mismatch", PLAIN, {"precision": "bf16"}, "/precision"),
    ("model_mismatch", PLAIN, {"graph": GRAPH.model_copy(update={"model": "0" * 64})}, "/graph/model"),
    ("model_mismatch", PLAIN, {"graph": GRAPH.model_copy(update={"tied": ((1, 2),)})}, "/graph/tied"),
    ("tied_split", TIED, {"graph": parts_of(TIED).graph.model_copy(update={"tied": ()})}, "/graph/tied"),
    ("unknown_node", PLAIN, {"nodes": (Node(node_group="other", device_kind="cpu-a", num_ranks=2),)}, "/nodes/0"),
    ("unknown_node", PLAIN, {"nodes": (Node(node_group="cpu-a", device_kind="gpu", num_ranks=2),)}, "/nodes/0"),
    ("too_many_ranks", PLAIN, {"nodes": (Node(node_group="cpu-a", device_kind="cpu-a", num_ranks=1),) * 2}, "/nodes/1"),
    ("global_batch", PLAIN, {"micro_batches": parts_of(PLAIN).micro_batches[:3]}, "/micro_batches"),
    (
        "sequence_length",
        PLAIN,
        {"micro_batches": (MicroBatch(route=0, samples=2, cuts=(0, 16)),) * 4},
        "/micro_batches/0/cuts",
    ),
    (
        "unknown_degree",
        PLAIN,
        {
            "groups": ((0, 1),),
            "stages": (Stage(group=0, first_layer=0, end_layer=4, mesh=Mesh(tensor=2)),),
            "routes": ((0,),),
        },
        "/stages/0/mesh",
    ),
]


@pytest.mark.parametrize(("code", "problem", "changes", "pointer"), RULES)
def test_each_rule_has_its_code_and_place(code: str, problem: Problem, changes: dict[str, Any], pointer: str) -> None:
    fault = check_against(plan_of(problem, **changes), problem).fault
    assert fault is not None
    assert (fault.code, fault.pointer) == (code, pointer)


def test_the_tied_plan_itself_fits() -> None:
    assert check_against(plan_of(TIED), TIED).fault is None


def test_too_many_nodes_of_a_group() -> None:
    problem = make_problem(cluster=make_cluster(("cpu-a", 1, 4)))
    nodes = (Node(node_group="cpu-a", device_kind="cpu-a", num_ranks=1),) * 2
    fault = check_against(plan_of(problem, nodes=nodes), problem).fault
    assert fault is not None
    assert (fault.code, fault.pointer) == ("too_many_ranks", "/nodes/1")


def test_slices_need_causal_layers() -> None:
    """The same plan of two slices fits a causal model, and is refused for one that is not."""

    def judge(causal: bool) -> Any:
        problem = make_problem(profiles=[make_profile(causal=causal)])
        batches = (MicroBatch(route=0, samples=2, cuts=(0, 16, 32)),) * 4
        return check_against(plan_of(problem, micro_batches=batches), problem).fault

    assert judge(True) is None
    fault = judge(False)
    assert (fault.code, fault.pointer) == ("not_causal", "/micro_batches/0/cuts")
    assert "layers.0" in fault.message


def test_trained_weights_must_be_trained_and_updated() -> None:
    frozen = check_against(plan_of(PLAIN, untrained_layers=frozenset({0, 1})), PLAIN).fault
    assert frozen is not None
    assert (frozen.code, frozen.pointer) == ("untrained", "/stages/0")
    plan = plan_of(PLAIN)
    streams = tuple(" ".join(w for w in s.split(" ") if not set(w) & {"G", "U"}) for s in plan.streams)
    kept = check_against(plan.model_copy(update={"streams": streams}), PLAIN).fault
    assert kept is not None
    assert kept.code == "no_update"


def test_a_layer_without_trained_weights_may_stay_untrained() -> None:
    problem = make_problem(profiles=[make_profile(num_params=[0, 0, 1000, 1000])])
    assert check_against(plan_of(problem, untrained_layers=frozenset({0, 1})), problem).fault is None


def shrunk(profile: ModelProfile) -> Problem:
    """The same problem with devices that hold 40 kB."""
    return make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=40_000))


def test_memory_that_does_not_fit_says_how_much_is_short() -> None:
    """State: 2 layers x 1000 parameters x 16 bytes = 32 kB; two kept micro-batches of 2 x (4 + 1) kB a layer on top."""
    problem = shrunk(make_profile())
    verdict = check_against(plan_of(problem), problem)
    assert verdict.fault is not None
    assert (verdict.fault.code, verdict.fault.pointer) == ("memory", "/groups/0")
    assert verdict.fit is not None
    short = verdict.fit.peak_bytes[0] - 40_000
    assert short > 0
    assert f"has 40 kB: {short / 1000:.4g} kB short" in verdict.fault.message


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (lambda p: {"step_ns": p.step_ns + 1}, "/prediction/step_ns"),
        (lambda p: {"peak_bytes": (p.peak_bytes[0] - 1, p.peak_bytes[1])}, "/prediction/peak_bytes"),
        (lambda p: {"memory_limit_bytes": (1, 1)}, "/prediction/memory_limit_bytes"),
        (lambda p: {"bubble": p.bubble + 0.01}, "/prediction/bubble"),
    ],
)
def test_a_prediction_that_is_not_true_is_refused(change: Callable[[Prediction], dict[str, Any]], pointer: str) -> None:
    plan = predicted(plan_of(PLAIN), PLAIN)
    assert plan.prediction is not None
    untrue = predicted(plan, PLAIN, **change(plan.prediction))
    fault = check_against(untrue, PLAIN).fault
    assert fault is not None
    assert (fault.code, fault.pointer) == ("prediction", pointer)


def test_a_price_that_the_profile_cannot_give_is_a_fault() -> None:
    """Points reach 8 samples; one micro-batch of 64 is more than twice outside."""
    problem = make_problem(workload=make_workload(global_batch_size=64))
    plan = plan_of(problem, micro_batches=(MicroBatch(route=0, samples=64, cuts=(0, 32)),))
    fault = check_against(plan, problem).fault
    assert fault is not None
    assert fault.code == "no_price"


def test_a_plan_that_is_broken_by_itself_is_told_first() -> None:
    plan = plan_of(PLAIN).model_copy(update={"problem": "0" * 64})
    streams = ("0B0 " + plan.streams[0].replace("0B0 ", "", 1), plan.streams[1])
    fault = check_against(plan.model_copy(update={"streams": streams}), PLAIN).fault
    assert fault is not None
    assert fault.code == "deadlock"
