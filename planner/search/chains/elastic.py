"""The best step of every sub-cluster from a few tables: after a lost node, reading a table is the search.

One table at a bottleneck T holds S for every vector of devices. ``V(u) = min over T of (m-1) x T + S_T(u)``, with T
over every stage time (exact) or over a grid: then V(u) is at most about one grid ratio above the best, and
``bound_ns`` says how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.search.chains.chain import Chain, Limits
from planner.search.chains.compiled import quickest_rows
from planner.search.chains.prices import fluid_ns
from planner.search.chains.tables import fill_tables, table_work
from planner.search.partition import NO_PLAN, Cut, Integers

__all__ = ["ElasticSteps", "elastic_steps", "grid_between"]


@dataclass(frozen=True, eq=False)
class ElasticSteps:
    """By index of the vector of grains in the box of counts; ``limits_ns``: the T at which the step was found."""

    chain: Chain
    steps_ns: Integers
    bounds_ns: Integers
    limits_ns: Integers

    def step_ns(self, counts: Sequence[int]) -> int | None:
        """With at most ``counts`` devices; None: nothing fits."""
        found = int(self.steps_ns[self._place(counts)])
        return None if found >= NO_PLAN else found

    def bound_ns(self, counts: Sequence[int]) -> int:
        """No cut on these devices has a shorter step."""
        return int(self.bounds_ns[self._place(counts)])

    def limit_ns(self, counts: Sequence[int]) -> int:
        """A table at this bottleneck holds the cut."""
        return int(self.limits_ns[self._place(counts)])

    def cut(self, counts: Sequence[int]) -> Cut | None:
        """With at most ``counts`` devices, from one table at its bottleneck; None: nothing fits."""
        limits = Limits(self.limit_ns(counts), 0)
        tables = fill_tables(self.chain, limits, quickest_rows(table_work(self.chain, limits)))
        return tables.best_cut(self._grains(counts))

    def _grains(self, counts: Sequence[int]) -> list[int]:
        return [count // grain for count, grain in zip(counts, self.chain.grains, strict=True)]

    def _place(self, counts: Sequence[int]) -> int:
        held = [min(count, most) for count, most in zip(self._grains(counts), self.chain.counts, strict=True)]
        return sum(count * stride for count, stride in zip(held, self.chain.strides, strict=True))


def elastic_steps(chain: Chain, grid_ns: Sequence[int] = ()) -> ElasticSteps:
    """``grid_ns``: ascending bottlenecks, every stage time where empty; sums of gradients are not covered."""
    assert not chain.reduction_ns.any(), "sums of gradients over routes have no elastic table"
    grid = list(grid_ns) or np.unique(chain.stage_ns[chain.stage_ns < NO_PLAN]).tolist()
    rows = quickest_rows(len(grid) * table_work(chain, Limits(grid[-1], 0)))
    steps, size = chain.problem.num_micro_batches - 1, chain.num_vectors
    best, bounds = np.full(size, NO_PLAN, np.int64), np.full(size, NO_PLAN, np.int64)
    limits, below = np.zeros(size, np.int64), fluid_ns(chain.problem.options, chain.problem.counts) - 1
    for limit_ns in grid:
        sums = fill_tables(chain, Limits(limit_ns, 0), rows).least_sums()
        found = sums < NO_PLAN
        values = np.where(found, sums + steps * limit_ns, NO_PLAN)
        limits[values < best] = limit_ns
        best = np.minimum(best, values)
        bounds = np.minimum(bounds, np.where(found, sums + steps * (below + 1), NO_PLAN))
        below = max(below, limit_ns)
    above = steps * (below + 1) + int(chain.least_layer_ns.sum())
    has_more = bool((chain.stage_ns[chain.stage_ns < NO_PLAN] > below).any())
    return ElasticSteps(chain, best, np.minimum(bounds, above) if has_more else bounds, limits)


def grid_between(low_ns: int, high_ns: int, ratio: float) -> tuple[int, ...]:
    """Ascending from ``low_ns`` to ``high_ns`` by at most ``ratio``."""
    found = [low_ns]
    while found[-1] < high_ns:
        found.append(min(high_ns, max(found[-1] + 1, int(found[-1] * ratio))))
    return tuple(found)
