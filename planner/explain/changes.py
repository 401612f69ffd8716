"""Small changes of a plan and of its conditions, each as a sentence and the changed document.

Plans near a plan: one layer moved over a border, other streams on the same stages, half or twice as many micro-batches,
recompute on or off. Conditions: a link twice as fast, a device kind a tenth faster.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from planner.errors import PlanError
from planner.plan.mesh import cut
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.cluster import Cluster, Link
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.schedules.build import PlanParts, build_plan
from planner.units import counted

__all__ = ["ChangedPlan", "ChangedProblem", "conditions", "plans_near"]

_FAMILIES = ("gpipe", "1f1b", "interleaved")
_MOST_PLANS = 64  # each is priced and simulated
_MOST_INSTRUCTIONS = 2_000_000  # of all of them together


class ChangedPlan(NamedTuple):
    """A plan near another one."""

    change: str
    plan: Plan


class ChangedProblem(NamedTuple):
    """The same problem with one fact changed."""

    change: str
    problem: Problem


def plans_near(plan: Plan, problem: Problem) -> Iterator[ChangedPlan]:
    """Legal plans that differ in one respect; fewer for longer plans, without prediction and provenance."""
    seen, number = {plan.digest}, 0
    most = min(_MOST_PLANS, _MOST_INSTRUCTIONS // sum(map(len, plan.instructions)))
    for changed in (*_moved_layers(plan), *_recomputed(plan), *_rebuilt(plan, problem)):
        if changed.plan.digest not in seen and number < most:
            seen.add(changed.plan.digest)
            number += 1
            yield changed


def _with_stages(plan: Plan, stages: tuple[Stage, ...]) -> Plan | None:
    """None where the changed plan breaks a rule, for example a tied weight on two stages that may not share it."""
    bare = plan.model_dump(by_alias=True, exclude={"prediction", "provenance", "stages"})
    try:
        return Plan.model_validate({**bare, "stages": stages})
    except ValidationError:
        return None


def _moved_layers(plan: Plan) -> Iterator[ChangedPlan]:
    """One layer over each border between stages; all stages that begin or end there move together."""
    borders = sorted({stage.first_layer for stage in plan.stages} - {0})
    for border in borders:
        for step in (-1, 1):
            stages = tuple(_shifted(stage, border, border + step) for stage in plan.stages)
            if any(stage.first_layer >= stage.end_layer for stage in stages):
                continue
            changed = _with_stages(plan, stages)
            if changed is not None:
                layer = border - 1 if step < 0 else border
                before = [n for n, stage in enumerate(plan.stages) if stage.end_layer == border]
                after = [n for n, stage in enumerate(plan.stages) if stage.first_layer == border]
                source, target = (before, after) if step < 0 else (after, before)
                yield ChangedPlan(f"layer {layer} moves from {_stages(source)} to {_stages(target)}", changed)


def _stages(numbers: list[int]) -> str:
    return f"stage{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _shifted(stage: Stage, border: int, moved: int) -> Stage:
    """A layer that joins a stage which recomputes all its layers is recomputed too."""
    first = moved if stage.first_layer == border else stage.first_layer
    end = moved if stage.end_layer == border else stage.end_layer
    recompute = {
        kind: tuple(range(first, end)) if len(layers) == len(stage.layers) else _inside(layers, first, end)
        for kind, layers in stage.recompute.items()
    }
    return stage.model_copy(update={"first_layer": first, "end_layer": end, "recompute": recompute})


def _inside(layers: tuple[int, ...], first: int, end: int) -> tuple[int, ...]:
    return tuple(layer for layer in layers if first <= layer < end)


def _recomputed(plan: Plan) -> Iterator[ChangedPlan]:
    """Full recompute of one stage, or none; streams with an R are left alone, they say when."""
    if any("R" in text for text in plan.visit_operations.values()):
        return
    for number, stage in enumerate(plan.stages):
        recompute = {} if stage.recomputes else {"full": tuple(stage.layers)}
        stages = list(plan.stages)
        stages[number] = stage.model_copy(update={"recompute": recompute})
        changed = _with_stages(plan, tuple(stages))
        if changed is not None:
            words = "keeps everything" if stage.recomputes else "recomputes all its layers"
            yield ChangedPlan(f"stage {number} {words}", changed)


def _rebuilt(plan: Plan, problem: Problem) -> Iterator[ChangedPlan]:
    """Other streams on the same stages, and other micro-batches with the streams of the plan's family."""
    found = plan.provenance.family if plan.provenance is not None else None
    for family in _FAMILIES:
        if family != found and (changed := _built(plan, problem, plan.micro_batches, family)) is not None:
            yield ChangedPlan(f"the order of {family}", changed)
    if found is None or len(plan.routes) != 1:
        return
    number = len(plan.micro_batches)
    for asked in (number // 2, number * 2):
        batches = _micro_batches(plan, asked)
        if batches and (changed := _built(plan, problem, batches, found)) is not None:
            yield ChangedPlan(f"{counted(asked, 'micro-batch')} instead of {number}", changed)


def _micro_batches(plan: Plan, number: int) -> tuple[MicroBatch, ...]:
    samples = sum(batch.samples for batch in plan.micro_batches)
    cuts = plan.micro_batches[0].cuts
    fewest = max(stage.mesh.data for stage in plan.stages)
    if not 1 <= number <= samples // fewest:
        return ()
    return tuple(MicroBatch(route=0, samples=cut(samples, number, i).size, cuts=cuts) for i in range(number))


def _built(plan: Plan, problem: Problem, batches: tuple[MicroBatch, ...], family: str) -> Plan | None:
    layers = problem.profiles[0].layers
    parts = PlanParts(
        problem=plan.problem,
        precision=plan.precision,
        graph=plan.graph,
        nodes=plan.nodes,
        groups=plan.groups,
        stages=plan.stages,
        routes=plan.routes,
        micro_batches=batches,
        untrained_layers=frozenset(n for n, layer in enumerate(layers) if not layer.num_trained_params),
    )
    try:
        return build_plan(parts, family)
    except (PlanError, ValidationError):  # the family wants other stages
        return None


def conditions(problem: Problem) -> Iterator[ChangedProblem]:
    """Each link twice as fast, each device kind a tenth faster."""
    for number, link in enumerate(problem.cluster.links):
        if link.usable:
            ends = link.source if link.source == link.target else f"{link.source} to {link.target}"
            links = list(problem.cluster.links)
            links[number] = _faster_link(link)
            cluster = problem.cluster.model_copy(update={"links": tuple(links)})
            yield ChangedProblem(f"the {link.tier} link of {ends} is twice as fast", _with_cluster(problem, cluster))
    for number, profile in enumerate(problem.profiles):
        profiles = list(problem.profiles)
        profiles[number] = _faster_profile(profile)
        words = f"{profile.device.kind} computes 10 % faster"
        yield ChangedProblem(words, Problem(tuple(profiles), problem.cluster, problem.workload))


def _with_cluster(problem: Problem, cluster: Cluster) -> Problem:
    return Problem(problem.profiles, cluster, problem.workload)


def _faster_link(link: Link) -> Link:
    table = tuple(point.model_copy(update={"transfer_ns": point.transfer_ns // 2}) for point in link.table)
    changes = {
        "latency_ns": link.latency_ns // 2,
        "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * 2,
        "table": table,
    }
    return link.model_copy(update=changes)


def _faster_profile(profile: ModelProfile) -> ModelProfile:
    """Layers take 1 / 1.1 of their time; overheads stay."""
    factor = profile.overheads.load_factor / 1.1
    return profile.model_copy(update={"overheads": profile.overheads.model_copy(update={"load_factor": factor})})
