"""Polish the schedule of a small order problem with CP-SAT, or prove that it is the best.

One start for each instruction; instructions of a lane in order, one no-overlap a group, waits and messages; memory of a
group with one stage as the precedence "F of i after the end of i - k", of several stages as cumulative lifetimes. The
horizon is the schedule's step, every variable is hinted to the tick, the bound is in the objective's domain. Ticks are
coarse, at least 10 to the shortest operation; only the order is kept and re-timed exactly. The solver's bound counts
only where a tick is exact. One worker, a seed and a deterministic limit: the same answer every time.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from planner.errors import SolverError
from planner.search.synthesis.bounds import best_step_bound
from planner.search.synthesis.engine import Engine, Schedule
from planner.search.synthesis.kernels import plain_kernels
from planner.search.synthesis.lanes import Integers
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["MOST_INSTRUCTIONS", "PolishLimits", "Polished", "polish"]

MOST_INSTRUCTIONS = 2_000  # more are refused before a model is built
_TICKS = 10  # of the shortest operation, at least


class PolishLimits(NamedTuple):
    """``ticks``: of the shortest operation, at least; ``None`` keeps the exact times. Work in CP-SAT's own seconds."""

    deterministic_s: float = 10.0
    ticks: int | None = _TICKS
    seed: int = 0


@dataclass(frozen=True)
class Polished:
    """``bound_ns``: proven below every schedule, where the ticks were exact."""

    schedule: Schedule
    bound_ns: int | None

    @property
    def is_optimal(self) -> bool:
        return self.bound_ns == self.schedule.step_ns


