"""What a plan checks about itself (docs/plan-contract.md section 9), one rule a function; streams: ``stream_rules``.

The first broken rule is the answer; its code says which rule, its message the first bad place. Rules may rely on the
rules before them in ``_RULES``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import PydanticCustomError

from planner.plan.mesh import Mesh
from planner.plan.stream_rules import STREAM_RULES
from planner.problem.contract import MOST_LAYERS, MOST_RANKS, fault, first_repeated
from planner.problem.profile_rules import graph_fault
from planner.units import counted

if TYPE_CHECKING:
    from planner.plan.plan import Plan, Stage

__all__ = ["structure_fault"]

_Found = PydanticCustomError | None
_MOST_HELD = 2**20  # layers, summed over stages or routes


def structure_fault(plan: Plan) -> _Found:
    """The first rule of the contract that ``plan`` breaks, or None."""
    return next((found for rule in _RULES if (found := rule(plan)) is not None), None)


def _ranks_lie_in_one_group(plan: Plan) -> _Found:
    ranks = [rank for group in plan.groups for rank in group]
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        return fault("ranks", f"groups hold the ranks {_shown(sorted(ranks))}, expected 0..n-1, each in one group")
    if len(ranks) > MOST_RANKS:
        return fault("limit", f"found {counted(len(ranks), 'rank')}, expected at most {MOST_RANKS}")
    if any(not group for group in plan.groups):
        return fault("ranks", "a group without ranks")
    if plan.num_ranks != len(ranks):
        return fault("ranks", f"nodes hold {counted(plan.num_ranks, 'rank')}, groups {len(ranks)}")
    for number, group in enumerate(plan.groups):
        kinds = sorted({plan.nodes[plan.rank_nodes[rank]].device_kind for rank in group})
        if len(kinds) > 1:
            return fault("group_kinds", f"group {number} holds ranks of {kinds}, expected one device kind")
    if len(plan.streams) != len(plan.groups):
        return fault(
            "streams",
            f"found {counted(len(plan.streams), 'stream')}, expected one for each of {len(plan.groups)} groups",
        )
    return None


def _shown(numbers: list[int]) -> str:
    return f"{numbers[:16]} and {len(numbers) - 16} more" if len(numbers) > 16 else str(numbers)


def _meshes_fit(plan: Plan) -> _Found:
    for number, stage in enumerate(plan.stages):
        if stage.group >= len(plan.groups):
            return fault("mesh", f"stage {number} is on group {stage.group}, expected 0..{len(plan.groups) - 1}")
        found = _mesh_fault(number, stage, len(plan.groups[stage.group]))
        if found is not None:
            return found
    return None


def _mesh_fault(number: int, stage: Stage, num_ranks: int) -> _Found:
    mesh, spread = stage.mesh, stage.mesh.data * stage.mesh.context
    if mesh.num_ranks != num_ranks:
        return fault(
            "mesh", f"stage {number} spreads over {counted(mesh.num_ranks, 'rank')}, its group has {num_ranks}"
        )
    if spread % mesh.experts or spread % mesh.shards:
        return fault("mesh", f"stage {number}: experts and shards must divide data x context = {spread}")
    if (mesh.shards > 1) != (mesh.sharded != "nothing"):
        return fault("mesh", f"stage {number}: shards {mesh.shards} with sharded {mesh.sharded!r}")
    if (mesh.context > 1) != (mesh.exchange != "none"):
        return fault("mesh", f"stage {number}: context {mesh.context} with exchange {mesh.exchange!r}")
    if mesh.border == "sharded" and mesh.tensor == 1:
        return fault("mesh", f"stage {number}: a sharded border needs tensor > 1")
    listed = [layer for layers in stage.recompute.values() for layer in layers]
    if len(set(listed)) != len(listed) or any(layer not in stage.layers for layer in listed):
        return fault(
            "recompute", f"stage {number} recomputes {_shown(listed)}, expected layers of the stage, each once"
        )
    if any(list(layers) != sorted(layers) or not layers for layers in stage.recompute.values()):
        return fault("recompute", f"stage {number}: recompute lists ascend and are not empty")
    return None


def _graph_is_sound(plan: Plan) -> _Found:
    if plan.graph.num_layers > MOST_LAYERS:
        return fault("limit", f"found {counted(plan.graph.num_layers, 'layer')}, expected at most {MOST_LAYERS}")
    reads = [(r.layer, r.sources, r.detached) for r in plan.graph.reads]
    return graph_fault(plan.graph.num_layers, reads, plan.graph.tied)


def _routes_cover_the_layers(plan: Plan) -> _Found:
    for number, route in enumerate(plan.routes):
        next_layer = 0
        for stage_number in route:
            if stage_number >= len(plan.stages):
                return fault("routes", f"route {number} visits stage {stage_number}, which does not exist")
            stage = plan.stages[stage_number]
            if stage.first_layer != next_layer or stage.end_layer <= stage.first_layer:
                text = f"[{stage.first_layer}, {stage.end_layer})"
                return fault("layer_cover", f"route {number}: stage {stage_number} {text} follows layer {next_layer}")
            next_layer = stage.end_layer
        if next_layer != plan.graph.num_layers:
            expected = plan.graph.num_layers
            return fault("layer_cover", f"route {number} covers layers [0, {next_layer}), expected [0, {expected})")
    return None


def _nothing_idle_or_double(plan: Plan) -> _Found:
    if not plan.micro_batches:
        return fault("idle", "no micro-batches")
    lists = [
        ("stage", len(plan.stages), "route", {stage for route in plan.routes for stage in route}),
        ("group", len(plan.groups), "stage", {stage.group for stage in plan.stages}),
        ("route", len(plan.routes), "micro-batch", {batch.route for batch in plan.micro_batches}),
    ]
    for name, num_stated, user, used in lists:
        if used - set(range(num_stated)):
            return fault("idle", f"a {user} names {name} {max(used)}, expected 0..{num_stated - 1}")
        if len(used) < num_stated:
            return fault("idle", f"{name} {min(set(range(num_stated)) - used)} is idle: no {user} uses it")
    repeated = first_repeated(_stage_key(stage) for stage in plan.stages)
    if repeated is not None:
        equal = [number for number, stage in enumerate(plan.stages) if _stage_key(stage) == repeated]
        return fault("duplicate", f"stages {equal[0]} and {equal[1]} are equal")
    route = first_repeated(plan.routes)
    return None if route is None else fault("duplicate", f"two routes are equal, the second is {_second(plan, route)}")


def _stage_key(stage: Stage) -> tuple[object, ...]:
    return (stage.group, stage.first_layer, stage.end_layer, stage.mesh, frozenset(stage.recompute.items()))


def _second(plan: Plan, route: object) -> int:
    return [number for number, other in enumerate(plan.routes) if other == route][1]


def _not_too_large(plan: Plan) -> _Found:
    """Bounds the work of all rules after this one: none of them expands a count that is not bounded here."""
    reads = sum(len(r.sources) + len(r.detached) for r in plan.graph.reads)
    sizes = [
        ("layers held by stages", sum(len(stage.layers) for stage in plan.stages), _MOST_HELD),
        ("layers and reads on routes", len(plan.routes) * (plan.graph.num_layers + reads), _MOST_HELD),
    ]
    for name, found, most in sizes:
        if found > most:
            return fault("limit", f"found {found} {name}, expected at most {most}")
    return None


class _Strictest(NamedTuple):
    """Of a route: the stage that spreads samples most, and the one that needs the longest slices."""

    data: int
    data_stage: int
    tokens: int
    tokens_stage: int


def _strictest(plan: Plan, route: tuple[int, ...]) -> _Strictest:
    data, data_stage = max((plan.stages[stage].mesh.data, -stage) for stage in route)
    tokens, tokens_stage = max((_least_tokens(plan.stages[stage].mesh), -stage) for stage in route)
    return _Strictest(data, -data_stage, tokens, -tokens_stage)


def _least_tokens(mesh: Mesh) -> int:
    """Tokens of a slice that give every rank one token of each piece."""
    pieces = mesh.context * (2 if mesh.exchange == "zigzag" else 1)
    return pieces * (mesh.tensor if mesh.border == "sharded" else 1)


def _micro_batches_fit(plan: Plan) -> _Found:
    strictest = [_strictest(plan, route) for route in plan.routes]
    for number, batch in enumerate(plan.micro_batches):
        if batch.cuts[0] != 0 or any(a >= b for a, b in pairwise(batch.cuts)):
            return fault("micro_batch", f"micro-batch {number} has cuts {batch.cuts[:8]}, expected ascending from 0")
        needs = strictest[batch.route]
        if batch.samples < needs.data:
            text = f"micro-batch {number} has {counted(batch.samples, 'sample')}"
            return fault("micro_batch", f"{text}, stage {needs.data_stage} spreads them over {needs.data}")
        shortest = min(b - a for a, b in pairwise(batch.cuts))
        if shortest < needs.tokens:
            text = f"micro-batch {number} has a slice of {shortest} tokens"
            return fault("micro_batch", f"{text}, stage {needs.tokens_stage} needs {needs.tokens}")
    return None


def _copies_on_a_group_agree(plan: Plan) -> _Found:
    first_holder: dict[tuple[int, int], int] = {}
    for number, stage in enumerate(plan.stages):
        for layer in stage.layers:
            other = first_holder.setdefault((stage.group, plan.graph.weight_of[layer]), number)
            if _state_cut(plan.stages[other]) != _state_cut(stage):
                text = f"stages {other} and {number} hold a weight of layer {layer} on group {stage.group}"
                return fault("copies", f"{text}, but cut it in different ways")
    return None


def _state_cut(stage: Stage) -> tuple[object, ...]:
    mesh = stage.mesh
    return (mesh.tensor, mesh.border, mesh.experts, mesh.shards, mesh.sharded)


def _prediction_fits(plan: Plan) -> _Found:
    prediction = plan.prediction
    if prediction is None:
        return None
    if not len(prediction.peak_bytes) == len(prediction.memory_limit_bytes) == len(plan.groups):
        return fault("prediction", f"expected one entry for each of {counted(len(plan.groups), 'group')}")
    if prediction.bound_ns > prediction.step_ns:
        return fault("prediction", f"bound {prediction.bound_ns} ns is above the step {prediction.step_ns} ns")
    return None


_RULES: tuple[Callable[[Plan], _Found], ...] = (
    _ranks_lie_in_one_group,
    _meshes_fit,
    _graph_is_sound,
    _routes_cover_the_layers,
    _nothing_idle_or_double,
    _not_too_large,
    _micro_batches_fit,
    _copies_on_a_group_agree,
    *STREAM_RULES,
    _prediction_fits,
)
