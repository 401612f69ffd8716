"""The backward of a stream split in place into I and W, and fused back; the order of everything else stays."""

from collections.abc import Iterable

from planner.plan.instruction import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, Instruction

__all__ = ["fused", "split_in_place"]


def split_in_place(stream: Iterable[Instruction]) -> list[Instruction]:
    """Every B becomes I W: the gradient leaves before the weight gradient is computed."""
    found = []
    for instruction in stream:
        if instruction.operation == BACKWARD:
            found += [instruction._replace(operation=BACKWARD_INPUT), instruction._replace(operation=BACKWARD_WEIGHT)]
        else:
            found.append(instruction)
    return found


def fused(stream: Iterable[Instruction]) -> list[Instruction]:
    """Every I that has a W becomes B and its W is dropped; legal for every legal stream, I and W alone stay."""
    given = list(stream)
    pairs = _visits(given, BACKWARD_INPUT) & _visits(given, BACKWARD_WEIGHT)
    found = []
    for instruction in given:
        if instruction.operation == BACKWARD_INPUT and instruction[1:] in pairs:
            found.append(instruction._replace(operation=BACKWARD))
        elif instruction.operation != BACKWARD_WEIGHT or instruction[1:] not in pairs:
            found.append(instruction)
    return found


def _visits(stream: list[Instruction], operation: str) -> set[tuple[int, ...]]:
    return {instruction[1:] for instruction in stream if instruction.operation == operation}
