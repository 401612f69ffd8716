"""Lengths of token slices so that slices cost alike: later slices attend to all before them, so they are shorter.

Method: TeraPipe (Li et al. 2021, arXiv 2102.07988, section 3.3) for any measured cost: a pipeline of p groups takes
``work x sum + (p-1) x max`` over the costs of the slices. For each limit on the dearest slice a dynamic programme finds
the least sum; limits ascend by at least a thousandth, so the answer is at most that far from the best. Positions are
multiples of a block of tokens. O(limits x blocks^2).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import PlanError

__all__ = ["SliceLengths", "solve_slice_lengths"]

_NEXT_LIMIT = 1.001


class SliceLengths(NamedTuple):
    """``cuts`` in tokens; ``step_ns`` = what the formula says of them."""

    cuts: tuple[int, ...]
    step_ns: int


class _Division(NamedTuple):
    """Ends of the slices in blocks, and the sum of their costs."""

    ends: tuple[int, ...]
    sum_ns: int


def solve_slice_lengths(
    slice_ns: Callable[[int, int], int], *, num_tokens: int, block_tokens: int, num_groups: int, work: int = 1
) -> SliceLengths:
    """``slice_ns(first, end)``: of tokens [first, end) on one group, forward and backward. ``work``: micro-batches."""
    if num_tokens < 1 or block_tokens < 1 or num_tokens % block_tokens:
        message = f"found {num_tokens} tokens in blocks of {block_tokens}, expected a multiple of the block"
        raise PlanError(message, code="family", pointer="/cuts")
    num_blocks = num_tokens // block_tokens
    costs = np.zeros((num_blocks, num_blocks + 1), np.int64)
    for first in range(num_blocks):
        for end in range(first + 1, num_blocks + 1):
            costs[first, end] = slice_ns(first * block_tokens, end * block_tokens)
    best: tuple[int, _Division] | None = None
    least_sum_ns = _division(costs, int(costs.max())).sum_ns
    for limit_ns in _limits(costs):
        if best is not None and work * least_sum_ns + (num_groups - 1) * limit_ns >= best[0]:
            break
        found = _division(costs, limit_ns)
        bounds = (0, *found.ends)
        dearest = max(int(costs[first, end]) for first, end in zip(bounds, found.ends, strict=False))
        step_ns = work * found.sum_ns + (num_groups - 1) * dearest
        if best is None or step_ns < best[0]:
            best = step_ns, found
    assert best is not None
    return SliceLengths((0, *(end * block_tokens for end in best[1].ends)), best[0])


def _limits(costs: NDArray[np.int64]) -> list[int]:
    """From the least that lets every block stand alone; ascending, each a thousandth above the one before."""
    num_blocks = len(costs)
    alone = max(int(costs[block, block + 1]) for block in range(num_blocks))
    found = list[int]()
    for limit_ns in np.unique(costs[costs >= alone]).tolist():
        if not found or limit_ns >= found[-1] * _NEXT_LIMIT:
            found.append(limit_ns)
    return found


def _division(costs: NDArray[np.int64], limit_ns: int) -> _Division:
    """The least sum with no slice above the limit; the longest last slice among equals."""
    num_blocks = len(costs)
    sums = np.zeros(num_blocks + 1, np.int64)
    firsts = np.zeros(num_blocks + 1, np.int64)
    for end in range(1, num_blocks + 1):
        column = costs[:end, end]
        totals = np.where(column <= limit_ns, sums[:end] + column, np.iinfo(np.int64).max)
        firsts[end] = int(np.argmin(totals))
        sums[end] = totals[firsts[end]]
    ends, end = [], num_blocks
    while end:
        ends.append(end)
        end = int(firsts[end])
    return _Division(tuple(reversed(ends)), int(sums[num_blocks]))
