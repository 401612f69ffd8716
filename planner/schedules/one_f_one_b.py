"""1F1B: after a warm-up, one forward and one backward in turn; group d keeps at most p-d micro-batches.

Method: PipeDream-flush (Narayanan et al. 2021) with one stage a group, any number of micro-batches. More forwards
before the first backward hide slow borders at the price of kept bytes (after Adaptra, arXiv 2504.19232). Slices
(Seq1F1B, Sun et al. 2024): backward slices in reverse, the warm-up longer by slices - 1.
"""

from collections.abc import Sequence
from itertools import pairwise

from planner.errors import PlanError
from planner.plan.instruction import BACKWARD, FORWARD
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import line, one_route
from planner.schedules.shape import Shape, Streams, backward_work, forward_work, instructions, one_by_one
from planner.units import counted

__all__ = ["ONE_F_ONE_B", "one_f_one_b", "warm_up_refusal"]


def one_f_one_b(shape: Shape, *, forwards_first: Sequence[int] | None = None) -> Streams:
    """The streams of all groups.

    ``forwards_first``: of each group, forwards before its first backward; default p-d (+ slices - 1). More hides slow
    borders, less keeps fewer micro-batches; no group may have more than the one before it.
    """
    if shape.num_stages != shape.num_groups:
        found = f"{counted(shape.num_stages, 'stage')} on {counted(shape.num_groups, 'group')}"
        message = f"found {found}, expected one stage a group for 1F1B"
        raise PlanError(message, code="family", pointer="/stages")
    longest = max(shape.slices)
    default = [shape.num_groups - group + longest - 1 for group in range(shape.num_groups)]
    counts = default if forwards_first is None else list(forwards_first)
    _check_counts(shape, counts, longest)
    forward, backward = forward_work(shape), backward_work(shape)
    return [
        one_by_one(
            instructions(FORWARD, group, forward), instructions(BACKWARD, group, backward), warm_up=counts[group] - 1
        )
        for group in range(shape.num_groups)
    ]


def _check_counts(shape: Shape, counts: list[int], longest: int) -> None:
    reason = _bad_counts(shape.num_groups, counts, longest)
    if reason is not None:
        raise PlanError(reason, code="warm_up", pointer="/streams")


def _bad_counts(num_groups: int, counts: Sequence[int], longest: int) -> str | None:
    """A group that goes forward less than a later one would wait for a gradient that waits for its next forward."""
    falls = all(one >= other for one, other in pairwise(counts))
    if len(counts) == num_groups and falls and counts[-1] >= longest:
        return None
    expected = f"{num_groups} counts that do not rise, the last at least {longest}"
    return f"found {list(counts[:16])} forwards before the first backward, expected {expected}"


def warm_up_refusal(shape: FamilyShape) -> str | None:
    """Why its warm-up counts would block."""
    counts = shape.forwards_first
    return None if counts is None else _bad_counts(shape.num_groups, counts, 1)


def _one_f_one_b(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    streams = one_f_one_b(Shape(p, p, (1,) * shape.num_micro_batches), forwards_first=shape.forwards_first)
    return one_route(shape, line(p), streams)


ONE_F_ONE_B = FamilySpec(
    name="1f1b",
    summary="one forward and one backward in turn; group d keeps p-d micro-batches, or as many as it is told",
    source="Narayanan et al. 2021, arXiv 2104.04473; warm-up counts after Adaptra, arXiv 2504.19232",
    placement="line",
    build=_one_f_one_b,
    refuse=warm_up_refusal,
    options=frozenset({"forwards_first"}),
)
