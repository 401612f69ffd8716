"""The step that a plan takes at given prices, exact in whole nanoseconds.

The plan and its prices become a flat program (``planner.simulate.program``), a sweep gives the times of its
instructions (``planner.simulate.sweep``), the memory walk the peaks.
"""

from itertools import pairwise

import numpy as np

from planner.costs.prices import PlanPrices
from planner.errors import PlanError, PriceError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.problem.contract import LongestDuration
from planner.schedules.deadlock import deadlock_error
from planner.simulate.arrays import InstructionArrays, instruction_arrays
from planner.simulate.compiled import quickest_sweep
from planner.simulate.memory import peak_bytes
from planner.simulate.program import Program, make_program
from planner.simulate.sweep import Sweep, Times
from planner.simulate.timeline import Event, Timeline

__all__ = ["make_timeline", "require_in_range", "simulate"]

_MOST_TOTAL_NS = 2**62  # of all parts of a step; below it no sum of 64 bits overflows


def simulate(plan: Plan, prices: PlanPrices, *, sweep: Sweep | None = None) -> Timeline:
    """When each instruction runs, the step, and the peak of each group. Raises ``PlanError`` (deadlock),
    ``PriceError`` (range) where the step cannot be counted in 64 bits.

    ``sweep``: None takes the quickest one that is installed; all give the same.
    """
    _require_countable(_longest_ns(prices))
    arrays = instruction_arrays(plan, prices)
    program = make_program(plan, arrays, prices)
    _require_countable(_total_ns(program))
    run = quickest_sweep(program.num_instructions) if sweep is None else sweep
    return make_timeline(plan, arrays, prices, times=run(program))


def require_in_range(timeline: Timeline) -> None:
    """Raises ``PriceError`` (range) where the step is longer than any document can state."""
    if timeline.step_ns > LongestDuration:
        message = f"the step takes {timeline.step_ns} ns, expected at most {LongestDuration} ns"
        raise PriceError(message, code="range", pointer="/prediction/step_ns")


def _longest_ns(prices: PlanPrices) -> int:
    visits = (max(price[:5]) for price in prices.visits.values())
    borders = (max(price[:2]) for price in prices.borders.values())
    return max([*visits, *borders, *prices.sum_ns, *prices.update_ns], default=0)


def _total_ns(program: Program) -> int:
    """About what all parts take one after the other; no step is longer."""
    return int(np.sum(program.duration_ns, dtype=np.float64) + np.sum(program.delay_ns, dtype=np.float64))


def _require_countable(time_ns: int) -> None:
    if time_ns > _MOST_TOTAL_NS:
        message = f"parts of the step take {time_ns} ns, expected a step of at most {LongestDuration} ns"
        raise PriceError(message, code="range", pointer="/prediction/step_ns")


def make_timeline(plan: Plan, arrays: InstructionArrays, prices: PlanPrices, *, times: Times) -> Timeline:
    """The timeline of a plan from the times of its program. Raises ``PlanError`` where some have no end."""
    count = arrays.first[-1]
    starts_ns, ends_ns = times.start_ns[:count], times.end_ns[:count]
    if ends_ns.min(initial=0) < 0:
        raise _deadlock(plan, arrays, ends_ns.tolist())
    starts, ends = starts_ns.tolist(), ends_ns.tolist()
    events = tuple(
        tuple(map(Event, stream, starts[first:end], ends[first:end]))
        for stream, (first, end) in zip(plan.instructions, pairwise(arrays.first), strict=True)
    )
    return Timeline(
        events=events,
        step_ns=int(times.end_ns.max(initial=0)),
        num_ranks=tuple(len(ranks) for ranks in plan.groups),
        peak_bytes=peak_bytes(arrays, starts_ns, ends_ns, state_bytes=prices.state_bytes),
    )


def _deadlock(plan: Plan, arrays: InstructionArrays, ends_ns: list[int]) -> PlanError:
    blocked: dict[int, int] = {}
    done: set[Instruction] = set()
    for group, (stream, (first, end)) in enumerate(zip(plan.instructions, pairwise(arrays.first), strict=True)):
        place = next((place for place, end_ns in enumerate(ends_ns[first:end]) if end_ns < 0), None)
        done.update(stream[:place])
        if place is not None:
            blocked[group] = place
    dependencies = Dependencies(plan)
    return deadlock_error(plan, blocked, dependencies=dependencies, is_done=done.__contains__)
