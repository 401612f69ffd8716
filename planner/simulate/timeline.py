"""When each instruction of one step ran: predicted by the simulator or measured by the executor, same type."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner.plan.instruction import Instruction

__all__ = ["Event", "Timeline"]


class Event(NamedTuple):
    """One instruction, from its start to its end; times count from the start of the step."""

    instruction: Instruction
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """``events``: one tuple a group, in the order of its stream. ``num_ranks``: of each group.

    ``step_ns`` is the end of the last instruction or sum, whichever is later. ``peak_bytes``: of the fullest rank of
    each group; None where nobody measured it.
    """

    events: tuple[tuple[Event, ...], ...]
    step_ns: int
    num_ranks: tuple[int, ...]
    peak_bytes: tuple[int, ...] | None = None

    @cached_property
    def busy_ns(self) -> tuple[int, ...]:
        """By group: how long an instruction runs."""
        return tuple(sum(event.end_ns - event.start_ns for event in events) for events in self.events)

    @property
    def bubble(self) -> float:
        """Share of device time in which no instruction runs."""
        total_ns = self.step_ns * sum(self.num_ranks)
        if total_ns == 0:
            return 0.0
        busy_ns = sum(busy * ranks for busy, ranks in zip(self.busy_ns, self.num_ranks, strict=True))
        return max(0.0, 1 - busy_ns / total_ns)
