"""The step that a plan takes at given prices, exact in whole nanoseconds.

Method: a place and a clock for each group; sweep the groups, run each while the
predecessors of its next instruction are done. An instruction starts at the latest of: end of the one before it on its
group, end of each neighbour plus its message, opening of its update's gate. Messages do not slow each other.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from planner.costs.prices import PlanPrices
from planner.errors import PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.schedules.deadlock import deadlock_error
from planner.simulate.arrays import InstructionArrays, instruction_arrays
from planner.simulate.memory import peak_bytes
from planner.simulate.sums import SumClock
from planner.simulate.timeline import Event, Timeline

__all__ = ["simulate"]

_NOT_DONE = -1


class _Waits(NamedTuple):
    """One column of predecessors as plain lists."""

    before: list[int]
    delay_ns: list[int]


def simulate(plan: Plan, prices: PlanPrices) -> Timeline:
    """When each instruction runs, the step, and the peak of each group. Raises ``PlanError`` (deadlock)."""
    arrays = instruction_arrays(plan, prices)
    sweep = _Sweep(plan, arrays, prices)
    sweep.run()
    starts, ends = sweep.starts_ns, sweep.ends_ns[: arrays.first[-1]]
    events = tuple(
        tuple(map(Event, stream, starts[first:end], ends[first:end]))
        for stream, first, end in zip(plan.instructions, arrays.first, arrays.first[1:], strict=False)
    )
    return Timeline(
        events=events,
        step_ns=max(max(ends, default=0), sweep.sums.last_end_ns),
        num_ranks=tuple(len(ranks) for ranks in plan.groups),
        peak_bytes=peak_bytes(arrays, starts, ends, state_bytes=prices.state_bytes),
    )


class _Sweep:
    """Places and clocks of all groups.

    Entry n of ``ends_ns`` beyond the n instructions is "always done"; behind it stand the gates of the updates.
    """

    def __init__(self, plan: Plan, arrays: InstructionArrays, prices: PlanPrices) -> None:
        self._plan = plan
        self.sums = SumClock(plan, prices.sum_ns)
        self._first = arrays.first
        self._count = arrays.first[-1]
        self._places = list(arrays.first[:-1])
        self._durations_ns: list[int] = arrays.duration_ns.tolist()
        self.starts_ns = [0] * self._count
        self.ends_ns = [_NOT_DONE] * self._count + [0] + [_NOT_DONE] * self.sums.num_gates
        self._waits = self._columns(arrays)
        self._stops = self._places_of_ready(arrays)

    def _columns(self, arrays: InstructionArrays) -> list[_Waits]:
        """Neighbours; the first column also holds gates, and what can never start because its own stage blocks it."""
        columns = [(column.before.copy(), column.delay_ns) for column in arrays.columns]
        columns = columns or [(np.full(self._count, _NOT_DONE), np.zeros(self._count, np.int64))]
        first, _ = columns[0]
        for number in np.nonzero(arrays.is_operation("U"))[0].tolist():
            first[number] = self._count + 1 + self.sums.gate(self._instruction(number))
        (misplaced,) = np.nonzero(arrays.misplaced)
        first[misplaced] = misplaced
        for before, _ in columns:
            before[before < 0] = self._count
        return [_Waits(before.tolist(), delay_ns.tolist()) for before, delay_ns in columns]

    def _places_of_ready(self, arrays: InstructionArrays) -> list[list[int]]:
        """By group: where running pauses, behind each G and at the end; last first."""
        ready = np.nonzero(arrays.is_operation("G"))[0] + 1
        bounds = zip(self._first, self._first[1:], strict=False)
        return [[end, *ready[(ready > first) & (ready <= end)][::-1].tolist()] for first, end in bounds]

    def _instruction(self, number: int) -> Instruction:
        group = bisect_right(self._first, number) - 1
        return self._plan.instructions[group][number - self._first[group]]

    def run(self) -> None:
        """Sweep until nothing moves. Raises ``PlanError`` where a group has not reached its end."""
        moved = True
        while moved:
            moved = False
            for group in range(len(self._places)):
                while self._stops[group] and self._run_to_stop(group):
                    moved = True
        if any(self._stops):
            raise self._deadlock()

    def _run_to_stop(self, group: int) -> bool:
        """Run a group to its next stop, or to what is not ready; whether it moved."""
        before, stop = self._places[group], self._stops[group][-1]
        place = self._places[group] = self._run(before, stop, self._first[group])
        if place == stop:
            self._stops[group].pop()
            if place > before and self._instruction(place - 1).operation == "G":
                self._open_gates(place - 1)
        return place > before or place == stop

    def _run(self, place: int, stop: int, first: int) -> int:
        """Run from ``place`` as far as possible; the place of the first instruction that has not run."""
        starts_ns, ends_ns, durations_ns, columns = self.starts_ns, self.ends_ns, self._durations_ns, self._waits
        clock_ns = ends_ns[place - 1] if place > first else 0
        while place < stop:
            start_ns = clock_ns
            for before, delay_ns in columns:
                end_ns = ends_ns[before[place]]
                if end_ns < 0:
                    return place
                start_ns = max(start_ns, end_ns + delay_ns[place])
            starts_ns[place] = start_ns
            clock_ns = ends_ns[place] = start_ns + durations_ns[place]
            place += 1
        return place

    def _open_gates(self, number: int) -> None:
        for gate, open_ns in self.sums.ready(self._instruction(number), self.ends_ns[number]):
            self.ends_ns[self._count + 1 + gate] = open_ns

    def _deadlock(self) -> PlanError:
        blocked = {group: self._places[group] - self._first[group] for group, stops in enumerate(self._stops) if stops}
        done = {
            instruction
            for group, stream in enumerate(self._plan.instructions)
            for instruction in stream[: self._places[group] - self._first[group]]
        }
        dependencies = Dependencies(self._plan)
        return deadlock_error(self._plan, blocked, dependencies=dependencies, is_done=done.__contains__)
