"""A whole plan from its parts and a schedule family; nothing trusts it: the plan checks itself, `check` replays it.

Every route lies on its own groups (replicas) and gets its own streams from the family, which is any of the registry
that has one route; then each visit gets the backward that its stage needs, and each trained stage its G right after its
last backward and its U at the end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import PlanError
from planner.plan.graph import LayerGraph, Node
from planner.plan.instruction import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    VISIT_OPERATIONS,
    Instruction,
    Operation,
    stream_text,
)
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.workload import Precision
from planner.schedules.families import FAMILIES, family_lists
from planner.schedules.family import FamilyShape
from planner.schedules.gpipe import gpipe
from planner.schedules.interleaved import interleaved
from planner.schedules.one_f_one_b import one_f_one_b
from planner.schedules.shape import Shape, Streams
from planner.schedules.updates import with_updates
from planner.units import counted

__all__ = ["PlanParts", "build_plan"]

# with slices; everything else comes from the registry
_FAMILIES: Mapping[str, Callable[[Shape], Streams]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
}


@dataclass(frozen=True)
class PlanParts:
    """Everything of a plan but its streams. ``untrained_layers``: without weights, or frozen."""

    problem: str
    precision: Precision
    graph: LayerGraph
    nodes: tuple[Node, ...]
    groups: tuple[tuple[int, ...], ...]
    stages: tuple[Stage, ...]
    routes: tuple[tuple[int, ...], ...]
    micro_batches: tuple[MicroBatch, ...]
    untrained_layers: frozenset[int] = frozenset()


def build_plan(parts: PlanParts, family: str, *, forwards_first: Sequence[int] | None = None) -> Plan:
    """The plan of a family. ``forwards_first``: warm-up counts by group along each route, for 1F1B only.

    Raises ``PlanError`` where the family cannot serve the parts (several routes on one group, stages on other groups
    than the family wants, ...) and pydantic's ``ValidationError`` where the parts break the contract.
    """
    if forwards_first is not None and family != "1f1b":
        raise PlanError(f"warm-up counts given for {family}, expected 1f1b", code="warm_up", pointer="/streams")
    _check_own_groups(parts)
    backward_of = _backwards(parts)
    streams: dict[int, list[Instruction]] = {}
    for route, stages in enumerate(parts.routes):
        groups = list(dict.fromkeys(parts.stages[stage].group for stage in stages))
        made = _streams(parts, route, family, groups=groups, forwards_first=forwards_first)
        for group, stream in zip(groups, made, strict=True):
            streams[group] = with_updates(_named(parts, route, stream, backward_of))
    return _plan(parts, [streams[group] for group in range(len(parts.groups))])


def _plan(parts: PlanParts, streams: Iterable[list[Instruction]]) -> Plan:
    slices = [batch.num_slices for batch in parts.micro_batches]
    return Plan(
        schema_version="plan/1",
        problem=parts.problem,
        precision=parts.precision,
        graph=parts.graph,
        nodes=parts.nodes,
        groups=parts.groups,
        stages=parts.stages,
        routes=parts.routes,
        micro_batches=parts.micro_batches,
        streams=tuple(stream_text(stream, slices) for stream in streams),
    )


def _check_own_groups(parts: PlanParts) -> None:
    owner: dict[int, int] = {}
    for number, route in enumerate(parts.routes):
        for stage in route:
            group = parts.stages[stage].group
            if owner.setdefault(group, number) != number:
                message = f"routes {owner[group]} and {number} share group {group}, expected groups of their own"
                raise PlanError(message, code="family", pointer=f"/routes/{number}")


def _streams(
    parts: PlanParts, route: int, family: str, *, groups: list[int], forwards_first: Sequence[int] | None
) -> Streams:
    """The family's own streams for a route on ``groups``, in the order of their first use."""
    num_stages, slices = len(parts.routes[route]), _slices(parts, route)
    if family in _FAMILIES:
        _check_placement(parts, route, [groups[place % len(groups)] for place in range(num_stages)])
        shape = Shape(len(groups), num_stages, slices)
        if forwards_first is None:
            return _FAMILIES[family](shape)
        return one_f_one_b(shape, forwards_first=forwards_first)
    if max(slices) > 1:
        raise PlanError(
            f"found micro-batches of {counted(max(slices), 'slice')}, expected 1 for {family}", code="family"
        )
    options = FAMILIES[family].options if family in FAMILIES else frozenset[str]()
    asked = FamilyShape(
        len(groups),
        len(slices),
        num_stages=num_stages if "num_stages" in options else None,
        num_slices=1 if "num_slices" in options else None,
    )
    lists = family_lists(family, asked)
    if len(lists.routes) > 1 or len(lists.stages) != num_stages:
        found = f"{counted(len(lists.routes), 'route')} and {counted(len(lists.stages), 'stage')}"
        message = f"{family} has {found} on {counted(len(groups), 'group')}, expected 1 route, {num_stages} stages"
        raise PlanError(message, code="family", pointer=f"/routes/{route}")
    _check_placement(parts, route, [groups[stage.group] for stage in lists.stages])
    return lists.streams


