"""What a plan checks about its streams: rules 7 to 11 of docs/plan-contract.md section 9, one rule a function.

The rules run in the order of ``STREAM_RULES`` after those of ``planner.plan.structure`` and rely on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from planner.plan.instruction import BACKWARDS, VISIT_OPERATIONS, Instruction, Visit
from planner.problem.contract import fault

if TYPE_CHECKING:
    from planner.plan.plan import Plan

__all__ = ["MOST_INSTRUCTIONS", "STREAM_RULES"]

MOST_INSTRUCTIONS = 2_000_000
_Found = PydanticCustomError | None
_LEGAL_BACKWARDS = frozenset({"", "B", "IW", "I", "W"})


def _not_too_many_instructions(plan: Plan) -> _Found:
    num_instructions = sum(stream.count(" ") + 1 for stream in plan.streams)
    if num_instructions > MOST_INSTRUCTIONS:
        return fault("limit", f"found {num_instructions} instructions, expected at most {MOST_INSTRUCTIONS}")
    return None


def _streams_are_canonical(plan: Plan) -> _Found:
    """Rule 7."""
    for group, (stream, parsed) in enumerate(zip(plan.streams, plan.parsed_streams, strict=True)):
        seen: set[Instruction] = set()
        for text, instruction in zip(stream.split(" "), parsed, strict=True):
            if instruction is None:
                return fault("stream_text", f"group {group}: {text[:40]!a} is no instruction")
            found = _place_fault(plan, group, text, instruction)
            if found is not None:
                return found
            if instruction in seen:
                return fault("stream_twice", f"group {group}: {text} stands twice")
            seen.add(instruction)
    return None


def _place_fault(plan: Plan, group: int, text: str, instruction: Instruction) -> _Found:
    """The instruction belongs to a visit or stage that exists, to this group, and is written canonically."""
    operation, stage, number, slice_number = instruction
    if stage >= len(plan.stages):
        return fault("stream_stage", f"group {group}: {text} names a stage that does not exist")
    if plan.stages[stage].group != group:
        return fault("stream_group", f"group {group}: {text} belongs to group {plan.stages[stage].group}")
    num_slices = 1
    if operation in VISIT_OPERATIONS:
        if number >= len(plan.micro_batches):
            return fault("stream_visit", f"group {group}: {text} names a micro-batch that does not exist")
        batch = plan.micro_batches[number]
        num_slices = batch.num_slices
        if slice_number >= num_slices or stage not in plan.route_members[batch.route]:
            return fault("stream_visit", f"group {group}: {text} is no visit of micro-batch {number}")
    if ("." in text) != (num_slices > 1):
        return fault("stream_text", f"group {group}: {text} should be {instruction.text(num_slices=num_slices)}")
    return None


def _visits(plan: Plan) -> Iterator[Visit]:
    for number, batch in enumerate(plan.micro_batches):
        for stage in plan.routes[batch.route]:
            for slice_number in range(batch.num_slices):
                yield Visit(stage, number, slice_number)


def _visits_are_whole(plan: Plan) -> _Found:
    """Rule 8."""
    recomputes = [stage.recomputes for stage in plan.stages]
    whole: set[tuple[str, bool]] = set()  # texts that were found legal
    for visit in _visits(plan):
        found = plan.visit_operations.get(visit, "")
        if (found, recomputes[visit.stage]) in whole:
            continue
        backward = found.replace("F", "").replace("R", "")
        where = f"visit of micro-batch {visit.micro_batch} slice {visit.slice} on stage {visit.stage}"
        if found.count("F") != 1 or "".join(sorted(backward)) not in _LEGAL_BACKWARDS:
            return fault("visit", f"{where} is {found or 'absent'}, expected F, then B, I W, I, W or nothing")
        if "R" in found and not (backward and recomputes[visit.stage]):
            return fault("visit", f"{where} has an R, but its stage does not recompute or it has no backward")
        whole.add((found, recomputes[visit.stage]))
    return None


def _visits_of_a_stage_agree(plan: Plan) -> _Found:
    """Rule 9."""
    trains: dict[int, bool] = {}
    for (stage, _), texts in _texts(plan).items():
        for text in sorted(texts):
            if trains.setdefault(stage, _trains(text)) != _trains(text):
                return fault("visits_agree", f"visits of stage {stage} differ in computing weight gradients")
    goes_back: dict[int, bool] = {}
    for (stage, _), texts in _texts(plan).items():
        for text in sorted(texts):
            if goes_back.setdefault(stage, _goes_back(text)) != _goes_back(text):
                return fault("visits_agree", f"visits of stage {stage} differ in going backward")
    holder: dict[int, int] = {}
    for number, stage_of_plan in enumerate(plan.stages):
        for layer in stage_of_plan.layers:
            other = holder.setdefault(plan.graph.weight_of[layer], number)
            if trains[other] != trains[number]:
                text = f"stages {other} and {number} hold a weight of layer {layer}"
                return fault("visits_agree", f"{text}, one trains it, one does not")
    return None


def _texts(plan: Plan) -> dict[tuple[int, int], set[str]]:
    """(stage, route) -> the different texts of its visits."""
    texts: dict[tuple[int, int], set[str]] = defaultdict(set)
    for visit, text in plan.visit_operations.items():
        texts[visit.stage, plan.micro_batches[visit.micro_batch].route].add(text)
    return texts


def _trains(text: str) -> bool:
    return "B" in text or "W" in text


def _goes_back(text: str) -> bool:
    return any(operation in text for operation in BACKWARDS)


def _gives_back(text: str) -> bool:
    return "B" in text or "I" in text


def _no_gradient_is_lost(plan: Plan) -> _Found:
    """Rule 10, for every visit: a reader of a stage that goes backward gives back in all its visits on that route."""
    texts = _texts(plan)
    for number, route in enumerate(plan.routes):
        holder = {layer: stage for stage in route for layer in plan.stages[stage].layers}
        needed = {stage for stage in route if any(map(_goes_back, texts[stage, number]))}
        given = {stage for stage in route if all(map(_gives_back, texts[stage, number]))}
        for layer, reads in enumerate(plan.graph.layer_reads):
            reader = holder[layer]
            if reader in given:
                continue
            for source in reads.sources:
                if holder[source] in needed and holder[source] != reader:
                    text = f"stage {reader} gives no gradient back to stage {holder[source]}"
                    return fault("gradient_lost", f"{text}, which goes backward on route {number}")
    return None


def _updates_are_whole(plan: Plan) -> _Found:
    """Rule 11."""
    steps = {stage: [i for i in found if i.operation in ("G", "U")] for stage, found in _weight_work(plan).items()}
    if not any(steps.values()):
        return None
    trains = {visit.stage for visit, text in plan.visit_operations.items() if _trains(text)}
    for stage, found in sorted(steps.items()):
        if bool(found) != (stage in trains):
            text = "has weight gradients but no G and U" if not found else "has G and U but no weight gradients"
            return fault("updates", f"stage {stage} {text}, other stages update")
    return _updates_take_turns(plan, steps) or _equally_many_updates(plan, steps)


def _weight_work(plan: Plan) -> dict[int, list[Instruction]]:
    """By stage: its B, W, G and U in the order of the stream."""
    work: dict[int, list[Instruction]] = {}
    for stream in plan.instructions:
        for instruction in stream:
            if instruction.operation in ("B", "W", "G", "U"):
                work.setdefault(instruction.stage, []).append(instruction)
    return work


def _updates_take_turns(plan: Plan, steps: dict[int, list[Instruction]]) -> _Found:
    work = _weight_work(plan)
    for stage, found in sorted(steps.items()):
        expected = [i for n in range(len(found) // 2) for i in (Instruction("G", stage, n), Instruction("U", stage, n))]
        if found != expected:
            return fault("updates", f"stage {stage} has {' '.join(map(str, found[:6]))}, expected G0 U0 G1 U1 ..")
        operations = [instruction.operation for instruction in work[stage]]
        if operations[-2:] != ["G", "U"]:
            late = next(i for i in reversed(work[stage]) if i.operation in ("B", "W"))
            return fault("updates", f"stage {stage}: its last G stands before {late}, its last weight gradient")
    return None


def _equally_many_updates(plan: Plan, steps: dict[int, list[Instruction]]) -> _Found:
    holder: dict[int, int] = {}
    for number in sorted(steps):
        for layer in plan.stages[number].layers:
            other = holder.setdefault(plan.graph.weight_of[layer], number)
            if len(steps[other]) != len(steps[number]):
                return fault("updates", f"stages {other} and {number} share a weight, but update it unequally often")
    return None


STREAM_RULES: tuple[Callable[[Plan], _Found], ...] = (
    _not_too_many_instructions,
    _streams_are_canonical,
    _visits_are_whole,
    _visits_of_a_stage_agree,
    _no_gradient_is_lost,
    _updates_are_whole,
)
