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

from planner.problem.options import Family
from planner.search.lineup import Batch, Lineup
from planner.search.orders import chain_streams
from planner.search.partition import Integers
from planner.search.tables import ClassTables, StageMemory

__all__ = ["Fitting", "fitting"]

Mask = npt.NDArray[np.bool_]


class Fitting(NamedTuple):
    """By candidate."""

    possible: Mask
    sure: Mask


class _Moment(NamedTuple):
    """An instruction of a group: micro-batches in flight on each leg while it runs, its leg, its direction."""

    in_flight: tuple[int, ...]
    leg: int
    is_forward: bool


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
    legs = list(range(group, lineup.num_stages, lineup.num_groups))
    tables = lineup.tables(group, lineup.sizes[0])
    limit = tables.device_class.usable_bytes
    state = np.sum([tables.state_bytes[_span(batch, leg)] for leg in legs], axis=0)
    shared = _shared_state(lineup, tables) if len(legs) > 1 else 0
    allowed = np.all([tables.allowed[_span(batch, leg)] for leg in legs], axis=0)
    smallest, largest = ([_memory(lineup.tables(group, size), batch, leg) for leg in legs] for size in _ends(lineup))
    m = lineup.space.degrees.num_micro_batches
    waits = m if lineup.family == "interleaved" else 2  # beside what is kept, see ClassTables.surely_in_flight
    waiting = np.sum([found.arriving_bytes * waits for found in largest], axis=0)
    waiting = waiting + m * np.sum([found.returning_bytes for found in largest], axis=0)
    moments = _moments(lineup.family, lineup.num_groups, lineup.num_stages, m)[group]
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
    return np.asarray(np.sum(kept, axis=0) + (own.forward_bytes if moment.is_forward else own.backward_bytes))


def _message(moment: _Moment, memory: Sequence[StageMemory]) -> Integers:
    """What the instruction reads."""
    own = memory[moment.leg]
    return own.arriving_bytes if moment.is_forward else own.returning_bytes


def _span(batch: Batch, stage: int) -> tuple[Integers, Integers]:
    return batch.cuts[:, stage], batch.cuts[:, stage + 1]


def _memory(tables: ClassTables, batch: Batch, stage: int) -> StageMemory:
    """By candidate."""
    span, again = _span(batch, stage), batch.recomputes[:, stage]
    pairs = zip(tables.memory(recomputes=True), tables.memory(recomputes=False), strict=True)
    return StageMemory(*(np.where(again, dropped[span], whole[span]) for dropped, whole in pairs))


def _shared_state(lineup: Lineup, tables: ClassTables) -> int:
    """At most this much of a group's state is counted twice, for weights that two of its legs share."""
    own = tables.layer_state_bytes.tolist()
    return sum(
        sum(own[layer] for layer in tied) - max(own[layer] for layer in tied) for tied in lineup.space.graph.tied
    )


@lru_cache(maxsize=256)
def _moments(family: Family, num_groups: int, num_stages: int, num_micro_batches: int) -> tuple[list[_Moment], ...]:
    """By group, each different moment once, without those that another one with the same instruction exceeds."""
    streams = chain_streams(family, num_groups=num_groups, num_stages=num_stages, num_micro_batches=num_micro_batches)
    found = []
    for group, stream in enumerate(streams):
        in_flight = [0] * len(range(group, num_stages, num_groups))
        moments: dict[_Moment, None] = {}
        for instruction in stream:
            leg, is_forward = instruction.stage // num_groups, instruction.operation == "F"
            in_flight[leg] += is_forward
            moments[_Moment(tuple(in_flight), leg, is_forward)] = None
            in_flight[leg] -= not is_forward
        found.append(_largest(moments))
    return tuple(found)


def _largest(moments: Iterable[_Moment]) -> list[_Moment]:
    """Without those that another one with the same instruction exceeds."""
    kept: dict[tuple[int, bool], list[_Moment]] = defaultdict(list)
    for moment in sorted(moments, key=lambda moment: (-sum(moment.in_flight), moment)):
        same = kept[moment.leg, moment.is_forward]
        if not any(_covers(other.in_flight, moment.in_flight) for other in same):
            same.append(moment)
    return [moment for same in kept.values() for moment in same]


def _covers(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))
