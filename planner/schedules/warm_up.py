"""Warm-up counts of 1F1B that hide slow borders, as far as memory allows.

Method: after Adaptra (arXiv 2504.19232). With a one-way delay c on the border d|d+1 the steady state is undisturbed
exactly where ``2 c <= (x_d - x_{d+1} - 1) (F + B)``; so each count is the next one, one more, and the round trip in
periods. A group that may not keep as many gets what fits; the groups behind it then give way, so that the slow border
alone is slow.
"""

from collections.abc import Sequence
from typing import NamedTuple

from planner.errors import PlanError

__all__ = ["WarmUp", "warm_up_counts"]


class WarmUp(NamedTuple):
    """``counts``: forwards before the first backward, by group. ``slowed_borders``: those that disturb the pipeline."""

    counts: tuple[int, ...]
    slowed_borders: tuple[int, ...]


def warm_up_counts(delays_ns: Sequence[int], *, period_ns: int, most_kept: Sequence[int] | None = None) -> WarmUp:
    """``delays_ns``: one way, of each border. ``period_ns``: forward and backward of the slowest group.

    ``most_kept``: micro-batches that each group may keep. Raises ``PlanError`` where a group may keep none.
    """
    num_groups = len(delays_ns) + 1
    if period_ns < 1 or (most_kept is not None and (len(most_kept) != num_groups or min(most_kept) < 1)):
        found = f"period_ns={period_ns}, most_kept={most_kept}"
        message = f"found {found}, expected a positive period and {num_groups} counts of at least 1"
        raise PlanError(message, code="warm_up", pointer="/streams")
    counts = [1]
    for delay_ns in reversed(delays_ns):
        counts.insert(0, counts[0] + 1 + _round_trip(delay_ns, period_ns))
    if most_kept is not None:
        counts = _limited(counts, most_kept)
    slowed = [
        border
        for border, delay_ns in enumerate(delays_ns)
        if counts[border] - counts[border + 1] - 1 < _round_trip(delay_ns, period_ns)
    ]
    return WarmUp(tuple(counts), tuple(slowed))


def _limited(wanted: Sequence[int], most_kept: Sequence[int]) -> list[int]:
    """A count is one below the one before it where that leaves at least one; counts never rise."""
    counts = [min(wanted[0], most_kept[0])]
    for count, most in zip(wanted[1:], most_kept[1:], strict=True):
        counts.append(min(count, most, max(1, counts[-1] - 1)))
    return counts


def _round_trip(delay_ns: int, period_ns: int) -> int:
    """In whole periods, rounded up."""
    return -(-2 * delay_ns // period_ns)
