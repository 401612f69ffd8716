"""What a run of a plan measured, ``run/1``: written beside the training, read to compare it with the prediction.

The events of a step are one line of text a group, ``<instruction>:<start_ns>:<end_ns>``, single spaces.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.plan.instruction import parse_instruction
from planner.plan.plan import Plan
from planner.problem.contract import Bytes, Contract, Count, Digest, FiniteFloat, Index, Name, Nanoseconds, fault
from planner.schedules.deadlock import instruction_text
from planner.simulate.timeline import Event, Timeline

__all__ = ["RecordedStep", "RunRecord", "recorded_step", "recorded_timeline"]

_LONGEST_LINE = 100_000_000


class RecordedStep(Contract):
    """One step. ``events`` and ``peak_bytes``: one entry a group, None where nobody kept them."""

    number: Index
    step_ns: Nanoseconds
    loss: FiniteFloat
    events: tuple[Annotated[str, Field(max_length=_LONGEST_LINE)], ...] | None = None
    peak_bytes: tuple[Bytes, ...] | None = None

    @model_validator(mode="after")
    def _events_are_readable(self) -> "RecordedStep":
        for group, line in enumerate(self.events or ()):
            for text in line.split():
                if _event(text) is None:
                    raise fault("event_text", f"group {group}: {text[:40]!r} is no instruction:start_ns:end_ns")
        return self


class RunRecord(Contract):
    """A run of one plan: its steps ascend, not every step needs its events."""

    schema_version: Literal["run/1"] = Field(alias="schema")
    plan: Digest
    num_ranks: Count
    emulated: bool = False  # ran on another device kind than the plan names
    backend: Name | None = None
    steps: Annotated[tuple[RecordedStep, ...], Field(min_length=1, max_length=1_000_000)]

    @model_validator(mode="after")
    def _steps_ascend(self) -> "RunRecord":
        numbers = [step.number for step in self.steps]
        if numbers != sorted(set(numbers)):
            raise fault("order", "steps must ascend, each number once")
        return self


def recorded_step(plan: Plan, number: int, *, timeline: Timeline, loss: float) -> RecordedStep:
    """A step with all its events."""
    lines = tuple(
        " ".join(f"{instruction_text(plan, e.instruction)}:{e.start_ns}:{e.end_ns}" for e in events)
        for events in timeline.events
    )
    return RecordedStep(
        number=number, step_ns=timeline.step_ns, loss=loss, events=lines, peak_bytes=timeline.peak_bytes
    )


def recorded_timeline(plan: Plan, step: RecordedStep) -> Timeline | None:
    """The measured timeline of a recorded step; None where its events were not kept."""
    if step.events is None:
        return None
    events = tuple(tuple(event for text in line.split() if (event := _event(text)) is not None) for line in step.events)
    num_ranks = tuple(len(ranks) for ranks in plan.groups)
    return Timeline(events=events, step_ns=step.step_ns, num_ranks=num_ranks, peak_bytes=step.peak_bytes)


def _event(text: str) -> Event | None:
    name, *times = text.split(":")
    instruction = parse_instruction(name)
    if instruction is None or len(times) != 2 or not all(time.isascii() and time.isdigit() for time in times):
        return None
    start_ns, end_ns = int(times[0]), int(times[1])
    return Event(instruction, start_ns, end_ns) if start_ns <= end_ns else None
