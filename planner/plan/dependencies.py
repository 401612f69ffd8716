"""What an instruction waits for (docs/plan-contract.md section 3): one definition for check, simulate, search, execute.

The place in the stream is not repeated here: an instruction also waits for the one before it on its group.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Literal, NamedTuple

from planner.plan.instruction import BACKWARDS, Instruction, Operation, Visit
from planner.plan.plan import Plan

__all__ = ["Dependencies", "Neighbours", "Wait", "WaitKind"]

WaitKind = Literal["own", "activation", "gradient", "sum"]


class Wait(NamedTuple):
    """``instruction`` must have ended; activation and gradient cross a border (a message unless it is a hand-over)."""

    kind: WaitKind
    instruction: Instruction


class Neighbours(NamedTuple):
    """Of a stage on a route: the stages it reads, and the stages that read it and give gradient back; ascending."""

    reads: tuple[int, ...]
    readers: tuple[int, ...]


class Dependencies:
    """Answers for one plan; tables are made once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @cached_property
    def neighbours(self) -> dict[tuple[int, int], Neighbours]:
        """(route, stage) -> neighbours."""
        return {
            (number, stage): found
            for number, route in enumerate(self._plan.routes)
            for stage, found in _route_neighbours(self._plan, route, self._gives_back).items()
        }

    @property
    def _operations(self) -> Mapping[Visit, str]:
        return self._plan.visit_operations

    @cached_property
    def _gives_back(self) -> frozenset[int]:
        """Stages whose visits give a gradient back to what they read."""
        return frozenset(visit.stage for visit, text in self._operations.items() if "B" in text or "I" in text)

    def of_stage(self, micro_batch: int, stage: int) -> Neighbours:
        """The neighbours of a stage on the route of a micro-batch."""
        return self.neighbours[self._plan.micro_batches[micro_batch].route, stage]

    def first_backward(self, visit: Visit) -> Instruction | None:
        """Its B, else its I, else its W; None for a visit that only goes forward."""
        operation = _first_backward_of(self._operations[visit])
        return None if operation is None else Instruction(operation, *visit)

    def last_backward(self, visit: Visit) -> Instruction | None:
        """The instruction after which nothing of the visit is kept: the later of I and W in the stream, or the only."""
        operations = self._operations[visit]
        found: list[Operation] = [backward for backward in BACKWARDS if backward in operations]
        return Instruction(max(found, key=operations.rfind), *visit) if found else None

    def recomputes(self, visit: Visit) -> bool:
        """Whether the stream brings the visit back with an R."""
        return "R" in self._operations[visit]

    def waits(self, instruction: Instruction) -> tuple[Wait, ...]:
        """What must have ended before ``instruction`` starts, beside the instruction before it on its group."""
        if instruction.operation == "G":
            return ()  # every backward of the stage before it in the stream: the place in the stream says it
        if instruction.operation == "U":
            return self._update_waits(instruction)
        visit = instruction.visit
        if instruction.operation == "F":
            return self._forward_waits(visit)
        if instruction.operation == "R":
            return (Wait("own", Instruction("F", *visit)),)
        if instruction != self.first_backward(visit):  # W beside an I
            return (Wait("own", Instruction("I", *visit)),)
        return self._backward_waits(visit)

    def _forward_waits(self, visit: Visit) -> tuple[Wait, ...]:
        stage, micro_batch, part = visit
        reads = self.of_stage(micro_batch, stage).reads
        waits = [Wait("activation", Instruction("F", source, micro_batch, part)) for source in reads]
        if part:
            waits.append(Wait("own", Instruction("F", stage, micro_batch, part - 1)))
        return tuple(waits)

    def _backward_waits(self, visit: Visit) -> tuple[Wait, ...]:
        stage, micro_batch, part = visit
        own = Instruction("R" if self.recomputes(visit) else "F", *visit)
        waits = [Wait("own", own)]
        for reader in self.of_stage(micro_batch, stage).readers:
            given = self.first_backward(Visit(reader, micro_batch, part))
            if given is not None:
                waits.append(Wait("gradient", given))
        later = Visit(stage, micro_batch, part + 1)
        if later in self._operations and (first := self.first_backward(later)) is not None:
            waits.append(Wait("own", first))
        return tuple(waits)

    @cached_property
    def num_updates(self) -> int:
        """Most updates of any stage in the step; 0: gradients stay where they are."""
        return max(
            (i.number + 1 for stream in self._plan.instructions for i in stream if i.operation == "U"), default=0
        )

    @cached_property
    def _sharers(self) -> dict[int, tuple[int, ...]]:
        """Stage -> trained stages that share a weight with it (itself among them)."""
        holders: dict[int, set[int]] = defaultdict(set)
        weights: dict[int, set[int]] = defaultdict(set)
        for number in self.updated_stages:
            for layer in self._plan.stages[number].layers:
                weight = self._plan.graph.weight_of[layer]
                holders[weight].add(number)
                weights[number].add(weight)
        return {
            number: tuple(sorted({other for weight in held for other in holders[weight]}))
            for number, held in weights.items()
        }

    @cached_property
    def updated_stages(self) -> tuple[int, ...]:
        """Stages with G and U, ascending."""
        return tuple(sorted({i.stage for stream in self._plan.instructions for i in stream if i.operation == "G"}))

    def _update_waits(self, instruction: Instruction) -> tuple[Wait, ...]:
        """One update a step: G of all stages (gradient norm). Several: G of the stages that share a weight."""
        stages = self.updated_stages if self.num_updates == 1 else self._sharers[instruction.stage]
        return tuple(Wait("sum", Instruction("G", stage, instruction.number)) for stage in stages)


@cache
def _first_backward_of(text: str) -> Operation | None:
    """Of a visit's operations; there are few different texts."""
    return next((operation for operation in BACKWARDS if operation in text), None)


def _route_neighbours(plan: Plan, route: tuple[int, ...], gives_back: frozenset[int]) -> dict[int, Neighbours]:
    """The neighbours of every stage of a route."""
    holder = {layer: stage for stage in route for layer in plan.stages[stage].layers}
    reads: dict[int, set[int]] = defaultdict(set)
    readers: dict[int, set[int]] = defaultdict(set)
    for layer, layer_reads in enumerate(plan.graph.layer_reads):
        reader = holder[layer]
        reads[reader].update(holder[source] for source in (*layer_reads.sources, *layer_reads.detached))
        if reader in gives_back:
            for source in layer_reads.sources:
                readers[holder[source]].add(reader)
    return {
        stage: Neighbours(tuple(sorted(reads[stage] - {stage})), tuple(sorted(readers[stage] - {stage})))
        for stage in route
    }
