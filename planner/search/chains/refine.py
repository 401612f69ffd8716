"""Search over the bottleneck with a certified gap, anytime, over many chains at once: best box first.

A box holds the cuts of one chain whose largest stage lies in (low, high] and whose largest sum of gradients does too:
they cost at least ``(m-1) x (low + 1) + (low reduction + 1) + S_high``, where S never rises with the limits.
The box of the least bound is opened next, so a chain whose bound is above the best step is never looked at again:
replica counts are discarded by their bounds alone. ``S_high`` comes from prices of devices first (cheap, a bound only),
from the exact programme when the box is narrow. The upper end of an exact box is a realised bottleneck.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.search.chains.chain import Chain, Limits
from planner.search.chains.compiled import quickest_rows
from planner.search.chains.kernel import Rows
from planner.search.chains.prices import fluid_ns, priced_sum
from planner.search.chains.tables import fill_tables, table_bytes, table_work
from planner.search.partition import NO_PLAN, Cut

__all__ = ["Certificate", "Effort", "refine_chains"]

_GEOMETRIC_ABOVE = 1.02  # ratio of a box's ends
_NARROW = 1.15  # ratio below which prices have had their say
_CHEAP_WORK = 20_000_000  # sums of an exact evaluation that is no dearer than a bound from prices
_EXPECTED_EVALUATIONS = 12


class Effort(NamedTuple):
    """``tolerance``: of (step - bound) / bound. ``most_table_bytes``: larger chains are bounded, never solved."""

    tolerance: float = 0.0
    most_table_bytes: int = 1_000_000_000
    rows: Rows | None = None  # None: the quickest for the work


class Certificate(NamedTuple):
    """The best cut so far, of which chain, and what no cut of any chain can beat; all under ``one_stage_1f1b``.

    ``open_chains``: those that may still hold something better. ``bound_ns`` is ``NO_PLAN`` where no cut exists.
    """

    chain: int
    cut: Cut | None
    step_ns: int
    bound_ns: int
    evaluations: int
    open_chains: tuple[int, ...]

    @property
    def gap(self) -> float:
        """(step - bound) / bound"""
        return (self.step_ns - self.bound_ns) / self.bound_ns


class _Found(NamedTuple):
    """What an evaluation at some limits gave."""

    sum_ns: int
    cut: Cut | None
    grade: int
    prices: tuple[int, ...]


_LAYERS, _PRICES, _EXACT = range(3)  # what the sum of a box comes from


@dataclass(order=True)
class _Box:
    bound_ns: int
    number: int  # first in, first out among equals
    chain: int = field(compare=False)
    low: Limits = field(compare=False)
    high: Limits = field(compare=False)
    found: _Found = field(compare=False)  # at ``high``


def refine_chains(chains: Sequence[Chain], effort: Effort, *, cutoff_ns: int = NO_PLAN) -> Iterator[Certificate]:
    """Certificates, each at least as good as the one before, until the tolerance is met.

    The last one has no cut where nothing fits. ``cutoff_ns``: a step that is known; only shorter ones are looked for.
    """
    search = _Refinement(chains, effort, cutoff_ns)
    yield search.certificate()
    while not search.is_done():
        search.open_best()
        yield search.certificate()


class _Refinement:
    def __init__(self, chains: Sequence[Chain], effort: Effort, cutoff_ns: int) -> None:
        self._chains, self._effort, self._cutoff_ns = chains, effort, cutoff_ns
        self._waiting: list[_Box] = []
        self._stuck: list[_Box] = []
        self._numbers = self._evaluations = 0
        self._best: tuple[int, int, Cut] | None = None  # step, chain, cut
        for number, chain in enumerate(chains):
            self._first_box(number, chain)

    @property
    def _best_ns(self) -> int:
        return self._best[0] if self._best is not None else self._cutoff_ns

    def certificate(self) -> Certificate:
        boxes = self._waiting[:1] + self._stuck
        bound_ns = min([self._best_ns, *(box.bound_ns for box in boxes)])
        chain, cut = (self._best[1], self._best[2]) if self._best is not None else (-1, None)
        still_open = {box.chain for box in (*self._waiting, *self._stuck) if box.bound_ns < self._best_ns}
        return Certificate(chain, cut, self._best_ns, bound_ns, self._evaluations, tuple(sorted(still_open)))

    def is_done(self) -> bool:
        if not self._waiting:
            return True
        bound_ns = self.certificate().bound_ns
        return self._best_ns < NO_PLAN and self._best_ns - bound_ns <= self._effort.tolerance * bound_ns

    def _first_box(self, number: int, chain: Chain) -> None:
        stages_ns = chain.stage_ns[chain.stage_ns < NO_PLAN]
        single_ns = chain.reduction_ns[:, 0]
        low = Limits(fluid_ns(chain.problem.options, chain.problem.counts) - 1, int(single_ns.min(axis=0).max()) - 1)
        high = Limits(int(stages_ns.max()), int(chain.reduction_ns.max()))
        nothing = _Found(int(chain.least_layer_ns.sum()), None, _LAYERS, (0,) * len(chain.counts))
        self._push(number, low, high, nothing)

    def _push(self, chain: int, low: Limits, high: Limits, found: _Found) -> None:
        if found.sum_ns >= NO_PLAN or low.stage_ns >= high.stage_ns or low.reduction_ns >= high.reduction_ns:
            return
        bound_ns = self._step_ns(chain, found.sum_ns, Limits(low.stage_ns + 1, low.reduction_ns + 1))
        self._numbers += 1
        if bound_ns < self._best_ns:
            heapq.heappush(self._waiting, _Box(bound_ns, self._numbers, chain, low, high, found))

    def _step_ns(self, chain: int, sum_ns: int, largest: Limits) -> int:
        steps = self._chains[chain].problem.num_micro_batches - 1
        return steps * largest.stage_ns + largest.reduction_ns + sum_ns

    def open_best(self) -> None:
        """Split the box of the least bound, or make its sum better."""
        box = heapq.heappop(self._waiting)
        if box.bound_ns >= self._best_ns:
            self._waiting.clear()
            return
        chain = self._chains[box.chain]
        high = self._capped(box)
        can_solve = table_bytes(chain) <= self._effort.most_table_bytes
        if can_solve and (box.found.grade == _EXACT or table_work(chain, high) <= _CHEAP_WORK):
            at = self._middle(box, high) if box.found.grade == _EXACT else self._first(box, high)
            found = self._solved(chain, at, box)
        elif box.found.grade == _PRICES and high.stage_ns <= _NARROW * box.low.stage_ns:
            if not can_solve:
                self._stuck.append(box)
                return
            at = high
            found = self._solved(chain, at, box)
        else:
            at = self._middle(box, high) if box.found.grade == _PRICES else self._first(box, high)
            found = self._priced(chain, at, box)
        self._split(box, high, at, found)

    def _capped(self, box: _Box) -> Limits:
        """Beyond it nothing of the box is better than the best step."""
        if self._best_ns == NO_PLAN:
            return box.high
        spare_ns = self._best_ns - 1 - box.bound_ns
        steps = self._chains[box.chain].problem.num_micro_batches - 1
        stage_ns = box.low.stage_ns + 1 + spare_ns // steps if steps else box.high.stage_ns
        return Limits(min(box.high.stage_ns, stage_ns), min(box.high.reduction_ns, box.low.reduction_ns + 1 + spare_ns))

    def _first(self, box: _Box, high: Limits) -> Limits:
        """Where a box of which little is known is evaluated first."""
        return high._replace(stage_ns=min(high.stage_ns, 2 * box.low.stage_ns + 2))

    def _middle(self, box: _Box, high: Limits) -> Limits:
        """Halves the side that the bound depends on most; ``high`` itself where nothing is left to halve."""
        steps = self._chains[box.chain].problem.num_micro_batches - 1
        width, depth = high.stage_ns - box.low.stage_ns, high.reduction_ns - box.low.reduction_ns
        if width > 1 and (steps * width >= depth or depth <= 1):
            return high._replace(stage_ns=_between(box.low.stage_ns, high.stage_ns))
        return high._replace(reduction_ns=_between(box.low.reduction_ns, high.reduction_ns)) if depth > 1 else high

    def _solved(self, chain: Chain, at: Limits, box: _Box) -> _Found:
        rows = self._effort.rows or quickest_rows(_EXPECTED_EVALUATIONS * table_work(chain, at))
        self._evaluations += 1
        cut = fill_tables(chain, at, rows).best_cut()
        return _Found(NO_PLAN if cut is None else cut.sum_ns, cut, _EXACT, box.found.prices)

    def _priced(self, chain: Chain, at: Limits, box: _Box) -> _Found:
        target_ns = None
        if self._best_ns < NO_PLAN:
            target_ns = self._best_ns - self._step_ns(
                box.chain, 0, Limits(box.low.stage_ns + 1, box.low.reduction_ns + 1)
            )
        priced = priced_sum(chain, at, box.found.prices, target_ns)
        self._evaluations += 1
        return _Found(max(priced.sum_ns, box.found.sum_ns), priced.cut, _PRICES, priced.prices)

    def _split(self, box: _Box, high: Limits, at: Limits, found: _Found) -> None:
        """Into the part up to ``at`` and the rest; the best cut up to ``at`` divides its part once more."""
        if found.cut is not None:
            self._offer(box.chain, found.cut)
        largest = at
        if found.cut is not None and found.grade == _EXACT:
            largest = Limits(found.cut.bottleneck_ns, self._chains[box.chain].largest_reduction_ns(found.cut))
        stage_ns, reduction_ns = (
            max(largest.stage_ns, box.low.stage_ns),
            max(largest.reduction_ns, box.low.reduction_ns),
        )
        low, inner = box.low, Limits(stage_ns, reduction_ns)
        self._push(box.chain, low, inner, found)
        self._push(box.chain, low._replace(reduction_ns=reduction_ns), at._replace(stage_ns=stage_ns), found)
        self._push(box.chain, low._replace(stage_ns=stage_ns), at, found)
        self._push(box.chain, low._replace(stage_ns=at.stage_ns), high, box.found)
        self._push(
            box.chain, low._replace(reduction_ns=at.reduction_ns), high._replace(stage_ns=at.stage_ns), box.found
        )

    def _offer(self, number: int, cut: Cut) -> None:
        chain = self._chains[number]
        step_ns = self._step_ns(number, cut.sum_ns, Limits(cut.bottleneck_ns, chain.largest_reduction_ns(cut)))
        if step_ns < self._best_ns:
            self._best = (step_ns, number, cut)


def _between(low: int, high: int) -> int:
    """Strictly between where there is room; the geometric middle of a wide interval."""
    if low > 0 and high > _GEOMETRIC_ABOVE * low:
        return min(high - 1, max(low + 1, math.isqrt(low * high)))
    return (low + high) // 2
