"""G and U by rule: each trained stage is ready right after its last weight gradient and is updated at the end."""

from collections.abc import Iterable

from planner.plan.instruction import BACKWARD, BACKWARD_WEIGHT, GRADIENTS_READY, UPDATE, Instruction

__all__ = ["with_updates"]

_TRAINS = (BACKWARD, BACKWARD_WEIGHT)


def with_updates(stream: Iterable[Instruction]) -> list[Instruction]:
    """One update a step; a stream that has G already stays as it is."""
    given = list(stream)
    if any(instruction.operation == GRADIENTS_READY for instruction in given):
        return given
    last = {instruction.stage: place for place, instruction in enumerate(given) if instruction.operation in _TRAINS}
    ready = {place: Instruction(GRADIENTS_READY, stage, 0) for stage, place in last.items()}
    found = []
    for place, instruction in enumerate(given):
        found += [instruction, ready[place]] if place in ready else [instruction]
    return found + [Instruction(UPDATE, stage, 0) for stage in sorted(last)]
