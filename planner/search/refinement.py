"""Search over the bottleneck T with a certified gap, anytime: interval refinement.

``S_T`` never increases with T, so any cut whose bottleneck lies in (a, b] costs at least ``(m-1) x (a+1) + S_b`` in
whole ns. The upper end of an interval is always a realised bottleneck: an interval of width 1 ns is closed.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from planner.search.partition import NO_PLAN, Cut, Integers, PartitionProblem, best_cut, sum_tables

__all__ = ["Certificate", "elastic_values", "halfway", "refine", "stage_times"]

_GEOMETRIC_ABOVE = 1.02  # ratio of an interval's ends


class Certificate(NamedTuple):
    """The best cut so far and what no cut can beat, both under the model of ``planner.search.partition``."""

    cut: Cut
    bound_ns: int
    evaluations: int


class _Interval(NamedTuple):
    bound_ns: int
    low_ns: int  # no cut with a bottleneck up to here is left in it
    high_ns: int  # a realised bottleneck
    sum_ns: int  # of the cut that realises it


def halfway(low_ns: int, high_ns: int) -> int:
    return (low_ns + high_ns) // 2


def _geometric(low_ns: int, high_ns: int) -> int:
    if low_ns > 0 and high_ns > _GEOMETRIC_ABOVE * low_ns:
        return min(high_ns - 1, max(low_ns + 1, math.isqrt(low_ns * high_ns)))
    return halfway(low_ns, high_ns)


def refine(
    problem: PartitionProblem, *, start_ns: int, middle: Callable[[int, int], int] = _geometric
) -> Iterator[Certificate]:
    """Certificates, each at least as good as the one before; the last has no gap. Nothing where nothing fits.

    ``start_ns``: proven: no cut has a bottleneck up to there.
    """
    steps = problem.num_micro_batches - 1
    cut = best_cut(problem, NO_PLAN)
    if cut is None:
        return

    def interval(low_ns: int, high_ns: int, sum_ns: int) -> _Interval:
        return _Interval(steps * (low_ns + 1) + sum_ns, low_ns, high_ns, sum_ns)

    best, evaluations = cut, 1
    waiting = [interval(start_ns, cut.bottleneck_ns, cut.sum_ns)]
    while waiting:
        bound_ns = min(waiting[0].bound_ns, best.step_ns(steps + 1))
        yield Certificate(best, bound_ns, evaluations)
        if bound_ns == best.step_ns(steps + 1):
            return
        _, low_ns, high_ns, sum_ns = heapq.heappop(waiting)
        middle_ns = middle(low_ns, high_ns)
        found = best_cut(problem, middle_ns)
        evaluations += 1
        heapq.heappush(waiting, interval(middle_ns, high_ns, sum_ns))
        if found is not None:
            if found.bottleneck_ns > low_ns:
                heapq.heappush(waiting, interval(low_ns, found.bottleneck_ns, found.sum_ns))
            best = min(best, found, key=lambda c: (c.step_ns(steps + 1), c.stages))


def stage_times(problem: PartitionProblem) -> tuple[int, ...]:
    """Every time that a stage can take, ascending: the only bottlenecks that there are."""
    found: set[int] = set()
    for option in problem.options:
        for layer in range(problem.num_layers):
            found.update(option.time_ns[layer, layer + 1 :].tolist())
    return tuple(sorted(found))


def elastic_values(problem: PartitionProblem) -> Integers:
    """The least step for every vector of devices up to the counts (``problem.vectors``); ``NO_PLAN``: nothing fits.

    One table a bottleneck; re-planning after a lost device is reading a table.
    """
    steps = problem.num_micro_batches - 1
    values = sum_tables(problem, NO_PLAN).least_sums()
    values[values < NO_PLAN] = NO_PLAN - 1
    best = values
    for limit_ns in stage_times(problem):
        sums = sum_tables(problem, limit_ns).least_sums()
        found = sums < NO_PLAN
        best[found] = [min(a, b) for a, b in zip(best[found], sums[found] + steps * limit_ns, strict=True)]
    return best
