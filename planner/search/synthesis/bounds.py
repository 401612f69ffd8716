"""Lower bounds that hold for every schedule of a placement, and for every period; each names its model.

Of a step (h = earliest start of a stage, R = least time from the start of its F to the end of its I, both with
messages; work, kept bytes and limits by group):

- ``head_work``: least h, all work, and what must follow the group's last instruction;
- ``head_way_back``: least h, all F and I, and the way back from the stage that is nearest to its route's start;
- ``memory_area``: least h, and kept bytes x shortest lifetime of all visits over the limit;
- ``memory_head``: before a group's first I nothing but F can run, and no more of them than fit;
- ``one_micro_batch``: the way of one micro-batch there and back.

Of a period (one micro-batch on each route): ``work`` and ``memory_area``, without heads.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["PeriodBound", "StepBound", "best_step_bound", "period_bounds", "step_bounds"]

StepModel = Literal["head_work", "head_way_back", "memory_area", "memory_head", "one_micro_batch"]
PeriodModel = Literal["work", "memory_area"]


class StepBound(NamedTuple):
    """No schedule of the placement takes a shorter step."""

    model: StepModel
    step_ns: int


class PeriodBound(NamedTuple):
    """No schedule of the placement starts one micro-batch on each route more often."""

    model: PeriodModel
    period_ns: int


def best_step_bound(problem: OrderProblem) -> StepBound:
    """The greatest of ``step_bounds``; of equal ones the first."""
    return max(step_bounds(problem), key=lambda bound: bound.step_ns)


def step_bounds(problem: OrderProblem) -> tuple[StepBound, ...]:
    """One of each model."""
    ways = [_way(problem, stage) for stage in range(problem.num_stages)]
    groups = [_Group(problem, ways, group) for group in range(problem.num_groups)]
    return (
        StepBound("head_work", max(group.head_work_ns() for group in groups)),
        StepBound("head_way_back", max(group.head_way_back_ns() for group in groups)),
        StepBound("memory_area", max(group.memory_area_ns() for group in groups)),
        StepBound("memory_head", max(group.memory_head_ns() for group in groups)),
        StepBound(
            "one_micro_batch",
            max(ways[route[0]].there_and_back_ns + ways[route[0]].back_ns for route in problem.routes),
        ),
    )


def period_bounds(problem: OrderProblem) -> tuple[PeriodBound, ...]:
    """One of each model, for one micro-batch on each route."""
    ways = [_way(problem, stage) for stage in range(problem.num_stages)]
    work, area = [0] * problem.num_groups, [0] * problem.num_groups
    for stage, group in enumerate(problem.group_of_stage):
        work[group] += problem.work_ns(stage)
        area[group] += problem.kept[stage] * ways[stage].lifetime_ns
    needed = [-(-total // max(1, limit)) for total, limit in zip(area, problem.limit, strict=True)]
    return (PeriodBound("work", max(work)), PeriodBound("memory_area", max(needed)))


@dataclass(frozen=True)
class _Way:
    """Of one micro-batch and one stage: when F can start; from its start to the end of I; what follows its I.

    ``back_ns``: its own W and the I before it on the route with their W, at least.
    """

    head_ns: int
    there_and_back_ns: int
    back_ns: int
    lifetime_ns: int
    input_start_ns: int


def _way(problem: OrderProblem, stage: int) -> _Way:
    head, place = 0, stage
    while problem.before[place] >= 0:
        head += problem.forward_message_ns[place]
        place = problem.before[place]
        head += problem.forward_ns[place]
    there_and_back, place = problem.forward_ns[stage] + problem.backward_input_ns[stage], stage
    while problem.behind[place] >= 0:
        there_and_back += problem.backward_message_ns[place]
        place = problem.behind[place]
        there_and_back += (
            problem.forward_message_ns[place] + problem.forward_ns[place] + problem.backward_input_ns[place]
        )
    weight = problem.backward_weight_ns[stage]
    return _Way(
        head_ns=head,
        there_and_back_ns=there_and_back,
        back_ns=max(weight, _way_to_the_start(problem, stage)),
        lifetime_ns=there_and_back + weight,
        input_start_ns=head + there_and_back - problem.backward_input_ns[stage],
    )


def _way_to_the_start(problem: OrderProblem, stage: int) -> int:
    """From the end of I to the end of the last I before it on the route, or of a W there."""
    passed, longest, place = 0, 0, problem.before[stage]
    while place >= 0:
        passed += problem.backward_message_ns[place] + problem.backward_input_ns[place]
        longest = max(longest, passed + problem.backward_weight_ns[place])
        place = problem.before[place]
    return longest


class _Group:
    """The bounds of one group."""

    def __init__(self, problem: OrderProblem, ways: list[_Way], group: int) -> None:
        self._problem = problem
        self._ways = ways
        self._stages = [stage for stage, owner in enumerate(problem.group_of_stage) if owner == group]
        self._limit = problem.limit[group]
        self._work_ns = problem.group_work_ns[group]
        self._head_ns = min(ways[stage].head_ns for stage in self._stages)

    def head_work_ns(self) -> int:
        """The last instruction may be a W, which nothing follows; else it is some stage's last backward."""
        splits = any(self._problem.splits(stage) for stage in self._stages)
        tail = 0 if splits else min(self._ways[stage].back_ns for stage in self._stages)
        return self._head_ns + self._work_ns + tail

    def head_way_back_ns(self) -> int:
        """All F and I come before the end of the last I."""
        weights = sum(self._problem.backward_weight_ns[s] * self._problem.micro_batches_of(s) for s in self._stages)
        return self._head_ns + self._work_ns - weights + min(self._ways[stage].back_ns for stage in self._stages)

    def memory_area_ns(self) -> int:
        area = sum(
            self._problem.kept[s] * self._problem.micro_batches_of(s) * self._ways[s].lifetime_ns for s in self._stages
        )
        return self._head_ns + -(-area // max(1, self._limit))

    def memory_head_ns(self) -> int:
        """F that fit: those that take the longest for what they keep."""
        room = max(self._limit * self._problem.forward_ns[s] // max(1, self._problem.kept[s]) for s in self._stages)
        first_input = min(self._ways[stage].input_start_ns for stage in self._stages)
        forwards = sum(self._problem.forward_ns[s] * self._problem.micro_batches_of(s) for s in self._stages)
        return first_input + self._work_ns - min(room, forwards)
