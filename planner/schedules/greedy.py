"""Streams by list scheduling in ticks: always the instruction that can start first, ties by a rule of the family.

Method: each stage handles its micro-batches in order, so the candidates of a group are the next F, B, I and W of its
stages. A heap holds the best candidate of each group; only groups whose candidates changed are looked at again. An F
waits while what the group keeps, and one place for each later stage of the group on the route, would pass its cap;
what is kept lives from F to the last backward.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from planner.errors import PlanError
from planner.plan.instruction import FORWARD, Instruction, Operation
from planner.schedules.shape import Streams

__all__ = ["Delay", "GreedyTask", "Key", "Ordered", "chain", "list_schedule"]

Key = Callable[[Instruction], tuple[int, ...]]


class Delay(NamedTuple):
    """Ticks that an output takes to its reader, and the gradient back."""

    forward: int
    backward: int


_NO_DELAY = Delay(0, 0)


@dataclass(frozen=True)
class GreedyTask:
    """What has to be ordered; every stage is on one route.

    ``operations``: of each stage, the forward first, then its backwards in order: ``FB``, ``FIW``, ``FI``, ``FW``.
    ``batches``: of each stage, its micro-batches in order. ``reads``: of each stage, the stages that it reads; they get
    gradient back unless (reader, source) is in ``detached``. ``caps``: of each group, most kept.
    """

    groups: Sequence[int]
    operations: Sequence[str]
    batches: Sequence[Sequence[int]]
    reads: Sequence[Sequence[int]]
    ticks: Mapping[str, int]
    caps: Sequence[int]
    kept: Sequence[int]
    pace: int = 0  # ticks between the forwards of a stage that reads nothing, at least
    detached: frozenset[tuple[int, int]] = frozenset()  # (reader, source)
    stage_ticks: Mapping[tuple[int, str], int] = field(default_factory=dict)  # where a stage differs from ``ticks``
    stage_caps: Mapping[int, int] = field(default_factory=dict)  # most visits that a stage keeps; else no limit
    delays: Mapping[tuple[int, int], Delay] = field(default_factory=dict)  # (reader, source); none where left out

    @property
    def num_groups(self) -> int:
        return max(self.groups) + 1


class Ordered(NamedTuple):
    """One stream a group, and the tick at which the last instruction ends."""

    streams: Streams
    end: int


def chain(num_stages: int, *, first: int = 0) -> list[list[int]]:
    """Stages that read the one before; numbered from ``first``."""
    return [[first + stage - 1] if stage else [] for stage in range(num_stages)]


def list_schedule(task: GreedyTask, key: Key) -> Ordered:
    """The order of everything. Raises ``PlanError`` (deadlock) where the caps let nothing go on."""
    walk = _Walk(task, key)
    walk.run()
    return Ordered(walk.streams, max(walk.free))


class _Candidate(NamedTuple):
    start: int
    key: tuple[int, ...]
    instruction: Instruction


class _Walk:
    def __init__(self, task: GreedyTask, key: Key) -> None:
        self.task, self.key = task, key
        self.streams: Streams = [[] for _ in range(task.num_groups)]
        self._stages_of = [
            [stage for stage, group in enumerate(task.groups) if group == number] for number in range(task.num_groups)
        ]
        self._readers = _readers(task)
        self._reserve = _reserves(task)
        self._next = {(stage, operation): 0 for stage, text in enumerate(task.operations) for operation in text}
        self._ends: dict[tuple[str, int, int], int] = {}  # (operation, stage, place of the micro-batch)
        self.free = [0] * task.num_groups
        self._kept = [0] * task.num_groups
        self._heap: list[tuple[_Candidate, int, int]] = []
        self._version = [0] * task.num_groups

    def run(self) -> None:
        for group in range(self.task.num_groups):
            self._look(group)
        left = sum(len(text) * len(self.task.batches[stage]) for stage, text in enumerate(self.task.operations))
        while self._heap:
            candidate, group, version = heapq.heappop(self._heap)
            if version == self._version[group]:
                self._place(candidate, group)
                left -= 1
        if left:
            raise PlanError(f"found {left} instructions that the caps never let start", code="deadlock")

    def _look(self, group: int) -> None:
        """Find the best candidate of a group anew."""
        self._version[group] += 1
        best: _Candidate | None = None
        for stage in self._stages_of[group]:
            for operation in self.task.operations[stage]:
                found = self._candidate(stage, operation, group)
                if found is not None and (best is None or found < best):
                    best = found
        if best is not None:
            heapq.heappush(self._heap, (best, group, self._version[group]))

    def _candidate(self, stage: int, operation: str, group: int) -> _Candidate | None:
        task, place = self.task, self._next[stage, operation]
        if place == len(task.batches[stage]):
            return None
        if operation == FORWARD and self._is_full(stage, group):
            return None
        start = self._ready(stage, operation, place)
        if start is None:
            return None
        instruction = Instruction(cast(Operation, operation), stage, task.batches[stage][place])
        return _Candidate(max(start, self.free[group]), self.key(instruction), instruction)

    def _is_full(self, stage: int, group: int) -> bool:
        """Whether an F of the stage has to wait for something to be freed."""
        most = self.task.stage_caps.get(stage)
        if most is not None and self._next[stage, "F"] - self._next[stage, self.task.operations[stage][-1]] >= most:
            return True
        return self._kept[group] + self._reserve[stage] > self.task.caps[group]

    def _ready(self, stage: int, operation: str, place: int) -> int | None:
        """When everything that it waits for has arrived; None while something has not been placed."""
        task = self.task
        latest = task.pace * place if operation == FORWARD and not task.reads[stage] else 0
        if operation == FORWARD:
            waits = [("F", source, self._delay(stage, source).forward) for source in task.reads[stage]]
        elif operation == task.operations[stage][1]:
            waits = [("F", stage, 0)]
            for reader in self._readers[stage]:
                waits.append((task.operations[reader][1], reader, self._delay(reader, stage).backward))
        else:
            waits = [(task.operations[stage][1], stage, 0)]
        for before, source, delay in waits:
            end = self._ends.get((before, source, place))
            if end is None:
                return None
            latest = max(latest, end + delay)
        return latest

    def _delay(self, reader: int, source: int) -> Delay:
        return self.task.delays.get((reader, source), _NO_DELAY)

    def _place(self, candidate: _Candidate, group: int) -> None:
        task, instruction = self.task, candidate.instruction
        operation, stage = instruction.operation, instruction.stage
        place = self._next[stage, operation]
        self._next[stage, operation] = place + 1
        end = candidate.start + task.stage_ticks.get((stage, operation), task.ticks[operation])
        self._ends[operation, stage, place] = end
        self.free[group] = end
        if operation == FORWARD:
            self._kept[group] += task.kept[stage]
        elif operation == task.operations[stage][-1]:
            self._kept[group] -= task.kept[stage]
        self.streams[group].append(instruction)
        near = self._readers[stage] if operation == FORWARD else task.reads[stage]
        detached = [reader for reader, source in task.detached if source == stage]
        for other in {group, *(task.groups[number] for number in (*near, *detached))}:
            self._look(other)


def _readers(task: GreedyTask) -> list[list[int]]:
    """Of each stage: what gives it gradient."""
    found: list[list[int]] = [[] for _ in task.groups]
    for reader, sources in enumerate(task.reads):
        for source in sources:
            if (reader, source) not in task.detached:
                found[source].append(reader)
    return found


def _reserves(task: GreedyTask) -> list[int]:
    """Of each stage: what its F needs free, itself and one place for each later stage of its group on the route."""
    return [
        sum(
            task.kept[other]
            for other in range(stage, len(task.groups))
            if task.groups[other] == task.groups[stage] and task.batches[other] == task.batches[stage]
        )
        for stage in range(len(task.groups))
    ]
