"""Exact dynamic programme at fixed limits, over the devices that exactly j stages use.

``S(j, l, v)`` = least sum of stage times for layers [l, L) in exactly j stages that use exactly the devices v, every
stage within the limits and the memory of its position. Rows that no stages in front could complete are left out.

Round trips: under 1F1B the j-th stage from the end starts a micro-batch only when the one ``in_flight[j-1]`` before it
is back, so two micro-batches are at least (way from the stage to the end and back) / in flight apart. That way is S
itself, and the least S of a state is best for the sum and for the round trip: states whose least S is too long are
dropped, and the programme stays exact.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.search.chains.chain import Chain, Level, Limits
from planner.search.chains.kernel import Rows
from planner.search.partition import NO_PLAN, Cut, Integers, Pick

__all__ = ["Tables", "fill_tables", "table_bytes", "table_work"]


class Tables(NamedTuple):
    """``sums[j]`` [layer, vector of level j]."""

    chain: Chain
    limits: Limits
    sums: tuple[Integers, ...]

    def best_cut(self, counts: Sequence[int] | None = None) -> Cut | None:
        """With at most ``counts`` grains of each kind (all of them); fewest stages first among equals."""
        best: tuple[int, int, int] | None = None
        for stages in range(self.chain.problem.fewest_stages, len(self.sums)):
            row = self.sums[stages][0]
            if counts is not None:
                row = np.where(_inside(self.chain, self.chain.levels[stages], counts), row, NO_PLAN)
            vector = int(row.argmin()) if len(row) else 0
            if len(row) and row[vector] < NO_PLAN and (best is None or row[vector] < best[0]):
                best = (int(row[vector]), stages, vector)
        return None if best is None else self._walk(best[1], best[2])

    def least_sums(self) -> Integers:
        """Of the whole model with at most v grains, by index of v in the box of counts; ``NO_PLAN``: nothing fits."""
        counts = self.chain.counts
        found = np.full(self.chain.num_vectors, NO_PLAN, np.int64)
        for stages in range(self.chain.problem.fewest_stages, len(self.sums)):
            vectors = self.chain.levels[stages].vectors
            found[vectors] = np.minimum(found[vectors], self.sums[stages][0])
        box = found.reshape([count + 1 for count in counts])
        for axis in range(len(counts)):
            box = np.minimum.accumulate(box, axis=axis)
        return np.asarray(box.reshape(-1))

    def _walk(self, stages: int, vector: int) -> Cut:
        """Lowest option first among equals, then fewest layers."""
        total_ns, layer, picks = int(self.sums[stages][0, vector]), 0, list[Pick]()
        for position in range(stages, 0, -1):
            option, number, vector = self._stage(position, layer, vector)
            picks.append(Pick(option, layer, layer + number))
            layer += number
        cut = self.chain.cut(tuple(picks))
        assert cut.sum_ns == total_ns, f"the stages add up to {cut.sum_ns} ns, the table says {total_ns} ns"
        return cut

    def _stage(self, position: int, layer: int, vector: int) -> tuple[int, int, int]:
        """Option, number of layers, and the place of what is left, of a stage on the best way."""
        steps = self.chain.steps(self.limits, position)
        goal, before = self.sums[position][layer, vector], self.sums[position - 1]
        for option, move in enumerate(self.chain.levels[position].moves):
            place = int(np.searchsorted(move.targets, vector))
            if place == len(move.targets) or move.targets[place] != vector:
                continue
            source = int(move.sources[place])
            numbers = min(steps.shape[1], self.chain.num_layers - layer)
            offered = steps[option, :numbers, layer] + before[layer + 1 : layer + 1 + numbers, source]
            (equal,) = np.nonzero(offered == goal)
            if len(equal):
                return option, int(equal[0]) + 1, source
        raise AssertionError("no stage gives the least sum")


def _inside(chain: Chain, level: Level, counts: Sequence[int]) -> np.ndarray:
    held = [level.vectors // stride % (most + 1) for stride, most in zip(chain.strides, chain.counts, strict=True)]
    return np.asarray(np.all([have <= count for have, count in zip(held, counts, strict=True)], axis=0))


def table_bytes(chain: Chain) -> int:
    """Of one evaluation, at most."""
    levels = 1 if all(size == 1 for size in chain.sizes) else chain.most_stages
    return 8 * (chain.num_layers + 1) * chain.num_vectors * levels


def table_work(chain: Chain, limits: Limits) -> int:
    """Sums looked at by one evaluation."""
    numbers = int((chain.steps(limits, 1) < NO_PLAN).any(axis=(0, 2)).sum())
    return table_bytes(chain) // 8 * numbers * len(chain.problem.options)


def fill_tables(chain: Chain, limits: Limits, rows: Rows) -> Tables:
    """All of S at ``limits``."""
    num_layers = chain.num_layers
    nothing = np.full((num_layers + 1, 1), NO_PLAN, np.int64)
    nothing[num_layers] = 0
    sums, first = [nothing], num_layers
    for position in range(1, chain.most_stages + 1):
        steps = chain.steps(limits, position)
        numbers = steps.shape[1]
        low = max(0, first - numbers)
        high = min(num_layers - position, (chain.most_stages - position) * numbers)
        table = np.full((num_layers + 1, len(chain.levels[position].vectors)), NO_PLAN, np.int64)
        if low <= high:
            _fill_level(table[low : high + 1], sums[-1], (steps, chain.levels[position]), low, rows)
        table[table > chain.longest_ways_ns(limits, position)[:, None]] = NO_PLAN
        sums.append(table)
        (finite,) = np.nonzero((table < NO_PLAN).any(axis=1)) if table.size else (np.zeros(0),)
        first = int(finite.min(initial=num_layers))
    return Tables(chain, limits, tuple(sums))


def _fill_level(found: Integers, before: Integers, stage: tuple[Integers, Level], low: int, rows: Rows) -> None:
    """Offer every option of a level to rows ``low`` and on, which ``found`` holds."""
    steps, level = stage
    for option, move in enumerate(level.moves):
        (numbers,) = np.nonzero((steps[option] < NO_PLAN).any(axis=1))
        if len(move.targets) and len(numbers):
            own = np.full((found.shape[0], len(move.targets)), NO_PLAN, np.int64)
            rows(own, before[:, move.sources], np.ascontiguousarray(steps[option, : numbers[-1] + 1]), low)
            found[:, move.targets] = np.minimum(found[:, move.targets], own)
