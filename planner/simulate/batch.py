"""Many draws of the durations of one program at once: how its step varies, or which of many prices is best.

Method: a sweep at one unit an instruction and no messages numbers the instruction's level: everything it waits for
has a smaller one. Level by level, all draws of all instructions of a level are one set of array operations. Exact:
each draw gives what a sweep of it gives.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.simulate.arrays import Integers
from planner.simulate.program import Program
from planner.simulate.sweep import Sweep, plain_sweep

__all__ = ["DrawnSteps", "Draws", "ProgramBatch", "noise_draws"]

_ENDS_AT_ONCE = 8_000_000  # 64 MB: more draws than that are run in parts
_FEWEST_DRAWS = 16


class Draws(NamedTuple):
    """``duration_ns``: [instructions of the groups, draws]; ``delay_ns``: of messages, [columns, the same, draws].

    Without ``delay_ns`` all draws have the messages of the program.
    """

    duration_ns: Integers
    delay_ns: Integers | None = None


class DrawnSteps(NamedTuple):
    """``step_ns``: by draw; ``group_end_ns``: [groups, draws], when the last instruction of each group ends."""

    step_ns: Integers
    group_end_ns: Integers


class _Level(NamedTuple):
    """Instructions ``[first, end)`` in the order of levels; places of what they wait for, the last column unnamed."""

    first: int
    end: int
    row_before: Integers
    before: Integers  # [columns, instructions]
    delay_ns: Integers  # [columns, instructions, 1]


class ProgramBatch:
    """Scores draws of one program; made once, its levels hold for all durations.

    ``num_instructions``: of the groups; the rows of sums behind them keep their times.
    """

    def __init__(self, program: Program, *, num_groups: int, sweep: Sweep = plain_sweep) -> None:
        program = program.as_arrays()
        assert isinstance(program.first, np.ndarray)
        self._program = program
        self._first = program.first
        self.num_instructions = int(self._first[num_groups])
        self._num_groups = num_groups
        self._order, self._levels = _levels(program, sweep)
        self._place = np.empty_like(self._order)
        self._place[self._order] = np.arange(len(self._order))

    def steps(self, draws: Draws) -> DrawnSteps:
        """The step of every draw."""
        num_draws = draws.duration_ns.shape[1]
        step_ns = np.zeros(num_draws, np.int64)
        group_end_ns = np.zeros((self._num_groups, num_draws), np.int64)
        part = max(_FEWEST_DRAWS, _ENDS_AT_ONCE // len(self._order))
        for first in range(0, num_draws, part):
            some = slice(first, first + part)
            delay_ns = None if draws.delay_ns is None else draws.delay_ns[:, :, some]
            ends_ns = self._ends(draws.duration_ns[:, some], delay_ns)
            step_ns[some] = ends_ns.max(axis=0)
            group_end_ns[:, some] = ends_ns[self._place[self._first[1 : self._num_groups + 1] - 1]]
        return DrawnSteps(step_ns, group_end_ns)

    def _ends(self, duration_ns: Integers, delay_ns: Integers | None) -> Integers:
        """[instructions in the order of levels and one that is always done, draws]."""
        program = self._program
        total, num_draws = program.num_instructions, duration_ns.shape[1]
        ends_ns = np.zeros((total + 1, num_draws), np.int64)
        durations_ns = np.empty((total, num_draws), np.int64)
        durations_ns[self._place[: self.num_instructions]] = duration_ns
        sums = slice(self.num_instructions, total)
        durations_ns[self._place[sums]] = np.asarray(program.duration_ns)[sums, None]
        for level in self._levels:
            start_ns = ends_ns[level.row_before]
            for column, before in enumerate(level.before):
                arrived_ns = ends_ns[before]
                arrived_ns += level.delay_ns[column] if delay_ns is None else self._drawn(level, delay_ns[column])
                np.maximum(start_ns, arrived_ns, out=start_ns)
            own = slice(level.first, level.end)
            np.add(start_ns, durations_ns[own], out=ends_ns[own])
        return ends_ns

    def _drawn(self, level: _Level, delay_ns: Integers) -> Integers:
        """Of a level, the drawn messages; rows of sums have none."""
        numbers = self._order[level.first : level.end]
        found = np.zeros((len(numbers), delay_ns.shape[1]), np.int64)
        in_groups = numbers < self.num_instructions
        found[in_groups] = delay_ns[numbers[in_groups]]
        return found


def noise_draws(duration_ns: Integers, *, spread: float, num_draws: int, seed: int) -> Draws:
    """Every duration times a factor of its own, log-normal with median 1; ``spread`` = its standard deviation in log.

    The same seed gives the same draws.
    """
    factors = np.random.default_rng(seed).lognormal(sigma=spread, size=(len(duration_ns), num_draws))
    drawn: npt.NDArray[np.float64] = np.rint(duration_ns[:, None] * factors)
    return Draws(drawn.astype(np.int64))


def _levels(program: Program, sweep: Sweep) -> tuple[Integers, list[_Level]]:
    """Numbers in the order of levels, and the levels. All instructions must be able to run."""
    total, columns = program.num_instructions, program.num_columns
    ones, no_delay = np.ones(total, np.int64), np.zeros(total * columns, np.int64)
    level = sweep(program._replace(duration_ns=ones, delay_ns=no_delay)).end_ns
    assert level.min(initial=1) > 0, "a deadlock has no levels"
    order = np.argsort(level, kind="stable")
    place = np.empty(total + 1, np.int64)
    place[order] = np.arange(total)
    place[total] = total
    row_before = np.arange(-1, total - 1)
    firsts = np.asarray(program.first)
    row_before[firsts[firsts < total]] = total
    before = place[np.asarray(program.before).reshape(columns, total)[:, order]]
    delay_ns = np.asarray(program.delay_ns).reshape(columns, total)[:, order, None]
    bounds = [0, *np.cumsum(np.bincount(level)[1:]).tolist()]
    waits = place[row_before[order]]
    return order, [
        _Level(first, end, waits[first:end], before[:, first:end], delay_ns[:, first:end])
        for first, end in pairwise(bounds)
    ]
