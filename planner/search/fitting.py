"""Which candidates of a lineup cannot fit, and which fit whatever the times are.

What visits keep follows from the order of a stream alone: walking it gives every combination of micro-batches in
flight on the legs of a group. Only waiting messages depend on times; with unequal micro-batches the smallest count for
what is possible, the largest for what is sure. A candidate that is neither is for the simulator to judge.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.plan.instruction import Operation
from planner.search.lineup import Batch, Lineup
from planner.search.orders import ChainShape, chain_groups, chain_streams
from planner.search.partition import Integers
from planner.search.tables import ClassTables, StageMemory

__all__ = ["Fitting", "fitting"]

_TWO_WAIT = ("gpipe", "1f1b")  # messages at most, see ClassTables.surely_in_flight
Mask = npt.NDArray[np.bool_]


class Fitting(NamedTuple):
    """By candidate."""

    possible: Mask
    sure: Mask


class _Moment(NamedTuple):
    """An instruction of a group: micro-batches in flight on each leg while it runs, and its leg."""

    in_flight: tuple[int, ...]
    leg: int
    operation: Operation


def fitting(lineup: Lineup, batch: Batch) -> Fitting:
    """Whether each candidate can fit, and whether it surely does, on every group; pins are obeyed too."""
    possible = np.ones(len(batch.cuts), np.bool_)
    sure = possible.copy()
    for group in range(lineup.num_groups):
        found = _of_group(lineup, batch, group)
        possible &= found.possible
        sure &= found.sure
    return Fitting(possible, sure & possible)


def _of_group(lineup: Lineup, batch: Batch, group: int) -> Fitting:
    legs = lineup.legs(group)
    tables = lineup.tables(group, lineup.sizes[0])
    limit = tables.device_class.usable_bytes
    state = np.sum([tables.state_bytes[_span(batch, leg)] for leg in legs], axis=0)
    shared = _shared_state(lineup, tables) if len(legs) > 1 else 0
    allowed = np.all([tables.allowed[_span(batch, leg)] for leg in legs], axis=0)
    smallest, largest = ([_memory(lineup, size, batch, leg) for leg in legs] for size in _ends(lineup))
    m = lineup.space.degrees.num_micro_batches
    waits = 2 if lineup.family in _TWO_WAIT else m  # beside what is kept
    waiting = np.sum([found.arriving_bytes * waits for found in largest], axis=0)
    waiting = waiting + m * np.sum([found.returning_bytes for found in largest], axis=0)
    moments = _moments(lineup.shape)[group]
    least = np.max([_running(moment, smallest) + _message(moment, smallest) for moment in moments], axis=0)
    most = np.max([_running(moment, largest) for moment in moments], axis=0)
    return Fitting((state - shared + least <= limit) & allowed, state + most + waiting <= limit)


def _ends(lineup: Lineup) -> tuple[int, int]:
    """The smallest and the largest micro-batch."""
    return lineup.sizes[0], lineup.sizes[-1]


def _running(moment: _Moment, memory: Sequence[StageMemory]) -> Integers:
    """What is kept, and what the instruction needs while it runs."""
    own = memory[moment.leg]
    kept = [count * found.kept_bytes for count, found in zip(moment.in_flight, memory, strict=True)]
    return np.asarray(np.sum(kept, axis=0) + (own.forward_bytes if moment.operation == "F" else own.backward_bytes))


def _message(moment: _Moment, memory: Sequence[StageMemory]) -> Integers:
    """What the instruction reads; a W reads what its I left."""
    own = memory[moment.leg]
    if moment.operation == "W":
        return np.zeros_like(own.arriving_bytes)
    return own.arriving_bytes if moment.operation == "F" else own.returning_bytes


def _span(batch: Batch, stage: int) -> tuple[Integers, Integers]:
    return batch.cuts[:, stage], batch.cuts[:, stage + 1]


def _memory(lineup: Lineup, size: int, batch: Batch, stage: int) -> StageMemory:
    """By candidate; a hand-over is no message."""
    span, again, tables = _span(batch, stage), batch.recomputes[:, stage], lineup.tables(stage, size)
    keeping = tables.split_memory if lineup.split_stages[stage] else tables.memory(recomputes=False)
    pairs = zip(tables.memory(recomputes=True), keeping, strict=True)
    found = StageMemory(*(np.where(again, dropped[span], whole[span]) for dropped, whole in pairs))
    nothing = np.zeros(len(batch.cuts), np.int64)
    if lineup.hands_over(stage):
        found = found._replace(arriving_bytes=nothing)
    if stage + 1 < lineup.num_stages and lineup.hands_over(stage + 1):
        found = found._replace(returning_bytes=nothing)
    return found


def _shared_state(lineup: Lineup, tables: ClassTables) -> int:
    """At most this much of a group's state is counted twice, for weights that two of its legs share."""
    own = tables.layer_state_bytes.tolist()
    return sum(
        sum(own[layer] for layer in tied) - max(own[layer] for layer in tied) for tied in lineup.space.graph.tied
    )


@lru_cache(maxsize=128)
def _moments(shape: ChainShape) -> tuple[list[_Moment], ...]:
    """By group, each different moment once, without those that another one with the same instruction exceeds."""
    groups = chain_groups(shape.family, shape.num_groups, shape.num_stages)
    found = []
    for group, stream in enumerate(chain_streams(shape)):
        legs = {stage: leg for leg, stage in enumerate(s for s, owner in enumerate(groups) if owner == group)}
        in_flight = [0] * len(legs)
        moments: dict[_Moment, None] = {}
        for operation, stage, _, _ in stream:
            leg = legs[stage]
            in_flight[leg] += operation == "F"
            moments[_Moment(tuple(in_flight), leg, operation)] = None
            in_flight[leg] -= operation in "BW"  # an I keeps what its W needs
        found.append(_largest(moments))
    return tuple(found)


def _largest(moments: Iterable[_Moment]) -> list[_Moment]:
    """Without those that another one with the same instruction exceeds."""
    kept: dict[tuple[int, str], list[_Moment]] = defaultdict(list)
    for moment in sorted(moments, key=lambda moment: (-sum(moment.in_flight), moment)):
        same = kept[moment.leg, moment.operation]
        if not any(_covers(other.in_flight, moment.in_flight) for other in same):
            same.append(moment)
    return [moment for same in kept.values() for moment in same]


def _covers(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))
