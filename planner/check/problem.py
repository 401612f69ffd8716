"""What a plan must obey on its problem: the same model, known degrees, enough memory, and a truthful prediction."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.check.structure import check_plan
from planner.check.verdict import Fit, Verdict
from planner.costs.price import price_plan
from planner.costs.prices import PlanPrices
from planner.errors import Fault, PriceError
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from planner.units import bytes_text, counted

__all__ = ["check_against", "work_fault"]

_Found = Fault | None


def check_against(plan: Plan, problem: Problem) -> Verdict:
    """``check_plan``, then the problem's rules in turn; the first fault counts."""
    verdict = check_plan(plan)
    fault = verdict.fault or next((f for rule in _RULES if (f := rule(plan, problem)) is not None), None)
    if fault is not None:
        return replace(verdict, fault=fault)
    try:
        prices = price_plan(plan, problem)
    except PriceError as error:
        return replace(verdict, fault=error.faults[0])
    timeline = simulate(plan, prices)
    priced = _Priced(plan, prices, timeline)
    fault = next((f for rule in _PRICED_RULES if (f := rule(priced)) is not None), None)
    return replace(verdict, fault=fault, fit=priced.fit)


def work_fault(plan: Plan, problem: Problem) -> Fault | None:
    """Where a plan does other work than the workload asks for; steps of different work compare nothing."""
    return _has_the_precision(plan, problem) or _does_the_work(plan, problem)


@dataclass(frozen=True)
class _Priced:
    """A plan with its prices and its simulated step."""

    plan: Plan
    prices: PlanPrices
    timeline: Timeline

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        assert self.timeline.peak_bytes is not None
        return self.timeline.peak_bytes

    @property
    def fit(self) -> Fit:
        timeline, prices = self.timeline, self.prices
        return Fit(timeline.step_ns, timeline.bubble, self.peak_bytes, prices.limit_bytes, prices.costs)


def _answers_this_problem(plan: Plan, problem: Problem) -> _Found:
    if plan.problem != problem.digest:
        text = f"the plan answers problem {plan.problem[:12]}, expected {problem.digest[:12]}"
        return Fault("problem_mismatch", "/problem", text)
    return None


def _has_the_precision(plan: Plan, problem: Problem) -> _Found:
    if plan.precision != problem.workload.precision:
        text = f"the plan computes in {plan.precision}, the workload asks for {problem.workload.precision}"
        return Fault("precision_mismatch", "/precision", text)
    return None


def _is_this_model(plan: Plan, problem: Problem) -> _Found:
    model = problem.profiles[0].model
    if plan.graph.model != model.fingerprint:
        text = f"the plan is for model {plan.graph.model[:12]}, the profiles for {model.fingerprint[:12]}"
        return Fault("model_mismatch", "/graph/model", text)
    if plan.graph.num_layers != problem.num_layers:
        text = f"the plan has {counted(plan.graph.num_layers, 'layer')}, the profiles {problem.num_layers}"
        return Fault("model_mismatch", "/graph/num_layers", text)
    if plan.graph.reads != model.reads:
        return Fault("model_mismatch", "/graph/reads", "the plan's layers read other layers than the profiles say")
    return _tied_fault(plan, tuple(sorted(tied.layers for tied in model.tied)))


def _tied_fault(plan: Plan, tied: tuple[tuple[int, ...], ...]) -> _Found:
    found = tuple(sorted(plan.graph.tied))
    if found == tied:
        return None
    lost = [layers for layers in tied if layers not in found]
    if lost:
        text = f"layers {list(lost[0])} share weights, the plan does not tie them: their copies would part"
        return Fault("tied_split", "/graph/tied", text)
    return Fault("model_mismatch", "/graph/tied", "the plan ties layers that share no weights")


def _nodes_exist(plan: Plan, problem: Problem) -> _Found:
    groups = {group.name: group for group in problem.cluster.node_groups}
    used = dict.fromkeys(groups, 0)
    for number, node in enumerate(plan.nodes):
        group = groups.get(node.node_group)
        if group is None or group.device_kind != node.device_kind:
            text = f"node {number} is of {node.node_group!r} with {node.device_kind!r}, which the cluster does not have"
            return Fault("unknown_node", f"/nodes/{number}", text)
        used[group.name] += 1
        if node.num_ranks > group.ranks_per_node or used[group.name] > group.num_nodes:
            text = f"node group {group.name!r} has {counted(group.num_nodes, 'node')} of {group.ranks_per_node} ranks"
            return Fault("too_many_ranks", f"/nodes/{number}", f"node {number} is one too many or too large: {text}")
    return None


