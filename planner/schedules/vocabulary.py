"""A head cut by vocabulary over all groups: parts as parallel layers, and a tiny layer that combines them.

Method: Yeung et al. 2025, Vocabulary Parallelism (arXiv 2411.05288). Layers 0..p-1 are blocks, one a group; p+j is
head part j on group j, it reads the last block; 2p combines maxima, sums and loss. S = F of a part, T = its B or W.
Two barriers: combine, then the sum of the parts' gradients at the last block. One barrier: parts read the block
detached (visits F W), combine reads parts and block and gives the block its gradient, so T is as free as any W.

Streams are list-scheduled for F = 2, B = 4, S = T = 1 and a barrier that lasts as long as F; the better of two rules
for equal starts. One block more in flight than 1F1B keeps the full rate with either form.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from planner.plan.instruction import BACKWARD, Instruction
from planner.problem.profile import Reads
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.greedy import Delay, GreedyTask, Key, chain, list_schedule
from planner.schedules.placements import one_route

__all__ = ["VOCABULARY_ONE_BARRIER", "VOCABULARY_TWO_BARRIERS", "vocabulary"]

_MOST_PARTS = 2  # micro-batches of which a group keeps logits: else the free W would wait for the end
_TICKS = {"F": 2, "B": 4, "W": 1, "I": 0}


def vocabulary(shape: FamilyShape, *, num_barriers: int, barrier_ticks: int = 2) -> PlanLists:
    """``forwards_first``: most blocks in flight by group, default p-d+1. ``barrier_ticks``: two = F of a block."""
    p = shape.num_groups
    task = _task(shape, num_barriers, barrier_ticks)
    best = min((list_schedule(task, key) for key in (_oldest_first(p), _by_kind(p))), key=lambda found: found.end)
    lists = one_route(shape, task.groups, best.streams)
    return replace(lists, reads=tuple(_reads(p, num_barriers)), layer_shares=(2,) * p + (1,) * p + (0,))


def _task(shape: FamilyShape, num_barriers: int, barrier_ticks: int) -> GreedyTask:
    p = shape.num_groups
    last, combine, parts = p - 1, 2 * p, range(p, 2 * p)
    delays = {(combine, part): Delay(barrier_ticks, 0) for part in parts}
    if num_barriers == 2:
        delays |= {(part, last): Delay(0, barrier_ticks) for part in parts}
    one = num_barriers == 1
    return GreedyTask(
        groups=[*range(p), *range(p), last],
        operations=["FB"] * p + ["FW" if one else "FB"] * p + ["FI"],
        batches=[range(shape.num_micro_batches)] * (2 * p + 1),
        reads=[*chain(p), *([last] for _ in parts), [*([last] if one else []), *parts]],
        ticks=_TICKS,
        caps=shape.forwards_first or [p - group + 1 for group in range(p)],
        kept=[1] * p + [0] * (p + 1),
        detached=frozenset((part, last) for part in parts) if one else frozenset(),
        stage_ticks={(part, operation): 1 for part in parts for operation in "FBW"} | {(combine, "F"): 0},
        stage_caps=dict.fromkeys(parts, _MOST_PARTS),
        delays=delays,
    )


def _oldest_first(p: int) -> Key:
    """At equal start: the oldest micro-batch, but blocks go backward last."""
    return lambda i: (i.stage < p and i.operation == BACKWARD, i.number)


def _by_kind(p: int) -> Key:
    """At equal start: combine, head parts, blocks backward, blocks forward, W."""

    def key(instruction: Instruction) -> tuple[int, ...]:
        operation, stage, number, _ = instruction
        if stage < p:
            return (2 if operation == BACKWARD else 3), number
        return (0 if stage == 2 * p else 4 if operation == "W" else 1), number

    return key


def _reads(p: int, num_barriers: int) -> Iterator[Reads]:
    last, one = p - 1, num_barriers == 1
    for part in range(p, 2 * p):
        if one:
            yield Reads(layer=part, detached=(last,))
        elif part > p:  # part p reads the layer before it
            yield Reads(layer=part, sources=(last,))
    yield Reads(layer=2 * p, sources=tuple(range(last if one else p, 2 * p)))


def _refuse(shape: FamilyShape) -> str | None:
    p, counts = shape.num_groups, shape.forwards_first
    if p < 2:
        return "found 1 group, expected at least 2 to cut the head over"
    if counts is not None and (len(counts) != p or min(counts) < 1):
        return f"found {list(counts[:16])} blocks in flight, expected {p} counts of at least 1"
    return None


_SOURCE = "Yeung et al. 2025, Vocabulary Parallelism, arXiv 2411.05288"
VOCABULARY_ONE_BARRIER = FamilySpec(
    name="vocabulary-one-barrier",
    summary="1F1B with the head cut by vocabulary over all groups; one barrier, weight gradients of the head are free",
    source=_SOURCE,
    placement="head",
    build=partial(vocabulary, num_barriers=1),
    refuse=_refuse,
    options=frozenset({"forwards_first"}),
)
VOCABULARY_TWO_BARRIERS = FamilySpec(
    name="vocabulary-two-barriers",
    summary="1F1B with the head cut by vocabulary over all groups; a second barrier sums the last block's gradient",
    source=_SOURCE,
    placement="head",
    build=partial(vocabulary, num_barriers=2),
    refuse=_refuse,
    options=frozenset({"forwards_first"}),
)
