"""A timeline drawn with characters: one line a group, time from left to right.

An instruction fills the cells that it covers: its operation and number, then dashes (``F12---``), and its slice where
its micro-batch has several (``F12.1-``). Of a group with two stages the second has small letters (``f12--``); with more
stages the number of the stage stands first (``3F12-``), as in a plan.
A cell that no instruction covers for its larger part is a dot. Where instructions are shorter than a cell, the one that
covers most of it is shown.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from planner.simulate.timeline import Event, Timeline
from planner.units import time_text

__all__ = ["draw_timeline", "group_line"]

_STYLES = {"F": "blue", "B": "green", "I": "cyan", "W": "yellow", "R": "magenta", "G": "dim", "U": "red"}
_IDLE = "."


class _Cell(NamedTuple):
    """What one column shows: a character, and the operation that gives its colour."""

    character: str
    operation: str


def draw_timeline(timeline: Timeline, *, width: int, end: str | None = None) -> Text:
    """All groups, then a scale; ``width`` = columns of the drawing, ``end`` = what stands at its end (the step)."""
    label = f"group {len(timeline.events) - 1} "
    columns = max(10, width - len(label))
    text = Text(no_wrap=True)
    for group, events in enumerate(timeline.events):
        text.append(f"group {group}".ljust(len(label)))
        for cell in _cells(events, columns, timeline.step_ns):
            text.append(cell.character, style=_STYLES.get(cell.operation, "dim"))
        text.append("\n")
    scale = time_text(timeline.step_ns) if end is None else end
    text.append(" " * len(label) + "0" + scale.rjust(columns - 1))
    return text


def group_line(events: Sequence[Event], *, columns: int, step_ns: int) -> str:
    """One group without colour."""
    return "".join(cell.character for cell in _cells(events, columns, step_ns))


def _cells(events: Sequence[Event], columns: int, step_ns: int) -> list[_Cell]:
    owners = _owners(events, columns, step_ns)
    labels = _labels(events, owners)
    cells: list[_Cell] = []
    place = 0
    for column, owner in enumerate(owners):
        if owner is None:
            cells.append(_Cell(_IDLE, ""))
            continue
        place = place + 1 if column and owners[column - 1] == owner else 0
        label = labels[owner]
        cells.append(_Cell(label[place] if place < len(label) else "-", events[owner].instruction.operation))
    return cells


def _labels(events: Sequence[Event], owners: Sequence[int | None]) -> dict[int, str]:
    """Of each event that is seen: operation and, as far as they fit whole, its stage and number; F1 is not F12."""
    stages = sorted({event.instruction.stage for event in events})
    sliced = {event.instruction.number for event in events if event.instruction.slice}
    labels = {}
    for owner, room in Counter(owners).items():
        if owner is not None:
            operation, stage, number, part = events[owner].instruction
            letter = operation.lower() if len(stages) == 2 and stage == stages[1] else operation
            name = f"{stage}{letter}" if len(stages) > 2 else letter
            texts = [f"{name}{number}.{part}"] if number in sliced else []
            texts += [f"{name}{number}", name]
            labels[owner] = next((text for text in texts if len(text) <= room), letter)
    return labels


def _owners(events: Sequence[Event], columns: int, step_ns: int) -> list[int | None]:
    """For each column the event that covers most of it, or None where idle time is more than half."""
    covered: list[dict[int, float]] = [{} for _ in range(columns)]
    width_ns = max(step_ns, 1) / columns
    for number, event in enumerate(events):
        first = int(event.start_ns / width_ns)
        last = min(columns - 1, int(event.end_ns / width_ns))
        for column in range(min(first, columns), last + 1):
            begin, end = column * width_ns, (column + 1) * width_ns
            share = min(event.end_ns, end) - max(event.start_ns, begin)
            if share > 0:
                covered[column][number] = share
    return [
        max(shares, key=lambda number: (shares[number], -number)) if sum(shares.values()) >= width_ns / 2 else None
        for shares in covered
    ]
