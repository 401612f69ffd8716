"""HelixPipe: attention, which has no weights, runs on another group than its block, each micro-batch on another.

Method: arXiv 2507.00394 as its released code orders it. Layer 3k = ``pre`` of block k (norm, QKV),
3k+1 = ``attention``, 3k+2 = ``post`` (projection, MLP), which reads pre and attention. Stage b_k = post of block k-1
and pre of block k, on group ``k mod p``; on route d the attention of block k is stage a_k on group ``(k+d+1) mod p``.
The backward stream is the forward stream reversed. Two folds: two micro-batches take each place of the order in turn
and hide messages.
Built for whole repeats of p x folds micro-batches, those beyond m dropped.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from planner.plan.instruction import BACKWARD, BACKWARD_INPUT, FORWARD, Instruction, Operation
from planner.plan.plan import MicroBatch, Stage
from planner.problem.profile import Reads
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.units import counted

__all__ = ["HELIXPIPE", "HELIXPIPE_TWO_FOLD"]

_SHARES = (1, 2, 1)  # pre, attention, post: attention as dear as the rest


class _Item(NamedTuple):
    """Block or attention stage number ``layer`` for the micro-batches of route ``route`` in repeat ``repeat``."""

    is_attention: bool
    layer: int
    route: int
    repeat: int


def _helixpipe(shape: FamilyShape, *, folds: int) -> PlanLists:
    p, num_layers = shape.num_groups, _num_layers(shape)
    num_repeats = -(-shape.num_micro_batches // (p * folds))
    batch = [MicroBatch(route=route, samples=1, cuts=(0, 1)) for route in range(p)]
    return PlanLists(
        stages=tuple(_stages(p, num_layers)),
        routes=tuple(_route(p, num_layers, route) for route in range(p)),
        micro_batches=tuple(batch[number // folds % p] for number in range(shape.num_micro_batches)),
        streams=[_stream(shape, list(_forward(p, num_layers, num_repeats, group)), folds) for group in range(p)],
        reads=tuple(Reads(layer=3 * k + 2, sources=(3 * k, 3 * k + 1)) for k in range(num_layers)),
        layer_shares=_SHARES * num_layers,
    )


def _num_layers(shape: FamilyShape) -> int:
    return shape.num_layers or 2 * shape.num_groups


def _stages(p: int, num_layers: int) -> Iterator[Stage]:
    """b_k, then the a_k of all routes; the stage numbers of a route ascend."""
    for k in range(num_layers + 1):
        first, end = max(0, 3 * k - 1), min(3 * k + 1, 3 * num_layers)
        yield Stage(group=k % p, first_layer=first, end_layer=end)
        if k < num_layers:
            for route in range(p):
                yield Stage(group=(k + route + 1) % p, first_layer=3 * k + 1, end_layer=3 * k + 2)


def _stage(p: int, item: _Item) -> int:
    return item.layer * (p + 1) + (1 + item.route if item.is_attention else 0)


def _route(p: int, num_layers: int, route: int) -> tuple[int, ...]:
    items = [(attention, k) for k in range(num_layers) for attention in (False, True)] + [(False, num_layers)]
    return tuple(_stage(p, _Item(attention, k, route, 0)) for attention, k in items)


def _forward(p: int, num_layers: int, num_repeats: int, r: int) -> Iterator[_Item]:
    """The order of group r; the drain of a repeat on group 0 stands inside the warm-up of the next."""
    last = num_layers
    if r == 0:
        yield _Item(False, 0, 0, 0)
    for repeat in range(num_repeats):
        block, attention = partial(_Item, False, repeat=repeat), partial(_Item, True, repeat=repeat)
        for d in reversed(range(r)):
            yield attention(r - 1 - d, d)
        if r > 0:
            yield block(r, 0)
        for d in range(1, p):
            if r == 0 and repeat > 0:
                yield _Item(False, last, d, repeat - 1)
            yield block(r, d)
        yield attention(r, p - 1)
        for first in range(p, num_layers, p):
            yield from (attention(first + r - 1 - d, d) for d in reversed(range(p - 1)))
            yield from (block(first + r, d) for d in range(p))
            yield attention(first + r, p - 1)
        yield from (attention(last + r - 1 - d, d) for d in reversed(range(r, p - 1)))
        if r == 0:
            yield block(last, 0)
            if repeat + 1 < num_repeats:
                yield _Item(False, 0, 0, repeat + 1)
    if r == 0:
        yield from (_Item(False, last, d, num_repeats - 1) for d in range(1, p))


def _stream(shape: FamilyShape, forward: list[_Item], folds: int) -> list[Instruction]:
    p = shape.num_groups
    visits = [(item, (item.repeat * p + item.route) * folds + fold) for item in forward for fold in range(folds)]
    found = [Instruction(FORWARD, _stage(p, item), number) for item, number in visits]
    for item, number in reversed(visits):
        operation: Operation = BACKWARD_INPUT if item.is_attention else BACKWARD
        found.append(Instruction(operation, _stage(p, item), number))
    return [instruction for instruction in found if instruction.number < shape.num_micro_batches]


def _refuse(shape: FamilyShape, *, folds: int) -> str | None:
    p, num_layers = shape.num_groups, _num_layers(shape)
    if p < 2:
        return "found 1 group, expected at least 2: attention runs on another group"
    if num_layers % p:
        return f"found {num_layers} blocks, expected a multiple of the {counted(p, 'group')}"
    if shape.num_micro_batches <= (p - 1) * folds:
        found = counted(shape.num_micro_batches, "micro-batch")
        return f"found {found}, expected more than {(p - 1) * folds}: one for each route"
    return None


_SOURCE = "HelixPipe 2025, arXiv 2507.00394"
HELIXPIPE = FamilySpec(
    name="helixpipe",
    summary="attention on other groups than its blocks; bubble of the blocks alone, but messages are not hidden",
    source=_SOURCE,
    placement="helix",
    build=partial(_helixpipe, folds=1),
    refuse=partial(_refuse, folds=1),
    options=frozenset({"num_layers"}),
)
HELIXPIPE_TWO_FOLD = FamilySpec(
    name="helixpipe-two-fold",
    summary="HelixPipe with two micro-batches in each place, which hide each other's messages",
    source=_SOURCE,
    placement="helix",
    build=partial(_helixpipe, folds=2),
    refuse=partial(_refuse, folds=2),
    options=frozenset({"num_layers"}),
)
