"""The critical path of a step: the chain of instructions, messages and sums without which the step would be shorter.

Method: from the instruction that ends last back to the start; each instruction began when the last thing that it waited
for was there: the one before it in its row, else a neighbour and its message. The durations along the chain add up to
the step exactly. Of several latest things the one in the same row is taken: it needs no message.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from planner.costs.prices import PlanPrices
from planner.explain.documents import Share
from planner.plan.plan import Plan
from planner.simulate.arrays import InstructionArrays, instruction_arrays
from planner.simulate.compiled import quickest_sweep
from planner.simulate.program import Program, make_program
from planner.simulate.sweep import Times

__all__ = ["critical_path"]


class _Place(NamedTuple):
    """What a part of the path belongs to."""

    kind: str
    group: int | None = None
    to_group: int | None = None
    stage: int | None = None


def critical_path(plan: Plan, prices: PlanPrices) -> tuple[Share, ...]:
    """The parts of the path, the longest first; they add up to the step. The plan must be free of deadlock."""
    arrays = instruction_arrays(plan, prices)
    program = make_program(plan, arrays, prices)
    times = quickest_sweep(program.num_instructions)(program)
    step_ns = int(times.end_ns.max(initial=0))
    parts: dict[_Place, int] = defaultdict(int)
    for place, time_ns in _walk(program, times, _Places(arrays)):
        parts[place] += time_ns
    assert sum(parts.values()) == step_ns, "the parts of the critical path are the step"
    shares = [
        Share(**place._asdict(), time_ns=time_ns, share=time_ns / step_ns if step_ns else 0.0)
        for place, time_ns in parts.items()
        if time_ns
    ]
    return tuple(sorted(shares, key=lambda share: (-share.time_ns, share.kind, share.group or 0, share.stage or 0)))


class _Places:
    """Instructions of a program by number -> what they belong to."""

    def __init__(self, arrays: InstructionArrays) -> None:
        self._arrays = arrays
        self._count = arrays.first[-1]

    def group(self, number: int) -> int:
        return int(np.searchsorted(self._arrays.first, number, side="right")) - 1

    def of(self, number: int) -> _Place:
        if number >= self._count:
            return _Place("sum")
        group, stage = self.group(number), int(self._arrays.stage[number])
        is_update = self._arrays.operation[number] == ord("U")
        return _Place("update" if is_update else "compute", group, None, stage)

    def message(self, sender: int, receiver: int) -> _Place:
        if max(sender, receiver) >= self._count:
            return _Place("sum")
        return _Place("message", self.group(sender), self.group(receiver))


def _walk(program: Program, times: Times, places: _Places) -> list[tuple[_Place, int]]:
    """From the end to the start: (what it belongs to, how long it lasts on the path)."""
    found: list[tuple[_Place, int]] = []
    number = int(np.argmax(times.end_ns)) if len(times.end_ns) else -1
    begins = set(np.asarray(program.first).tolist())
    count, columns = program.num_instructions, program.num_columns
    while number >= 0:
        found.append((places.of(number), int(program.duration_ns[number])))
        start_ns = int(times.start_ns[number])
        if start_ns == 0:
            break
        if number not in begins and times.end_ns[number - 1] == start_ns:
            number -= 1
            continue
        for column in range(columns):
            before = int(program.before[column * count + number])
            delay_ns = int(program.delay_ns[column * count + number])
            if before < count and int(times.end_ns[before]) + delay_ns == start_ns:
                found.append((places.message(before, number), delay_ns))
                number = before
                break
        else:
            raise AssertionError("an instruction starts when something that it waits for is there")
    return found