def polish(engine: Engine, start: Schedule, limits: PolishLimits | None = None) -> Polished:
    """The best order found from ``start``; never longer. Raises ``SolverError`` (too_large) beyond the size."""
    limits = limits or PolishLimits()
    if engine.num_instructions > MOST_INSTRUCTIONS:
        message = f"found {engine.num_instructions} instructions, expected at most {MOST_INSTRUCTIONS} for CP-SAT"
        raise SolverError(message, code="too_large")
    tick_ns = 1 if limits.ticks is None else max(1, _shortest_ns(engine.problem) // limits.ticks)
    coarse = Engine(_in_ticks(engine.problem, tick_ns), plain_kernels())
    hint = coarse.of_order(start.order, start.name)
    assert hint is not None, "rounding changes no order"
    model = _Model(coarse, hint)
    order = model.solve(limits)
    found = engine.of_order(order, f"{start.name}, polished") if order is not None else None
    better = found if found is not None and found.step_ns < start.step_ns else start
    return Polished(better, model.bound if tick_ns == 1 else None)


def _shortest_ns(problem: OrderProblem) -> int:
    durations = (*problem.forward_ns, *problem.backward_input_ns, *problem.backward_weight_ns)
    return min((duration for duration in durations if duration), default=1)


def _in_ticks(problem: OrderProblem, tick_ns: int) -> OrderProblem:
    """Rounded to the nearest tick; what took time still does."""

    def rounded(times_ns: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(min(time_ns, 1), (time_ns + tick_ns // 2) // tick_ns) for time_ns in times_ns)

    return replace(
        problem,
        forward_ns=rounded(problem.forward_ns),
        backward_input_ns=rounded(problem.backward_input_ns),
        backward_weight_ns=rounded(problem.backward_weight_ns),
        forward_message_ns=rounded(problem.forward_message_ns),
        backward_message_ns=rounded(problem.backward_message_ns),
    )


class _Model:
    """Instructions are numbered as in the engine: lane by lane, micro-batches in order."""

    def __init__(self, engine: Engine, hint: Schedule) -> None:
        self._engine, self._lanes, self._hint = engine, engine.lanes, hint
        self._model = cp_model.CpModel()
        horizon = hint.step_ns
        self.bound = best_step_bound(engine.problem).step_ns
        self._starts = [self._hinted(0, horizon, int(start)) for start in hint.starts_ns]
        self._durations = [self._lanes.duration[lane] for lane in engine.lane.tolist()]
        self._step = self._hinted(self.bound, horizon, horizon)
        self._instructions_wait()
        self._groups_do_one_thing()
        for group in range(engine.problem.num_groups):
            self._memory_is_enough(group)
        self._model.minimize(self._step)

    def _hinted(self, low: int, high: int, value: int) -> cp_model.IntVar:
        variable = self._model.new_int_var(low, high, "")
        self._model.add_hint(variable, value)
        return variable

    def _end(self, index: int) -> cp_model.LinearExprT:
        return self._starts[index] + self._durations[index]

    def _instructions_wait(self) -> None:
        """After the one before in the lane, the own stage's and the neighbour's; all before the end of the step."""
        for index, start in enumerate(self._starts):
            lane, number = int(self._engine.lane[index]), int(self._engine.number[index])
            if number:
                self._model.add(start >= self._end(index - 1))
            if self._lanes.own[lane] >= 0:
                self._model.add(start >= self._end(self._lanes.offset[self._lanes.own[lane]] + number))
            if self._lanes.neighbour[lane] >= 0:
                sender = self._lanes.offset[self._lanes.neighbour[lane]] + number
                self._model.add(start >= self._end(sender) + self._lanes.delay[lane])
            self._model.add(self._end(index) <= self._step)

    def _groups_do_one_thing(self) -> None:
        for group in range(self._engine.problem.num_groups):
            self._model.add_no_overlap(
                self._model.new_fixed_size_interval_var(self._starts[index], self._durations[index], "")
                for index in range(len(self._starts))
                if self._lanes.group[int(self._engine.lane[index])] == group
            )

    def _memory_is_enough(self, group: int) -> None:
        problem = self._engine.problem
        limit = problem.limit[group]
        stages = [s for s, owner in enumerate(problem.group_of_stage) if owner == group and problem.kept[s]]
        if len(stages) == 1:
            self._one_stage(stages[0], limit // problem.kept[stages[0]])
        elif stages:
            lifetimes = [self._lifetime(stage, n) for stage in stages for n in range(problem.micro_batches_of(stage))]
            demands = [problem.kept[stage] for stage in stages for _ in range(problem.micro_batches_of(stage))]
            self._model.add_cumulative(lifetimes, demands, limit)

    def _first_and_last(self, stage: int) -> tuple[int, int]:
        """Where F and the last backward of a stage begin among all instructions."""
        last = 2 if self._engine.problem.splits(stage) else 1
        return self._lanes.offset[3 * stage], self._lanes.offset[3 * stage + last]

    def _one_stage(self, stage: int, most: int) -> None:
        """F of i >= end of i - k"""
        first, last = self._first_and_last(stage)
        for number in range(most, self._engine.problem.micro_batches_of(stage)):
            self._model.add(self._starts[first + number] >= self._end(last + number - most))

    def _lifetime(self, stage: int, number: int) -> cp_model.IntervalVar:
        """From the start of F to the end of the last backward; its length is hinted too."""
        first, last = (offset + number for offset in self._first_and_last(stage))
        starts = self._hint.starts_ns
        length = int(starts[last] - starts[first]) + self._durations[last]
        size = self._hinted(1, self._hint.step_ns, length)
        return self._model.new_interval_var(self._starts[first], size, self._end(last), "")

    def solve(self, limits: PolishLimits) -> Integers | None:
        """The order found, if any; sets the bound."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = limits.seed
        solver.parameters.max_deterministic_time = limits.deterministic_s
        status = solver.solve(self._model)
        self.bound = max(self.bound, int(solver.best_objective_bound)) if status != cp_model.UNKNOWN else self.bound
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        starts = np.array([solver.value(start) for start in self._starts], np.int64)
        groups = np.array(self._lanes.group, np.int64)[self._engine.lane]
        return np.asarray(self._engine.lane[np.lexsort((starts + self._durations, starts, groups))], np.int64)
