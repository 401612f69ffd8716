"""When each instruction of a program runs: one sweep over flat arrays, exact in whole nanoseconds.

Method: a place and a clock for each row; sweep the rows, run each while what its next instruction waits for is done.
An instruction starts at the latest of: end of the one before it in its row, end of each neighbour plus its message.
Messages do not slow each other (``planner.simulate.links`` does that). What cannot end keeps the time -1.

``sweep_rows`` reads lists and arrays alike: Python runs it on lists, ``planner.simulate.compiled`` compiles it.
"""

from typing import NamedTuple, Protocol

import numpy as np

from planner.simulate.arrays import Integers
from planner.simulate.program import Numbers, Program

__all__ = ["NOT_DONE", "Sweep", "Times", "plain_sweep", "sweep_rows"]

NOT_DONE = -1


class Times(NamedTuple):
    """By instruction of a program; an end of -1: it cannot run."""

    start_ns: Integers
    end_ns: Integers


class Sweep(Protocol):
    """A way to run a program; all ways give equal times."""

    def __call__(self, program: Program) -> Times: ...


def plain_sweep(program: Program) -> Times:
    """In plain Python."""
    starts_ns = [0] * program.num_instructions
    ends_ns = [*[NOT_DONE] * program.num_instructions, 0]
    sweep_rows(program.as_lists(), starts_ns, ends_ns)
    return Times(np.array(starts_ns, np.int64), np.array(ends_ns[:-1], np.int64))


def sweep_rows(program: Program, starts_ns: Numbers, ends_ns: Numbers) -> None:
    """Fill in the times; ``ends_ns`` holds -1 for all and a 0 behind them: the end of what is always done.

    One function, though long: a compiled one calls no other.
    """
    first, duration_ns, before, delay_ns = program
    count, total = len(duration_ns), len(before)
    places = first.copy()
    moved = True
    while moved:
        moved = False
        for row in range(len(first) - 1):
            place, stop = places[row], first[row + 1]
            if place == stop:
                continue
            clock_ns = ends_ns[place - 1] if place > first[row] else 0
            while place < stop:
                start_ns = clock_ns
                for index in range(place, total, count):
                    end_ns = ends_ns[before[index]]
                    if end_ns < 0:
                        start_ns = -1
                        break
                    end_ns += delay_ns[index]
                    if end_ns > start_ns:
                        start_ns = end_ns
                if start_ns < 0:
                    break
                starts_ns[place] = start_ns
                clock_ns = start_ns + duration_ns[place]
                ends_ns[place] = clock_ns
                place += 1
            if place > places[row]:
                places[row] = place
                moved = True
