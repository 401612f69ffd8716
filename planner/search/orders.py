"""What the search knows of a schedule family: where its stages lie, what it splits, and its streams in one order.

In that order every instruction stands behind its causes. It depends on the shape alone, never on durations: replaying
many candidates of one shape is one pass over it. All of it is asked of the registry of families.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from planner.errors import PlanError
from planner.plan.instruction import FORWARD, Instruction, Operation
from planner.problem.options import Family
from planner.schedules.families import FAMILIES, family_lists
from planner.schedules.family import FamilyShape
from planner.schedules.placements import line, loop, v, wave
from planner.schedules.shape import Streams

__all__ = [
    "ChainShape",
    "Entry",
    "chain_groups",
    "chain_order",
    "chain_splits",
    "chain_streams",
    "serves",
    "splits_backward",
]


class ChainShape(NamedTuple):
    """A family on a chain of stages, without slices."""

    family: Family
    num_groups: int
    num_stages: int
    num_micro_batches: int

    @property
    def num_instructions(self) -> int:
        """At most."""
        return self.num_stages * self.num_micro_batches * (3 if splits_backward(self.family) else 2)


class Entry(NamedTuple):
    """One instruction: places in the order of the one before it on its group and of what it gets a message from.

    A place of -1: nothing.
    """

    operation: Operation
    stage: int
    micro_batch: int
    before: int
    giver: int


@lru_cache(maxsize=256)
def chain_groups(family: Family, num_groups: int, num_stages: int) -> tuple[int, ...]:
    """The group of each stage; the first ``num_groups`` stages lie on groups 0, 1, 2 ... whatever the family."""
    placement = FAMILIES[family].placement
    if placement == "line":
        found = line(num_groups)
    elif placement == "loop":
        found = loop(num_groups, num_stages)
    elif placement == "v":
        found = v(num_groups)
    else:
        assert placement == "wave", f"{family} lies in {placement}"
        found = wave(num_groups, num_stages)
    assert len(found) == num_stages, f"{family} on {num_groups} groups has {len(found)} stages, not {num_stages}"
    return tuple(found)


@lru_cache(maxsize=64)
def splits_backward(family: Family) -> bool:
    """Whether some of its visits have I and W instead of B."""
    lists = family_lists(family, FamilyShape(2, 4))
    return any(one.operation in "IW" for stream in lists.streams for one in stream)


def serves(shape: ChainShape) -> bool:
    """Whether the family has streams for the shape; for what it cannot serve there is no candidate."""
    return FAMILIES[shape.family].refusal(_family_shape(shape)) is None


def chain_streams(shape: ChainShape) -> Streams:
    """The streams. Raises ``PlanError`` (family) where the family does not serve the shape."""
    lists = family_lists(shape.family, _family_shape(shape))
    if len(lists.routes) > 1 or len(lists.stages) != shape.num_stages:
        found = f"{len(lists.routes)} routes and {len(lists.stages)} stages"
        raise PlanError(f"{shape.family} has {found}, expected 1 route and {shape.num_stages} stages", code="family")
    return lists.streams


def _family_shape(shape: ChainShape) -> FamilyShape:
    asks = "num_stages" in FAMILIES[shape.family].options
    return FamilyShape(shape.num_groups, shape.num_micro_batches, num_stages=shape.num_stages if asks else None)


@lru_cache(maxsize=128)
def chain_order(shape: ChainShape) -> tuple[Entry, ...]:
    """The order; a stream that cannot go on would be a fault of the family."""
    streams = chain_streams(shape)
    places: dict[tuple[bool, int, int], int] = {}
    order: list[Entry] = []
    heads, last = [0] * shape.num_groups, [-1] * shape.num_groups
    moved = True
    while moved:
        moved = False
        for group, stream in enumerate(streams):
            while heads[group] < len(stream):
                found = _entry(stream[heads[group]], places, last[group], shape.num_stages)
                if found is None:
                    break
                last[group] = len(order)
                if found.operation != "W":
                    places[found.operation == FORWARD, found.stage, found.micro_batch] = len(order)
                order.append(found)
                heads[group] += 1
                moved = True
    assert heads == [len(stream) for stream in streams], f"{shape} does not end: {heads}"
    return tuple(order)


@lru_cache(maxsize=1024)
def chain_splits(shape: ChainShape) -> tuple[bool, ...]:
    """Of each stage: whether the stream has both I and W of it."""
    if not splits_backward(shape.family):
        return (False,) * shape.num_stages
    found = {(one.stage, one.operation) for stream in chain_streams(shape) for one in stream}
    return tuple((stage, "I") in found and (stage, "W") in found for stage in range(shape.num_stages))


def _entry(
    instruction: Instruction, places: Mapping[tuple[bool, int, int], int], before: int, num_stages: int
) -> Entry | None:
    """None while its giver has not run. W has none: its I stands before it in the same stream."""
    operation, stage, number, _ = instruction
    giver = stage - 1 if operation == FORWARD else stage + 1
    if operation == "W" or not 0 <= giver < num_stages:
        return Entry(operation, stage, number, before, -1)
    place = places.get((operation == FORWARD, giver, number), -1)
    return None if place < 0 else Entry(operation, stage, number, before, place)
