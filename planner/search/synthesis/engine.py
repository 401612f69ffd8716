"""Schedules of one order problem: made by priority from either end of time, re-timed, improved by walking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from planner.plan.instruction import Instruction, Operation
from planner.search.synthesis.kernels import Kernels
from planner.search.synthesis.lanes import OPERATIONS, Integers, forward_lanes, reversed_lanes
from planner.search.synthesis.layout import NEVER, Lanes, Manner, State, Walk
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["Engine", "OnWork", "Schedule", "WalkEffort", "nobody"]


OnWork = Callable[[int], None]
_WALKED = ", walked"
_MOVES = 10  # of a walk take as long as one schedule
_USUAL = Manner()


def nobody(_: int) -> None:
    """Nobody counts."""


@dataclass(frozen=True)
class Schedule:
    """``order``: lanes group by group; ``starts_ns``: by instruction, lane by lane in order of micro-batch."""

    step_ns: int
    order: Integers
    starts_ns: Integers
    name: str


class WalkEffort(NamedTuple):
    """``moves``: tries. ``heat_ns``: how much longer than the last order the next may be in the beginning."""

    moves: int
    heat_ns: int
    seed: int


class Engine:
    """Tables are made once; schedules of one engine share nothing that changes.

    ``on_work`` is told before each schedule and each walk how many instructions will be handled; it may end everything
    by an exception.
    """

    def __init__(self, problem: OrderProblem, kernels: Kernels, on_work: OnWork = nobody) -> None:
        self.problem = problem
        self._kernels = kernels
        self._on_work = on_work
        self.lanes = forward_lanes(problem)
        self._forward, self._backward = self._rows(self.lanes), self._rows(reversed_lanes(problem))
        count, offset = np.asarray(self.lanes.counts), np.asarray(self.lanes.offset)
        self.lane = np.repeat(np.arange(len(count)), count)  # of each instruction
        self.number = np.arange(len(self.lane)) - offset[self.lane]  # its micro-batch on the route
        self._mirrored = offset[self.lane] + count[self.lane] - 1 - self.number
        self._states = (self._state(), self._state())

    def _rows(self, lanes: Lanes) -> Lanes:
        return Lanes(*(self._kernels.row(np.array(row, np.int64)) for row in lanes))

    def _state(self) -> State:
        many, few, groups = len(self.lane), len(self.lanes.counts), self.problem.num_groups
        stages = self.problem.num_stages
        leaves = 2 << (groups - 1).bit_length()  # and their parents
        sizes = (many, many, many, many, few, few, groups, groups, groups, leaves, stages, stages)
        return State(*(self._kernels.row(np.zeros(size, np.int64)) for size in sizes))

    @property
    def num_instructions(self) -> int:
        return len(self.lane)

    def by_priority(self, keys: Integers, name: str, manner: Manner = _USUAL) -> Schedule | None:
        """Forwards in time, least key first; None where memory locks the groups."""
        self._on_work(len(keys))
        order = self._kernels.row(np.zeros(len(keys), np.int64))
        state = self._states[0]
        step_ns = self._kernels.list_schedule(self._forward, self._kernels.row(keys), manner, order, state)
        return self._schedule(step_ns, np.array(order, np.int64), name) if step_ns >= 0 else None

    def from_the_end(self, keys: Integers, name: str, manner: Manner = _USUAL) -> Schedule | None:
        """Backwards in time, greatest key first, then re-timed; None where memory locks the groups."""
        self._on_work(len(keys))
        order = self._kernels.row(np.zeros(len(keys), np.int64))
        mirrored = self._kernels.row(-keys[self._mirrored])
        if self._kernels.list_schedule(self._backward, mirrored, manner, order, self._states[0]) < 0:
            return None
        first = np.asarray(self.lanes.first)
        streams = [np.array(order[a:b], np.int64)[::-1] for a, b in pairwise(first)]
        return self.of_order(np.concatenate(streams), name)

    def one_at_a_time(self) -> Schedule | None:
        """One micro-batch after the other, routes in turn; None where a group cannot keep even one."""
        problem = self.problem
        stage, operation = np.divmod(self.lane, len(OPERATIONS))
        places = {s: place for route in problem.routes for place, s in enumerate(route)}
        place = np.array([places[s] for s in range(problem.num_stages)], np.int64)[stage]
        route = np.array(problem.route_of_stage, np.int64)[stage]
        group = np.array(problem.group_of_stage, np.int64)[stage]
        way = np.where(operation == 0, place, 2 * problem.num_stages - place)
        return self.of_order(self.lane[np.lexsort((operation, way, route, self.number, group))], "one at a time")

    def of_order(self, order: Integers, name: str) -> Schedule | None:
        """An order re-timed; None where it cannot go on or does not fit the limits."""
        self._on_work(len(order) // 2)
        row, state = self._kernels.row(order), self._states[0]
        if not all(self._kernels.fits(self._forward, row, group) for group in range(self.problem.num_groups)):
            return None
        step_ns = self._kernels.retime(self._forward, row, NEVER, state)
        return self._schedule(step_ns, order, name) if step_ns >= 0 else None

    def walked(self, start: Schedule, effort: WalkEffort, *, floor_ns: int) -> Schedule:
        """The best order met on a walk from ``start``; never longer. Ends at ``floor_ns``."""
        self._on_work(effort.moves * len(start.order) // _MOVES)
        row = self._kernels.row
        order, best = row(start.order.copy()), row(start.order.copy())
        path, undo = row(np.zeros(len(start.order), np.int64)), row(np.zeros(8, np.int64))
        plan = Walk(effort.moves, effort.heat_ns, floor_ns, effort.seed, path, undo)
        self._kernels.walk(self._forward, order, best, self._states, plan)
        found = self.of_order(np.array(best, np.int64), f"{start.name.removesuffix(_WALKED)}{_WALKED}")
        assert found is not None, "a walk keeps to orders that end and fit"
        return found if found.step_ns < start.step_ns else start

    def _schedule(self, step_ns: int, order: Integers, name: str) -> Schedule:
        return Schedule(int(step_ns), order, np.array(self._states[0].starts, np.int64), name)

    def order_of(self, streams: Sequence[Sequence[Instruction]]) -> Integers | None:
        """Streams of this placement's stages as an order: B stands for I and W. None where visits are missing."""
        lanes = [lane for stream in streams for one in stream for lane in self._lanes_of(one)]
        whole = np.array_equal(np.bincount(lanes, minlength=len(self.lanes.counts)), self.lanes.counts)
        return np.array(lanes, np.int64) if whole else None

    def _lanes_of(self, instruction: Instruction) -> list[int]:
        splits = self.problem.splits(instruction.stage)
        operations = {"F": "F", "B": "IW", "I": "I", "W": "W"}.get(instruction.operation, "")
        first = instruction.stage * len(OPERATIONS)
        return [first + OPERATIONS.index(o) for o in operations if splits or o != "W"]

    def streams(self, schedule: Schedule) -> list[list[Instruction]]:
        """One stream a group; numbers count the micro-batches of the route. B where a stage does not split W."""
        done = [0] * len(self.lanes.counts)
        names: list[tuple[Operation, int]] = []
        for stage in range(self.problem.num_stages):
            names += [("F", stage), ("I" if self.problem.splits(stage) else "B", stage), ("W", stage)]
        found: list[list[Instruction]] = [[] for _ in range(self.problem.num_groups)]
        for lane in schedule.order.tolist():
            operation, stage = names[lane]
            found[self.problem.group_of_stage[stage]].append(Instruction(operation, stage, done[lane]))
            done[lane] += 1
        return found
