"""An order problem as the flat arrays of the inner loops, forwards in time or backwards.

A lane is one operation of one stage. Backwards in time every wait is turned round: what frees memory there takes it,
and a schedule of the reversed lanes, read from its end, is one of the problem.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.search.synthesis.layout import Lanes
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["OPERATIONS", "Integers", "forward_lanes", "reversed_lanes"]

Integers = npt.NDArray[np.int64]
OPERATIONS = "FIW"  # of stage s: lanes 3 s, 3 s + 1, 3 s + 2
_F, _I, _W = range(len(OPERATIONS))
_NONE = -1


class _Waits(NamedTuple):
    """What one lane waits for."""

    own: int = _NONE
    neighbour: int = _NONE
    delay: int = 0
    gate: int = _NONE


def forward_lanes(problem: OrderProblem) -> Lanes:
    """F waits for the F before it on the route, I for its F and the I behind it, W for its I."""
    waits = []
    for stage in range(problem.num_stages):
        before, behind = problem.before[stage], problem.behind[stage]
        waits += [
            _Waits(neighbour=_lane(before, _F), delay=problem.forward_message_ns[stage]),
            _Waits(_lane(stage, _F), _lane(behind, _I), problem.backward_message_ns[stage]),
            _Waits(_lane(stage, _I)),
        ]
    taking, freeing = _memory(problem)
    return _lanes(problem, waits, taking, freeing)


def reversed_lanes(problem: OrderProblem) -> Lanes:
    """W waits for nothing, I for its W and the I before it on the route, F for its I and the F behind it.

    Nothing keeps the first of them from taking all memory at once, so a stage takes it for a micro-batch only after
    the leg before it on its group has.
    """
    gates = _gates(problem)
    waits = []
    for stage in range(problem.num_stages):
        before, behind = problem.before[stage], problem.behind[stage]
        weight = _lane(stage, _W) if problem.splits(stage) else _NONE
        gate = gates.get(stage, _NONE)
        waits += [
            _Waits(_lane(stage, _I), _lane(behind, _F), problem.forward_message_ns[behind] if behind >= 0 else 0),
            _Waits(
                weight,
                _lane(before, _I),
                problem.backward_message_ns[before] if before >= 0 else 0,
                _NONE if problem.splits(stage) else gate,
            ),
            _Waits(gate=gate),
        ]
    taking, freeing = _memory(problem)
    return _lanes(problem, waits, freeing, taking)


def _lane(stage: int, operation: int) -> int:
    return stage * len(OPERATIONS) + operation if stage >= 0 else _NONE


def _gates(problem: OrderProblem) -> dict[int, int]:
    """Stage -> the lane that frees memory of the leg before it on its group."""
    found: dict[int, int] = {}
    for stage in range(problem.num_stages):
        legs = [stage, *problem.later_legs(stage)]
        for leg, following in pairwise(legs[:2]):
            found[following] = _lane(leg, _W if problem.splits(leg) else _I)
    return found


def _memory(problem: OrderProblem) -> tuple[Integers, Integers]:
    """By lane, forwards in time: what its start takes and what its end frees."""
    taking = np.zeros((problem.num_stages, len(OPERATIONS)), np.int64)
    freeing = np.zeros_like(taking)
    for stage, kept in enumerate(problem.kept):
        taking[stage, _F] = kept
        freeing[stage, _W if problem.splits(stage) else _I] = kept
    return taking.ravel(), freeing.ravel()


def _lanes(problem: OrderProblem, waits: list[_Waits], taking: Integers, freeing: Integers) -> Lanes:
    count = np.array([problem.count(s, operation) for s in range(problem.num_stages) for operation in OPERATIONS])
    group = np.repeat(np.array(problem.group_of_stage, np.int64), len(OPERATIONS))
    users = _users(waits)
    groups = range(problem.num_groups)
    stages = [[s for s, owner in enumerate(problem.group_of_stage) if owner == number] for number in groups]
    members = [np.nonzero((count > 0) & (group == number))[0] for number in groups]
    return Lanes(
        counts=count.tolist(),
        offset=_firsts(count)[:-1],
        group=group.tolist(),
        duration=[problem.duration_ns(s, o) for s in range(problem.num_stages) for o in OPERATIONS],
        own=[wait.own for wait in waits],
        neighbour=[wait.neighbour for wait in waits],
        delay=[wait.delay for wait in waits],
        gate=[wait.gate for wait in waits],
        takes=taking.tolist(),
        frees=freeing.tolist(),
        user_first=_firsts([len(found) for found in users]),
        users=[user for found in users for user in found],
        limit=problem.limit,
        first=_firsts([int(count[group == number].sum()) for number in groups]),
        member_first=_firsts([len(found) for found in members]),
        members=[int(lane) for found in members for lane in found],
        stage=[stage for stage in range(problem.num_stages) for _ in OPERATIONS],
        kept=problem.kept,
        visits=[problem.micro_batches_of(stage) for stage in range(problem.num_stages)],
        later=[sum(problem.kept[leg] for leg in problem.later_legs(s)) for s in range(problem.num_stages)],
        stage_first=_firsts([len(found) for found in stages]),
        stages=[stage for found in stages for stage in found],
    )


def _firsts(sizes: Iterable[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))


def _users(waits: Sequence[_Waits]) -> list[list[int]]:
    """By lane: those that wait for it."""
    found: list[list[int]] = [[] for _ in waits]
    for user, wait in enumerate(waits):
        for lane in {wait.own, wait.neighbour, wait.gate} - {_NONE}:
            found[lane].append(user)
    return found
