"""BitPipe: two mirrored V routes, four stages a group; groups g and p-1-g hold copies.

Method: Wu et al. 2024 (arXiv 2410.19367) as its released code orders it: rounds of p micro-batches, five parts a round
in forward and backward, merged with W warm-up forwards. Built for whole rounds, micro-batches beyond m dropped: an
order that ends stays one that ends.
"""

from collections.abc import Iterator
from typing import NamedTuple

from planner.plan.instruction import BACKWARD, FORWARD, Instruction, Operation
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import mirrored, two_routes, two_routes_refusal, v

__all__ = ["BITPIPE"]


class _Item(NamedTuple):
    """A visit: ``half`` 1 or 2 of its route in this group, ``place`` among the micro-batches of the route."""

    is_own: bool
    half: int
    place: int


def _bitpipe(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    streams = [_stream(shape, group) for group in range(p)]
    return two_routes(shape, v(p), mirrored(v(p)), streams)


def _stream(shape: FamilyShape, group: int) -> list[Instruction]:
    p, half = shape.num_groups, shape.num_groups // 2
    num_rounds = -(-shape.num_micro_batches // p)
    forwards = [i for n in range(num_rounds) for i in _named(shape, group, FORWARD, _round(p, group, n * half))]
    backwards = [i for n in range(num_rounds) for i in _named(shape, group, BACKWARD, _reversed(p, group, n * half))]
    warm_up = p + half + min(group, p - 1 - group)
    merged = _merged(forwards, backwards, warm_up=warm_up, pairs=2 * p - warm_up, num_rounds=num_rounds)
    return [instruction for instruction in merged if instruction.number < shape.num_micro_batches]


def _round(p: int, group: int, first: int) -> Iterator[_Item]:
    """Forwards of the round whose micro-batches start at ``first``; own = the route that starts nearer."""
    half = p // 2
    a = half - group if group < half else group - half + 1
    b = half - a
    yield from (_Item(True, 1, first + i) for i in range(a))
    for i in range(b):
        yield from (_Item(False, 1, first + i), _Item(True, 1, first + a + i))
    for i in range(a):
        yield from (_Item(False, 1, first + b + i), _Item(False, 2, first + i))
    for i in range(b):
        yield from (_Item(True, 2, first + i), _Item(False, 2, first + a + i))
    yield from (_Item(True, 2, first + b + i) for i in range(a))


def _reversed(p: int, group: int, first: int) -> Iterator[_Item]:
    """Backwards of the round: the same parts with the halves exchanged."""
    return (item._replace(half=3 - item.half) for item in _round(p, group, first))


def _named(shape: FamilyShape, group: int, operation: Operation, items: Iterator[_Item]) -> Iterator[Instruction]:
    """Route 0 = down (micro-batches 0, 2, ..), 1 = up; stages of route 1 are numbered from 2p."""
    p = shape.num_groups
    for item in items:
        route = (0 if item.is_own else 1) if group < p // 2 else (1 if item.is_own else 0)
        first = group if route == 0 else p - 1 - group
        stage = first if item.half == 1 else 2 * p - 1 - first
        yield Instruction(operation, 2 * p * route + stage, 2 * item.place + route)


def _merged(
    forwards: list[Instruction], backwards: list[Instruction], *, warm_up: int, pairs: int, num_rounds: int
) -> list[Instruction]:
    """Warm-up; in all rounds but the last: pairs, backwards alone, pairs, forwards alone; then pairs and the rest."""
    forward, backward = iter(forwards), iter(backwards)
    order = "F" * warm_up
    order += ("FB" * pairs + "B" * (warm_up - pairs + 1) + "FB" * (pairs - 1) + "F" * (warm_up - pairs + 1)) * (
        num_rounds - 1
    )
    order += "FB" * (len(forwards) - order.count("F"))
    order += "B" * (len(backwards) - order.count("B"))
    return [next(forward) if operation == FORWARD else next(backward) for operation in order]


BITPIPE = FamilySpec(
    name="bitpipe",
    summary="two mirrored V routes, two copies of every stage, four stages a group; bubble p-2 at m = p",
    source="Wu et al. 2024, arXiv 2410.19367",
    placement="two v",
    build=_bitpipe,
    refuse=two_routes_refusal,
)
