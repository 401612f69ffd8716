"""What a schedule family is asked for, and what it answers: one stream of instructions a group."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.plan.instruction import Instruction, Operation

__all__ = ["Shape", "Streams", "Work", "one_by_one"]

Streams = list[list[Instruction]]


class Shape(NamedTuple):
    """Stages 0..num_stages-1, stage s on group ``s mod num_groups``; the slices of each micro-batch, in order."""

    num_groups: int
    num_stages: int
    slices: tuple[int, ...]

    @property
    def num_micro_batches(self) -> int:
        return len(self.slices)

    def stages_of(self, group: int) -> range:
        """The stages of a group in the order of the route: its legs."""
        return range(group, self.num_stages, self.num_groups)


class Work(NamedTuple):
    """A visit without its stage."""

    micro_batch: int
    slice: int


def forward_work(shape: Shape) -> list[Work]:
    """Micro-batch by micro-batch, slices ascending."""
    return [Work(batch, part) for batch, parts in enumerate(shape.slices) for part in range(parts)]


def backward_work(shape: Shape) -> list[Work]:
    """Micro-batch by micro-batch, slices descending: a slice's gradient needs all later slices."""
    return [Work(batch, part) for batch, parts in enumerate(shape.slices) for part in reversed(range(parts))]


def instructions(operation: Operation, stage: int, work: Sequence[Work]) -> list[Instruction]:
    """One instruction for each piece of work on a stage."""
    return [Instruction(operation, stage, *item) for item in work]


def one_by_one(forwards: Sequence[Instruction], backwards: Sequence[Instruction], *, warm_up: int) -> list[Instruction]:
    """``warm_up`` forwards; then a forward and a backward in turn while forwards last; then the other backwards."""
    warm_up = min(warm_up, len(forwards))
    pairs = len(forwards) - warm_up
    steady = [one for pair in zip(forwards[warm_up:], backwards[:pairs], strict=True) for one in pair]
    return [*forwards[:warm_up], *steady, *backwards[pairs:]]
