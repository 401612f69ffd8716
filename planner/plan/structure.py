"""What a plan checks about itself (docs/plan-contract.md section 9), one rule a function.

The first broken rule is the answer; its code says which rule, its message the first bad place. Rules may rely on the
rules before them in ``_RULES``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from planner.plan.instruction import BACKWARDS, VISIT_OPERATIONS, Instruction, Visit, parse_instruction
from planner.problem.contract import fault, first_repeated
from planner.problem.profile_rules import graph_fault

if TYPE_CHECKING:
    from planner.plan.plan import MicroBatch, Plan, Stage

__all__ = ["MOST_INSTRUCTIONS", "structure_fault"]

MOST_INSTRUCTIONS = 2_000_000
_Found = PydanticCustomError | None
_LEGAL_VISITS = frozenset({"", "B", "IW", "I", "W"})


def structure_fault(plan: Plan) -> _Found:
    """The first rule of the contract that ``plan`` breaks, or None."""
    return next((found for rule in _RULES if (found := rule(plan)) is not None), None)


def _ranks_lie_in_one_group(plan: Plan) -> _Found:
    ranks = [rank for group in plan.groups for rank in group]
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        return fault("ranks", f"groups hold the ranks {sorted(ranks)[:20]}, expected 0..n-1, each in one group")
    if any(not group for group in plan.groups):
        return fault("ranks", "a group without ranks")
    if plan.num_ranks != len(ranks):
        return fault("ranks", f"nodes hold {plan.num_ranks} ranks, groups {len(ranks)}")
    for number, group in enumerate(plan.groups):
        kinds = sorted({plan.nodes[plan.rank_nodes[rank]].device_kind for rank in group})
        if len(kinds) > 1:
            return fault("group_kinds", f"group {number} holds ranks of {kinds}, expected one device kind")
    if len(plan.streams) != len(plan.groups):
        return fault(
            "streams", f"found {len(plan.streams)} streams, expected one for each of {len(plan.groups)} groups"
        )
    return None


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
        return fault("mesh", f"stage {number} spreads over {mesh.num_ranks} ranks, its group has {num_ranks}")
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
        return fault("recompute", f"stage {number} recomputes {listed}, expected layers of the stage, each once")
    if any(list(layers) != sorted(layers) or not layers for layers in stage.recompute.values()):
        return fault("recompute", f"stage {number}: recompute lists ascend and are not empty")
    return None


def _graph_is_sound(plan: Plan) -> _Found:
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
    used_routes = {batch.route for batch in plan.micro_batches}
    lists = [
        ("stage", set(range(len(plan.stages))), {stage for route in plan.routes for stage in route}),
        ("group", set(range(len(plan.groups))), {stage.group for stage in plan.stages}),
        ("route", set(range(len(plan.routes))), used_routes),
    ]
    for name, stated, used in lists:
        if stated != used:
            return fault("idle", f"{name} {min(stated ^ used)} is not used, or used and not stated")
    if not plan.micro_batches:
        return fault("idle", "no micro-batches")
    if first_repeated(stage.model_dump_json() for stage in plan.stages) is not None:
        return fault("duplicate", "two stages are equal")
    if first_repeated(plan.routes) is not None:
        return fault("duplicate", "two routes are equal")
    return None


def _micro_batches_fit(plan: Plan) -> _Found:
    for number, batch in enumerate(plan.micro_batches):
        if batch.cuts[0] != 0 or any(a >= b for a, b in zip(batch.cuts, batch.cuts[1:], strict=False)):
            return fault("micro_batch", f"micro-batch {number} has cuts {batch.cuts[:8]}, expected ascending from 0")
        for stage in plan.routes[batch.route]:
            found = _share_fault(number, batch, stage, plan.stages[stage])
            if found is not None:
                return found
    return None


def _share_fault(number: int, batch: MicroBatch, stage_number: int, stage: Stage) -> _Found:
    """Every rank of every stage on the route gets at least one sample and one token of each piece."""
    mesh = stage.mesh
    if batch.samples < mesh.data:
        text = f"micro-batch {number} has {batch.samples} samples, stage {stage_number} spreads them over {mesh.data}"
        return fault("micro_batch", text)
    least = mesh.context * (2 if mesh.exchange == "zigzag" else 1) * (mesh.tensor if mesh.border == "sharded" else 1)
    shortest = min(batch.tokens(k).size for k in range(batch.num_slices))
    if shortest < least:
        text = f"micro-batch {number} has a slice of {shortest} tokens, stage {stage_number} needs {least}"
        return fault("micro_batch", text)
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


def _streams_are_canonical(plan: Plan) -> _Found:
    num_instructions = sum(stream.count(" ") + 1 for stream in plan.streams)
    if num_instructions > MOST_INSTRUCTIONS:
        return fault("limit", f"found {num_instructions} instructions, expected at most {MOST_INSTRUCTIONS}")
    seen: set[Instruction] = set()
    for group, stream in enumerate(plan.streams):
        for text in stream.split(" "):
            instruction = parse_instruction(text)
            if instruction is None:
                return fault("stream_text", f"group {group}: {text[:40]!r} is no instruction")
            found = _place_fault(plan, group, text, instruction)
            if found is not None:
                return found
            if instruction in seen:
                return fault("stream_twice", f"group {group}: {text} stands twice")
            seen.add(instruction)
    return None


def _place_fault(plan: Plan, group: int, text: str, instruction: Instruction) -> _Found:
    """The instruction belongs to a visit or stage that exists, to this group, and is written canonically."""
    if instruction.stage >= len(plan.stages):
        return fault("stream_stage", f"group {group}: {text} names a stage that does not exist")
    if plan.stages[instruction.stage].group != group:
        owner = plan.stages[instruction.stage].group
        return fault("stream_group", f"group {group}: {text} belongs to group {owner}")
    num_slices = 1
    if instruction.operation in VISIT_OPERATIONS:
        if instruction.number >= len(plan.micro_batches):
            return fault("stream_visit", f"group {group}: {text} names a micro-batch that does not exist")
        batch = plan.micro_batches[instruction.number]
        num_slices = batch.num_slices
        if instruction.stage not in plan.routes[batch.route] or instruction.slice >= num_slices:
            return fault("stream_visit", f"group {group}: {text} is no visit of micro-batch {instruction.number}")
    if instruction.text(num_slices=num_slices) != text:
        return fault("stream_text", f"group {group}: {text} should be {instruction.text(num_slices=num_slices)}")
    return None


def _visits(plan: Plan) -> Iterator[Visit]:
    for number, batch in enumerate(plan.micro_batches):
        for stage in plan.routes[batch.route]:
            for slice_number in range(batch.num_slices):
                yield Visit(stage, number, slice_number)


def _operations_of_visits(plan: Plan) -> dict[Visit, str]:
    """The operations of each visit in the order of the stream, as text: ``FRB``."""
    operations: dict[Visit, str] = defaultdict(str)
    for stream in plan.instructions:
        for instruction in stream:
            if instruction.operation in VISIT_OPERATIONS:
                operations[instruction.visit] += instruction.operation
    return operations


def _visits_are_whole(plan: Plan) -> _Found:
    operations = _operations_of_visits(plan)
    for visit in _visits(plan):
        found = operations.get(visit, "")
        backward = found.replace("F", "").replace("R", "")
        where = f"visit of micro-batch {visit.micro_batch} slice {visit.slice} on stage {visit.stage}"
        if found.count("F") != 1 or "".join(sorted(backward)) not in _LEGAL_VISITS:
            return fault("visit", f"{where} is {found or 'absent'!r}, expected F, then B, I W, I, W or nothing")
        if "R" in found and (not backward or not plan.stages[visit.stage].recomputes):
            return fault("visit", f"{where} has an R, but its stage does not recompute or it has no backward")
    return None


def _visits_of_a_stage_agree(plan: Plan) -> _Found:
    backward: dict[int, bool] = {}
    weights: dict[int, bool] = {}
    for visit, operations in _operations_of_visits(plan).items():
        goes = any(operation in operations for operation in BACKWARDS)
        trains = "B" in operations or "W" in operations
        if backward.setdefault(visit.stage, goes) != goes or weights.setdefault(visit.stage, trains) != trains:
            return fault(
                "visits_agree", f"visits of stage {visit.stage} differ in going backward or in weight gradients"
            )
    holder: dict[int, int] = {}
    for number, stage in enumerate(plan.stages):
        for layer in stage.layers:
            other = holder.setdefault(plan.graph.weight_of[layer], number)
            if weights[other] != weights[number]:
                return fault(
                    "visits_agree", f"stages {other} and {number} hold layer {layer}, one trains it, one does not"
                )
    return None


def _no_gradient_is_lost(plan: Plan) -> _Found:
    operations = _operations_of_visits(plan)
    sample = {visit.stage: text for visit, text in operations.items()}
    for route in plan.routes:
        holder = {layer: stage for stage in route for layer in plan.stages[stage].layers}
        for layer, reads in enumerate(plan.graph.layer_reads):
            for source in reads.sources:
                giver, reader = holder[source], holder[layer]
                gives_back = giver == reader or "B" in sample[reader] or "I" in sample[reader]
                if any(operation in sample[giver] for operation in BACKWARDS) and not gives_back:
                    return fault("gradient_lost", f"stage {reader} gives no gradient back to stage {giver}")
    return None


def _updates_are_whole(plan: Plan) -> _Found:
    trains = {v.stage for v, text in _operations_of_visits(plan).items() if "B" in text or "W" in text}
    steps: dict[int, list[Instruction]] = defaultdict(list)
    last_backward: dict[int, int] = {}
    last_ready: dict[int, int] = {}
    for stream in plan.instructions:
        for place, instruction in enumerate(stream):
            if instruction.operation in ("G", "U"):
                steps[instruction.stage].append(instruction)
                if instruction.operation == "G":
                    last_ready[instruction.stage] = place
            elif instruction.operation in ("B", "W"):
                last_backward[instruction.stage] = place
    if not steps:
        return None
    if set(steps) != trains:
        stage = min(set(steps) ^ trains)
        return fault("updates", f"stage {stage}: G and U stand for exactly the stages that compute weight gradients")
    for stage, found in steps.items():
        expected = [i for n in range(len(found) // 2) for i in (Instruction("G", stage, n), Instruction("U", stage, n))]
        if found != expected:
            return fault("updates", f"stage {stage} has {' '.join(map(str, found[:6]))}, expected G0 U0 G1 U1 ..")
        if last_ready[stage] < last_backward[stage]:
            return fault("updates", f"stage {stage}: its last G stands before its last weight gradient")
    return _equally_many_updates(plan, {stage: len(found) // 2 for stage, found in steps.items()})


def _equally_many_updates(plan: Plan, updates: dict[int, int]) -> _Found:
    holder: dict[int, int] = {}
    for number in updates:
        for layer in plan.stages[number].layers:
            other = holder.setdefault(plan.graph.weight_of[layer], number)
            if updates[other] != updates[number]:
                return fault("updates", f"stages {other} and {number} share a weight, but update it unequally often")
    return None


def _prediction_fits(plan: Plan) -> _Found:
    prediction = plan.prediction
    if prediction is None:
        return None
    if not len(prediction.peak_bytes) == len(prediction.memory_limit_bytes) == len(plan.groups):
        return fault("prediction", f"expected one entry for each of {len(plan.groups)} groups")
    if prediction.bound_ns > prediction.step_ns:
        return fault("prediction", f"bound {prediction.bound_ns} ns is above the step {prediction.step_ns} ns")
    return None


_RULES: tuple[Callable[[Plan], _Found], ...] = (
    _ranks_lie_in_one_group,
    _meshes_fit,
    _graph_is_sound,
    _routes_cover_the_layers,
    _nothing_idle_or_double,
    _micro_batches_fit,
    _copies_on_a_group_agree,
    _streams_are_canonical,
    _visits_are_whole,
    _visits_of_a_stage_agree,
    _no_gradient_is_lost,
    _updates_are_whole,
    _prediction_fits,
)
