"""The flat arrays that the inner loops of synthesis work on: lists in plain Python, numpy arrays when compiled."""

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

__all__ = ["NEVER", "Lanes", "Manner", "MutableRow", "Row", "State", "Walk"]

NEVER = 1 << 62
Row = Sequence[int]
MutableRow = MutableSequence[int]


class Lanes(NamedTuple):
    """One entry a lane, but ``limit`` and ``first`` (a group; first: and the end), and the lists of two groupings.

    A lane is one operation of one stage; its instructions, one a micro-batch, run in order. ``offset``: of its
    instructions in arrays of all. ``own``, ``neighbour``: lanes whose instruction of the same number must have ended,
    the second ``delay`` before; ``gate``: one whose instruction must have been started; -1 for none. ``takes``: at
    the start, ``frees``: at the end. ``users``: lanes that wait for a lane. ``members``: of a group.
    ``first``: places of each group in an order. ``stage``: of the lane. ``kept``, ``visits``: of a stage, by a
    visit and how many; ``later``: what its later legs keep; ``stage_first``, ``stages``: of a group.
    """

    counts: Row
    offset: Row
    group: Row
    duration: Row
    own: Row
    neighbour: Row
    delay: Row
    gate: Row
    takes: Row
    frees: Row
    user_first: Row
    users: Row
    limit: Row
    first: Row
    member_first: Row
    members: Row
    stage: Row
    kept: Row
    visits: Row
    later: Row
    stage_first: Row
    stages: Row


class Manner(NamedTuple):
    """How a list schedule is made; whole numbers.

    ``wait``: how long a group may stay idle for an instruction with a lesser key. ``reserves``: for how many visits of
    each later leg a stage's second visit leaves room, whatever they hold.
    """

    wait: int = 0
    reserves: int = 1


class State(NamedTuple):
    """``starts``, ``ends``, ``places``: of each instruction; ``numbers``: by place. ``done``, ``ready``: of a lane.

    ``clock``, ``used``, ``following`` (its next place): of a group. ``held`` (visits), ``left``
    (visits to come): of a stage. ``tree``: earliest starts, in the
    second half those of the groups.
    """

    starts: MutableRow
    ends: MutableRow
    places: MutableRow
    numbers: MutableRow
    done: MutableRow
    ready: MutableRow
    clock: MutableRow
    used: MutableRow
    following: MutableRow
    tree: MutableRow
    held: MutableRow
    left: MutableRow


class Walk(NamedTuple):
    """``moves``: tries; ``heat``: largest allowance; ``floor``: a step that is known to be the least.

    ``path``: places of a critical path; ``undo``: pairs of places.
    """

    moves: int
    heat: int
    floor: int
    seed: int
    path: MutableRow
    undo: MutableRow
