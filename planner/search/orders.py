"""The streams of a family on a chain, flattened into one order in which every instruction stands behind its causes.

The order depends on the shape alone, never on durations: replaying many candidates of one shape is one pass over it.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from planner.plan.instruction import Instruction
from planner.problem.options import Family
from planner.schedules.gpipe import gpipe
from planner.schedules.interleaved import interleaved
from planner.schedules.one_f_one_b import one_f_one_b
from planner.schedules.shape import Shape, Streams

__all__ = ["Entry", "chain_order", "chain_streams"]

_FAMILIES: Mapping[Family, Callable[[Shape], Streams]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
}


class Entry(NamedTuple):
    """One instruction: places in the order of the one before it on its group and of what it gets a message from.

    A place of -1: nothing.
    """

    is_forward: bool
    stage: int
    micro_batch: int
    before: int
    giver: int


def chain_streams(family: Family, *, num_groups: int, num_stages: int, num_micro_batches: int) -> Streams:
    """The streams of a chain of stages dealt round robin to groups, without slices."""
    return _FAMILIES[family](Shape(num_groups, num_stages, (1,) * num_micro_batches))


@lru_cache(maxsize=256)
def chain_order(family: Family, num_groups: int, num_stages: int, num_micro_batches: int) -> tuple[Entry, ...]:
    """The order; a stream that cannot go on would be a fault of the family."""
    streams = chain_streams(family, num_groups=num_groups, num_stages=num_stages, num_micro_batches=num_micro_batches)
    places: dict[Instruction, int] = {}
    order: list[Entry] = []
    heads, last = [0] * num_groups, [-1] * num_groups
    moved = True
    while moved:
        moved = False
        for group, stream in enumerate(streams):
            while heads[group] < len(stream):
                found = _entry(stream[heads[group]], places, last[group], num_stages)
                if found is None:
                    break
                last[group] = places[stream[heads[group]]] = len(order)
                order.append(found)
                heads[group] += 1
                moved = True
    assert len(order) == 2 * num_stages * num_micro_batches, f"{family} does not end: {heads}"
    return tuple(order)


def _entry(instruction: Instruction, places: Mapping[Instruction, int], before: int, num_stages: int) -> Entry | None:
    """None while its giver has not run."""
    is_forward = instruction.operation == "F"
    giver = instruction._replace(stage=instruction.stage + (-1 if is_forward else 1))
    place = places.get(giver, -1)
    if place < 0 and 0 <= giver.stage < num_stages:
        return None
    return Entry(is_forward, instruction.stage, instruction.number, before, place)
