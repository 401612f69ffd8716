"""Bounds on the least sum from prices of devices (Lagrangian relaxation): no table over devices is needed.

For any whole prices lam >= 0 of one grain of each kind, ``V(j, l) = min over options o and ends e of t_o(l, e) +
lam x size_o + V(j-1, e)`` gives ``S_T >= min over j of V(j, 0) - sum lam x count``: a relaxation, because devices may
be overused at that price. Prices climb by the overuse (subgradient) with Polyak's step towards a target. A path that
overuses nothing is a cut.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.search.chains.chain import Chain, Limits
from planner.search.partition import NO_PLAN, Cut, Integers, Pick, StageOption

__all__ = ["Priced", "fluid_ns", "priced_sum"]

_ROUNDS = 60
_AHEAD = 0.05  # of the value: the target where none is given
_PATIENCE = 5  # rounds without a better bound, before steps are halved
_SHORTEST_STEP = 0.02  # of Polyak's


class Priced(NamedTuple):
    """``sum_ns``: no cut within the limits has less, ``NO_PLAN``: there is none. ``cut``: the best one met."""

    sum_ns: int
    prices: tuple[int, ...]
    cut: Cut | None


def priced_sum(chain: Chain, limits: Limits, prices: tuple[int, ...], target_ns: int | None) -> Priced:
    """From ``prices`` on, until the bound reaches ``target_ns`` or stops to rise."""
    paths, counts = _Paths(chain, limits), np.array(chain.counts)
    best, cut = Priced(-NO_PLAN, prices, None), None
    scale, stale = 1.0, 0
    for _ in range(_ROUNDS):
        path = paths.cheapest(prices)
        if path is None:
            return Priced(NO_PLAN, prices, None)
        bound_ns = path.value_ns - int(np.dot(prices, counts))
        over = paths.used(path.picks) - counts
        if (over <= 0).all() and (cut is None or path.sum_ns < cut.sum_ns):
            cut = chain.cut(path.picks)
        stale = 0 if bound_ns > best.sum_ns else stale + 1
        best = max(best, Priced(bound_ns, prices, None), key=lambda priced: priced.sum_ns)
        if stale == _PATIENCE:
            scale, stale = scale / 2, 0
        push = np.where((over < 0) & (np.array(prices) == 0), 0, over)
        is_reached = target_ns is not None and best.sum_ns >= target_ns
        if is_reached or not push.any() or scale < _SHORTEST_STEP:
            break
        goal_ns = best.sum_ns + max(1, int(_AHEAD * abs(best.sum_ns))) if target_ns is None else target_ns
        step = scale * max(1, goal_ns - bound_ns) / float((push * push).sum())
        prices = tuple(max(0, price + round(step * move)) for price, move in zip(prices, push.tolist(), strict=True))
    return best._replace(cut=cut)


class _Path(NamedTuple):
    """Stages in order, what they cost with prices, and their times alone."""

    value_ns: int
    picks: tuple[Pick, ...]
    sum_ns: int


class _Cheapest(NamedTuple):
    """[number of layers - 1, first layer]: the best option with its rent, and what it costs."""

    options: Integers
    cost_ns: Integers


class _Paths:
    """Ways through the layers of a chain within limits, where devices cost rent."""

    def __init__(self, chain: Chain, limits: Limits) -> None:
        self._chain = chain
        self._steps = {n: chain.steps(limits, place) for n, place in self._places.items()}

    @property
    def _in_flight(self) -> tuple[int, ...]:
        return self._chain.problem.in_flight

    @cached_property
    def _places(self) -> dict[int, int]:
        """Micro-batches in flight -> a position that holds so many."""
        chain = self._chain
        return {n: place for place, n in enumerate(chain.problem.in_flight, start=1)}

    def cheapest(self, prices: Sequence[int]) -> _Path | None:
        """The way that costs least, time and devices; None where not even overuse gives one."""
        by_position = self._by_position(prices)
        size = self._chain.num_layers
        value = np.full(2 * size + 1, NO_PLAN, np.int64)  # by layer; nothing behind the end
        value[size] = 0
        numbers, fronts = [], []
        for cheapest in by_position:
            ends = np.arange(size)[None, :] + np.arange(1, len(cheapest.cost_ns) + 1)[:, None]
            offered = cheapest.cost_ns + value[ends]
            best = offered.argmin(axis=0)
            value = np.full_like(value, NO_PLAN)
            value[:size] = np.minimum(offered[best, np.arange(size)], NO_PLAN)
            numbers.append(best)
            fronts.append(int(value[0]))
        fewest = self._chain.problem.fewest_stages
        least_ns = min(fronts[fewest - 1 :], default=NO_PLAN)
        if least_ns >= NO_PLAN:
            return None
        picks = self._walk(by_position, numbers, fewest + fronts[fewest - 1 :].index(least_ns))
        return _Path(least_ns, picks, self._chain.cut(picks).sum_ns)

    def _by_position(self, prices: Sequence[int]) -> list[_Cheapest]:
        """From the end; none behind the first position that holds nothing."""
        problem, sizes = self._chain.problem, self._chain.sizes
        rent = np.array([prices[o.kind] * size for o, size in zip(problem.options, sizes, strict=True)])
        found = {}
        for in_flight, steps in self._steps.items():
            if steps.size:
                cost = np.where(steps < NO_PLAN, steps + rent[:, None, None], NO_PLAN)
                found[in_flight] = _Cheapest(cost.argmin(axis=0), cost.min(axis=0))
        return [found[in_flight] for in_flight in self._in_flight if in_flight in found]

    def _walk(self, by_position: list[_Cheapest], numbers: list[Integers], stages: int) -> tuple[Pick, ...]:
        picks, layer = [], 0
        for position in range(stages - 1, -1, -1):
            number = int(numbers[position][layer])
            picks.append(Pick(int(by_position[position].options[number, layer]), layer, layer + number + 1))
            layer += number + 1
        return tuple(picks)

    def used(self, picks: Sequence[Pick]) -> Integers:
        """Grains of each kind."""
        found = np.zeros(len(self._chain.counts), np.int64)
        for pick in picks:
            found[self._chain.problem.options[pick.option].kind] += self._chain.sizes[pick.option]
        return found


def fluid_ns(options: Sequence[StageOption], counts: Sequence[int]) -> int:
    """No cut has a smaller largest stage: the dearest layer, or all work spread over all devices at their speeds.

    Prices as in ``planner.search.bounds``: for any lam >= 0 with sum lam x count = 1, ``T >= sum over layers of the
    least size x lam x time``.
    """
    work = [(option.kind, option.size * option.layer_ns) for option in options]
    totals = {kind: min(int(times.sum()) for k, times in work if k == kind) for kind, _ in work}
    scale = sum(counts[kind] / max(1, total) for kind, total in totals.items() if counts[kind])
    if not scale:
        return 0
    priced = [times / (max(1, totals[kind]) * scale) for kind, times in work]
    dearest_ns = np.min([option.layer_ns for option in options], axis=0).max()
    return max(int(dearest_ns), int(float(np.min(priced, axis=0).sum()) * (1 - 1e-9)))