def _check_placement(parts: PlanParts, route: int, expected: list[int]) -> None:
    """Each stage of the route lies on the group that the family wants."""
    for place, (stage, group) in enumerate(zip(parts.routes[route], expected, strict=True)):
        found = parts.stages[stage].group
        if found != group:
            message = f"stage {stage} lies on group {found}, expected group {group}: the placement of the family"
            raise PlanError(message, code="family", pointer=f"/routes/{route}/{place}")


def _batches(parts: PlanParts, route: int) -> list[int]:
    return [number for number, batch in enumerate(parts.micro_batches) if batch.route == route]


def _slices(parts: PlanParts, route: int) -> tuple[int, ...]:
    found = tuple(parts.micro_batches[number].num_slices for number in _batches(parts, route))
    if not found:
        raise PlanError(f"route {route} has no micro-batch", code="idle", pointer=f"/routes/{route}")
    return found


def _named(
    parts: PlanParts, route: int, stream: Iterable[Instruction], backward_of: Mapping[int, Operation]
) -> list[Instruction]:
    """A family's numbers -> the plan's stages and micro-batches; backwards -> what the stage needs of them."""
    stages, batches = parts.routes[route], _batches(parts, route)
    found = []
    for operation, place, number, part in stream:
        needed = backward_of.get(stages[place])
        if operation == BACKWARD and needed == BACKWARD_INPUT:
            operation = BACKWARD_INPUT
        if operation in (FORWARD, needed) or needed == BACKWARD:
            named = batches[number] if operation in VISIT_OPERATIONS else number
            found.append(Instruction(operation, stages[place], named, part))
    return found


def _backwards(parts: PlanParts) -> dict[int, Operation]:
    """Stage -> B where it trains a weight, I where it only hands gradient back; left out where it goes forward only."""
    trained = _trained_stages(parts)
    found: dict[int, Operation] = dict.fromkeys(trained, BACKWARD)
    for route in parts.routes:
        holder = {layer: stage for stage in route for layer in parts.stages[stage].layers}
        for layer, reads in enumerate(parts.graph.layer_reads):
            if any(holder[source] in found and holder[source] != holder[layer] for source in reads.sources):
                found.setdefault(holder[layer], BACKWARD_INPUT)
    return found


def _trained_stages(parts: PlanParts) -> list[int]:
    """Stages that hold a trained layer, or a layer that another such stage holds: holders of a weight agree."""
    holders: dict[int, set[int]] = defaultdict(set)
    for number, stage in enumerate(parts.stages):
        for layer in stage.layers:
            holders[parts.graph.weight_of[layer]].add(number)
    trained = {stage for layer in _trained_weights(parts) for stage in holders[layer]}
    grown = True
    while grown:
        more = {stage for stages in holders.values() if stages & trained for stage in stages} - trained
        trained |= more
        grown = bool(more)
    return sorted(trained)


def _trained_weights(parts: PlanParts) -> set[int]:
    weights = parts.graph.weight_of
    return {weights[layer] for layer in range(parts.graph.num_layers) if layer not in parts.untrained_layers}
