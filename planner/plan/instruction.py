"""One step of one group, and its text: ``<stage><operation><number>[.<slice>]``, a stream is one line."""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

__all__ = [
    "BACKWARD",
    "BACKWARDS",
    "BACKWARD_INPUT",
    "BACKWARD_WEIGHT",
    "FORWARD",
    "GRADIENTS_READY",
    "RECOMPUTE",
    "UPDATE",
    "VISIT_OPERATIONS",
    "Instruction",
    "Operation",
    "Visit",
    "parse_instruction",
    "stream_text",
]

Operation = Literal["F", "R", "B", "I", "W", "G", "U"]
FORWARD: Final = "F"
RECOMPUTE: Final = "R"  # bring back what recompute dropped
BACKWARD: Final = "B"  # both gradients
BACKWARD_INPUT: Final = "I"
BACKWARD_WEIGHT: Final = "W"
GRADIENTS_READY: Final = "G"  # from here on the stage's gradients are ready to be summed
UPDATE: Final = "U"
BACKWARDS: Final = (BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
VISIT_OPERATIONS: Final = (FORWARD, RECOMPUTE, *BACKWARDS)


class Visit(NamedTuple):
    """One slice of one micro-batch on one stage."""

    stage: int
    micro_batch: int
    slice: int


class Instruction(NamedTuple):
    """``number`` = micro-batch for F R B I W; for G and U it counts the updates of that stage in the step."""

    operation: Operation
    stage: int
    number: int
    slice: int = 0

    @property
    def visit(self) -> Visit:
        assert self.operation in VISIT_OPERATIONS, self
        return Visit(self.stage, self.number, self.slice)

    def text(self, *, num_slices: int) -> str:
        """The slice is written exactly when the micro-batch has several."""
        tail = f".{self.slice}" if num_slices > 1 and self.operation in VISIT_OPERATIONS else ""
        return f"{self.stage}{self.operation}{self.number}{tail}"

    def __str__(self) -> str:
        return self.text(num_slices=self.slice + 1)


_TEXT = re.compile(r"(0|[1-9][0-9]{0,8})([FRBIWGU])(0|[1-9][0-9]{0,8})(?:\.(0|[1-9][0-9]{0,8}))?")


def parse_instruction(text: str) -> Instruction | None:
    """The instruction that ``text`` writes, or None where it is no instruction's text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    stage, operation, number, slice_number = match.groups()
    return Instruction(operation, int(stage), int(number), int(slice_number or 0))  # type: ignore[arg-type]


def stream_text(instructions: Iterable[Instruction], num_slices: Iterable[int]) -> str:
    """The line of a stream; ``num_slices`` = slices of each micro-batch, in order."""
    slices = tuple(num_slices)
    return " ".join(i.text(num_slices=slices[i.number] if i.operation in VISIT_OPERATIONS else 1) for i in instructions)