def _does_the_work(plan: Plan, problem: Problem) -> _Found:
    samples = sum(batch.samples for batch in plan.micro_batches)
    if samples != problem.workload.global_batch_size:
        text = f"micro-batches hold {counted(samples, 'sample')}, expected {problem.workload.global_batch_size}"
        return Fault("global_batch", "/micro_batches", text)
    for number, batch in enumerate(plan.micro_batches):
        if batch.cuts[-1] != problem.workload.sequence_length:
            text = f"micro-batch {number} has {batch.cuts[-1]} tokens, expected {problem.workload.sequence_length}"
            return Fault("sequence_length", f"/micro_batches/{number}/cuts", text)
    return None


def _trains_what_has_weights(plan: Plan, problem: Problem) -> _Found:
    """Weight gradients exactly where the profile has trained weights, or a copy of them; a step without any is none."""
    layers = problem.profiles[0].layers
    updated = {i.stage for stream in plan.instructions for i in stream if i.operation in ("B", "W")}
    for number, stage in enumerate(plan.stages):
        trained = [layer for layer in stage.layers if layers[layer].num_trained_params]
        if trained and number not in updated:
            text = f"stage {number} holds trained weights of layer {trained[0]}, but no visit computes their gradient"
            return Fault("untrained", f"/stages/{number}", text)
    if updated and not any(i.operation == "U" for stream in plan.instructions for i in stream):
        return Fault("no_update", "/streams", "gradients are computed, but no stage updates its weights")
    return None


def _degrees_are_known(plan: Plan, problem: Problem) -> _Found:
    for number, stage in enumerate(plan.stages):
        profile = problem.profile_of(plan.group_kind(stage.group))
        for layer in stage.layers:
            fault = _degree_fault(plan, number, layer=layer, profile=profile)
            if fault is not None:
                return fault
    return None


def _degree_fault(plan: Plan, number: int, *, layer: int, profile: ModelProfile) -> _Found:
    mesh = plan.stages[number].mesh
    asked = (mesh.tensor, mesh.context, mesh.experts)
    if any((point.tensor, point.context, point.experts) == asked for point in profile.points_of(layer)):
        return None
    text = f"stage {number} asks for tensor {asked[0]}, context {asked[1]}, experts {asked[2]}"
    name, kind = profile.layers[layer].id, profile.device.kind
    return Fault("unknown_degree", f"/stages/{number}/mesh", f"{text}; layer {name!r} has no point of it on {kind!r}")


def _slices_are_causal(plan: Plan, problem: Problem) -> _Found:
    layers = problem.profiles[0].layers
    loose = next((number for number, layer in enumerate(layers) if not layer.causal), None)
    sliced = next((number for number, batch in enumerate(plan.micro_batches) if batch.num_slices > 1), None)
    if loose is None or sliced is None:
        return None
    text = f"micro-batch {sliced} is cut into slices, but layer {loose} ({layers[loose].id!r}) is not causal"
    return Fault("not_causal", f"/micro_batches/{sliced}/cuts", text)


_RULES: tuple[Callable[[Plan, Problem], _Found], ...] = (
    _answers_this_problem,
    _has_the_precision,
    _is_this_model,
    _nodes_exist,
    _does_the_work,
    _trains_what_has_weights,
    _degrees_are_known,
    _slices_are_causal,
)


def _fits_into_memory(priced: _Priced) -> _Found:
    for group, (need, have) in enumerate(zip(priced.peak_bytes, priced.prices.limit_bytes, strict=True)):
        if need > have:
            kind, short = priced.plan.group_kind(group), bytes_text(need - have)
            text = f"group {group} on {kind!r} needs {bytes_text(need)}, has {bytes_text(have)}: {short} short"
            return Fault("memory", f"/groups/{group}", text)
    return None


def _prediction_is_true(priced: _Priced) -> _Found:
    prediction = priced.plan.prediction
    if prediction is None:
        return None
    simulated: dict[str, object] = {
        "step_ns": priced.timeline.step_ns,
        "peak_bytes": priced.peak_bytes,
        "memory_limit_bytes": priced.prices.limit_bytes,
    }
    for name, found in simulated.items():
        stated = getattr(prediction, name)
        if stated != found:
            return Fault("prediction", f"/prediction/{name}", f"the plan states {name} {stated}, simulated {found}")
    if abs(prediction.bubble - priced.timeline.bubble) > 1e-4:
        text = f"the plan states bubble {prediction.bubble:.4f}, simulated {priced.timeline.bubble:.4f}"
        return Fault("prediction", "/prediction/bubble", text)
    return None


_PRICED_RULES: tuple[Callable[[_Priced], _Found], ...] = (_fits_into_memory, _prediction_is_true)
