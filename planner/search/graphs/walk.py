"""The least largest load of any chain of down-sets, each step of which is a stage: exact dynamic programme under a cap.

``V(I, u)`` = least over chains from nothing to the down-set I, whose stages take the devices u (a count a kind), of the
largest load. ``V(I, u) = min over J below I, option o of max(V(J, u - size_o), load_o(I minus J))``. Nothing above the
cap is kept, and no set from which the work that is left exceeds ``cap x speed of the devices left``: what is missed is
above the cap, so a walk that ends empty proves that no plan reaches the cap. Vectors over the sets above J.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from planner.search.graphs.down_sets import DownSets, Integers

__all__ = ["NO_LOAD", "Chain", "Offer", "StagePrices", "Stopped", "Taken", "best_chain"]

NO_LOAD = 2**61
_SAFE = 1 + 1e-9
_STOP_EVERY = 64  # sets between two questions whether to stop


class Offer(NamedTuple):
    """One way to run the layers between two down-sets; ``load_ns`` by end, NO_LOAD: not at all."""

    option: int
    kind: int
    size: int
    load_ns: Integers


class StagePrices(Protocol):
    """What a stage costs. By device kind: devices there are, least that a plan must use, most that a stage takes.

    ``speeds``: most work per ns that one device of each kind can do.
    """

    @property
    def counts(self) -> tuple[int, ...]: ...

    @property
    def fewest(self) -> tuple[int, ...]: ...

    @property
    def largest(self) -> tuple[int, ...]: ...

    @property
    def speeds(self) -> tuple[float, ...]: ...

    def offers(self, first: int, ends: Integers) -> Iterator[Offer]: ...

    def option(self, number: int) -> tuple[int, int]:
        """Kind and number of devices."""
        ...


class Stopped(Exception):  # noqa: N818 - no error: carries a stop from inside the loops to their caller
    """The caller asked to stop."""


class Taken(NamedTuple):
    """A stage: its option, and the vertices that it holds."""

    option: int
    kind: int
    size: int
    vertices: tuple[int, ...]


class Chain(NamedTuple):
    """Stages in order and the largest load."""

    taken: tuple[Taken, ...]
    value_ns: int


def best_chain(sets: DownSets, prices: StagePrices, *, cap_ns: int, stop: Callable[[], bool]) -> Chain | None:
    """The best chain with no load above the cap; None: there is none. Raises ``Stopped``."""
    walk = _Walk(sets, prices, cap_ns)
    for first in range(sets.num_sets - 1):
        if first % _STOP_EVERY == 0 and stop():
            raise Stopped
        walk.extend(first)
    return walk.best()


class _Walk:
    """Tables by vector of devices (mixed radix) and down-set."""

    def __init__(self, sets: DownSets, prices: StagePrices, cap_ns: int) -> None:
        self._sets, self._prices, self._cap_ns = sets, prices, cap_ns
        counts = prices.counts
        self._vectors = np.array(list(product(*(range(count + 1) for count in counts))), np.int64)
        self._strides = [int(np.prod([count + 1 for count in counts[kind + 1 :]])) for kind in range(len(counts))]
        speeds = np.array(prices.speeds)
        speed_left = (np.array(counts) - self._vectors) @ speeds
        needed_ns = sets.work_ns[-1] - cap_ns * speed_left * _SAFE - 1
        self._lowest = np.searchsorted(sets.work_ns, needed_ns)  # the first set with which a vector can end
        reach_ns = cap_ns * float(np.max(speeds * np.array(prices.largest))) * _SAFE + 1
        self._ends = np.searchsorted(sets.work_ns, sets.work_ns + reach_ns, side="right")
        shape = (len(self._vectors), sets.num_sets)
        self._values = np.full(shape, NO_LOAD, np.int64)
        self._values[0, 0] = 0
        self._previous, self._options = np.zeros(shape, np.int32), np.zeros(shape, np.int32)

    def extend(self, first: int) -> None:
        """Offer every stage that begins at a set to the sets above it."""
        (alive,) = np.nonzero((self._values[:, first] <= self._cap_ns) & (self._lowest <= first))
        later = self._next(alive)
        if not len(later):
            return
        start = max(first + 1, int(self._lowest[later].min()))
        ends = self._sets.supersets(first, start, int(self._ends[first]))
        if not len(ends):
            return
        for offer in self._prices.offers(first, ends):
            fits = offer.load_ns <= self._cap_ns
            if fits.any():
                self._take(first, alive, offer._replace(load_ns=offer.load_ns[fits]), ends[fits])

    def _next(self, alive: Integers) -> Integers:
        """The vectors after one more device of some kind; larger stages leave less."""
        found = [
            alive[self._vectors[alive, kind] < count] + self._strides[kind]
            for kind, count in enumerate(self._prices.counts)
        ]
        return np.concatenate(found)

    def _take(self, first: int, alive: Integers, offer: Offer, ends: Integers) -> None:
        """Among equals the earlier set and the earlier option stay."""
        counts = self._prices.counts
        for vector in alive:
            if self._vectors[vector, offer.kind] + offer.size > counts[offer.kind]:
                continue
            then = vector + offer.size * self._strides[offer.kind]
            loads = np.maximum(offer.load_ns, self._values[vector, first])
            better = loads < self._values[then, ends]
            chosen = ends[better]
            self._values[then, chosen] = loads[better]
            self._previous[then, chosen] = first
            self._options[then, chosen] = offer.option

    def best(self) -> Chain | None:
        """Fewest devices first among equals."""
        allowed = (self._vectors >= np.array(self._prices.fewest)).all(axis=1)
        values = np.where(allowed, self._values[:, -1], NO_LOAD)
        vector, place = int(values.argmin()), self._sets.num_sets - 1
        if values[vector] > self._cap_ns:
            return None
        value_ns, taken = int(values[vector]), []
        while place:
            option, previous = int(self._options[vector, place]), int(self._previous[vector, place])
            kind, size = self._prices.option(option)
            taken.append(Taken(option, kind, size, self._sets.between(previous, place)))
            vector, place = vector - size * self._strides[kind], previous
        return Chain(tuple(reversed(taken)), value_ns)
