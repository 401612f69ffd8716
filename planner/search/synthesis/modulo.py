"""Modulo scheduling: the shortest period at which one micro-batch on each route can be repeated within the limits.

One micro-batch a route, start = slot + T k. On each group the slots do not meet modulo T; precedences hold for the
absolute starts; memory counts, for each group, the sum of kept x ceil(lifetime / T) over its stages: exact for one
stage a group, an upper count for several. T is raised from the bound until CP-SAT finds slots; each T before is proven
infeasible under this count. The programme does not grow with the number of micro-batches. One worker, a seed and a
deterministic limit: the same answer every time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from planner.search.synthesis.bounds import period_bounds
from planner.search.synthesis.engine import Engine
from planner.search.synthesis.lanes import OPERATIONS, Integers
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["Period", "PeriodSearch", "Slots", "least_period", "periodic_keys", "slots_at"]

Status = Literal["feasible", "infeasible", "unknown"]
_DETERMINISTIC_LIMIT = 60.0  # of CP-SAT's own clock, for one T


class Slots(NamedTuple):
    """``starts_ns``: of F, I and W of each stage for micro-batch 0; empty unless feasible."""

    status: Status
    starts_ns: tuple[tuple[int, ...], ...] = ()


class Period(NamedTuple):
    """One T that was tried."""

    period_ns: int
    slots: Slots


@dataclass(frozen=True)
class PeriodSearch:
    """``tried``: ascending; the last is feasible if any is. ``is_proven``: every shorter one is infeasible."""

    bound_ns: int
    tried: tuple[Period, ...]

    @property
    def best(self) -> Period | None:
        return self.tried[-1] if self.tried and self.tried[-1].slots.status == "feasible" else None

    @property
    def is_proven(self) -> bool:
        return self.best is not None and all(one.slots.status == "infeasible" for one in self.tried[:-1])


def least_period(problem: OrderProblem, *, most_ns: int, step_ns: int = 1, seed: int = 0) -> PeriodSearch:
    """From the bound up to ``most_ns`` in steps; with steps above 1 the proof is for the tried ones."""
    bound_ns = max(bound.period_ns for bound in period_bounds(problem))
    tried = []
    for period_ns in range(bound_ns, most_ns + 1, step_ns):
        tried.append(Period(period_ns, slots_at(problem, period_ns, seed=seed)))
        if tried[-1].slots.status == "feasible":
            break
    return PeriodSearch(bound_ns, tuple(tried))


def slots_at(problem: OrderProblem, period_ns: int, *, seed: int = 0) -> Slots:
    """Whether one micro-batch a route fits every ``period_ns``, and when each instruction starts."""
    model = cp_model.CpModel()
    variables = _Variables(model, problem, period_ns)
    _groups_do_one_thing(model, variables, problem, period_ns)
    _memory_is_enough(model, variables, problem)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = _DETERMINISTIC_LIMIT
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Slots("infeasible")
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Slots("unknown")
    starts = {key: solver.value(start) for key, start in variables.starts.items()}
    rows = [[starts[stage, o] for o in OPERATIONS if (stage, o) in starts] for stage in range(problem.num_stages)]
    return Slots("feasible", tuple(map(tuple, rows)))


def periodic_keys(engine: Engine, period: Period) -> Integers:
    """Starts of all micro-batches as priorities for the list scheduler, which squeezes warm-up and drain."""
    first = np.array([[*starts, 0][: len(OPERATIONS)] for starts in period.slots.starts_ns], np.int64)
    return np.asarray(first.ravel()[engine.lane] + engine.number * period.period_ns, np.int64)


class _Steps:
    """What follows what in one micro-batch, each with the time between the two starts if nothing waits."""

    def __init__(self, problem: OrderProblem, route: Sequence[int]) -> None:
        chain = [(stage, "F") for stage in route] + [(stage, "I") for stage in reversed(route)]
        self.chain = chain
        self.between_ns = [
            problem.duration_ns(*one) + self._message_ns(problem, one, other) for one, other in pairwise(chain)
        ]

    @staticmethod
    def _message_ns(problem: OrderProblem, one: tuple[int, str], other: tuple[int, str]) -> int:
        if one[0] == other[0]:
            return 0
        return (problem.forward_message_ns if other[1] == "F" else problem.backward_message_ns)[other[0]]


class _Variables:
    """``slots[stage]``: of F, I and, where it is split, W, modulo T. ``passed[stage]``: whole periods from the start
    of the route's first F to each of them. ``alive``: how many micro-batches a stage keeps at most.

    Nobody waits as long as T: all that follows in the micro-batch could be a period earlier, and no lifetime grows.
    """

    def __init__(self, model: cp_model.CpModel, problem: OrderProblem, period_ns: int) -> None:
        self._model = model
        self._period_ns = period_ns
        self.starts: dict[tuple[int, str], cp_model.LinearExprT] = {}
        self.slots: dict[tuple[int, str], cp_model.LinearExprT] = {}
        for number, route in enumerate(problem.routes):
            steps = _Steps(problem, route)
            first_slot = model.new_int_var(0, period_ns - 1 if number else 0, "")  # one may be chosen
            self.starts[steps.chain[0]] = self.slots[steps.chain[0]] = first_slot
            for (one, other), between_ns in zip(pairwise(steps.chain), steps.between_ns, strict=True):
                self._follow(one, other, between_ns)
            for stage in route:
                if problem.splits(stage):
                    self._follow((stage, "I"), (stage, "W"), problem.duration_ns(stage, "I"))
        self.alive = [self._alive(problem, stage) for stage in range(problem.num_stages)]

    def _follow(self, one: tuple[int, str], other: tuple[int, str], between_ns: int) -> None:
        """start = start of the one before + between + wait, wait < T; slot = the same modulo T"""
        period_ns = self._period_ns
        wait = self._model.new_int_var(0, period_ns - 1, "")
        slot = self._model.new_int_var(0, period_ns - 1, "")
        least = between_ns // period_ns
        wraps = self._model.new_int_var(least, least + 2, "")
        self._model.add(slot + period_ns * wraps == self.slots[one] + between_ns + wait)
        self.starts[other] = self.starts[one] + between_ns + wait
        self.slots[other] = slot

    def _alive(self, problem: OrderProblem, stage: int) -> cp_model.IntVar:
        """T alive >= end of the last instruction - start of F"""
        limit = problem.limit[problem.group_of_stage[stage]]
        alive = self._model.new_int_var(1, max(1, limit // max(1, problem.kept[stage])), "")
        last = "W" if problem.splits(stage) else "I"
        end = self.starts[stage, last] + problem.duration_ns(stage, last)
        self._model.add(self._period_ns * alive >= end - self.starts[stage, "F"])
        return alive


def _groups_do_one_thing(model: cp_model.CpModel, variables: _Variables, problem: OrderProblem, period_ns: int) -> None:
    """The intervals of a group and the same shifted by T do not meet within [0, 2T)."""
    for group in range(problem.num_groups):
        intervals = [
            model.new_fixed_size_interval_var(slot + shift, problem.duration_ns(stage, operation), "")
            for (stage, operation), slot in variables.slots.items()
            if problem.group_of_stage[stage] == group
            for shift in (0, period_ns)
        ]
        model.add_no_overlap(intervals)


def _memory_is_enough(model: cp_model.CpModel, variables: _Variables, problem: OrderProblem) -> None:
    """sum kept x alive <= limit"""
    for group, limit in enumerate(problem.limit):
        model.add(sum(problem.kept[s] * variables.alive[s] for s in _stages_of(problem, group)) <= limit)


def _stages_of(problem: OrderProblem, group: int) -> Sequence[int]:
    return [stage for stage, owner in enumerate(problem.group_of_stage) if owner == group]
