"""Schedules near a given one: its starts as priorities, changed at random, through the list scheduler once more.

From the start or from the end of time in turn: what is squeezed at one end stays loose at the other (after forward-
backward improvement, Li and Willis 1992). What changes: single instructions, all in a window of time, one lane, one
operation of all stages, or every lane.
"""

import numpy as np

from planner.search.synthesis.bounds import period_bounds
from planner.search.synthesis.engine import Engine, Schedule
from planner.search.synthesis.lanes import OPERATIONS, Integers
from planner.search.synthesis.layout import Manner

__all__ = ["best_shaken"]

_WAITS = (0, 0, 100, 50, 20, 10)  # parts of the period that a group may wait for something more urgent; 0: none
_SMALLEST = 256  # part of the period
_SIZES = 11  # each twice the one before
_KINDS = 5


def best_shaken(engine: Engine, start: Schedule, *, times: int, floor_ns: int, seed: int) -> Schedule:
    """The best of a chain of shakes, each from the best so far; never longer than ``start``."""
    random = np.random.default_rng(seed)
    best = start
    for number in range(times):
        if best.step_ns <= floor_ns:
            break
        keys, manner = (best.starts_ns, Manner()) if number < 2 else _changed(engine, best, random)
        schedule = engine.by_priority if number % 2 == 0 else engine.from_the_end
        found = schedule(keys, start.name, manner)
        if found is not None and found.step_ns <= best.step_ns:
            best = found
    return best


def _changed(engine: Engine, schedule: Schedule, random: np.random.Generator) -> tuple[Integers, Manner]:
    """Other keys, and in which manner."""
    period_ns = max(bound.period_ns for bound in period_bounds(engine.problem))
    size = max(1, (period_ns << int(random.integers(_SIZES))) // _SMALLEST)
    num_lanes = engine.problem.num_stages * len(OPERATIONS)
    by_lane = random.integers(-size, size + 1, num_lanes)
    kind = int(random.integers(_KINDS))
    if kind == 0:
        change = random.integers(-size, size + 1, engine.num_instructions)
    elif kind == 1:
        first = int(random.integers(schedule.step_ns))
        end = first + schedule.step_ns * int(random.integers(1, 32)) // 100
        change = by_lane[engine.lane] * ((schedule.starts_ns >= first) & (schedule.starts_ns < end))
    elif kind == 2:
        change = by_lane[engine.lane] * (engine.lane == int(random.integers(num_lanes)))
    elif kind == 3:
        operation = int(random.integers(len(OPERATIONS)))
        change = int(by_lane[0]) * (engine.lane % len(OPERATIONS) == operation)
    else:
        change = by_lane[engine.lane]
    wait = _WAITS[int(random.integers(len(_WAITS)))]
    manner = Manner(wait=period_ns // wait if wait else 0, reserves=int(random.integers(2)))
    return schedule.starts_ns + change, manner
