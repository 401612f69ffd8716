"""Loads of the stages between two down-sets: time of the kind, plus the nets that the stage cuts.

With J below I and S = I minus J, a net e (cost c) is cut by S when it has pins in S and outside. Summed over the nets:
``cut(S) = open(I) + sum over e open at J of c ([rest of e inside I] - [rest of e outside I])``, where a set opens a net
that has pins inside and outside it, and the rest of e are its pins outside J. So a pair of sets costs one look at the
few nets that are open at J, for all I at once.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from planner.search.graphs.down_sets import DownSets, Integers
from planner.search.graphs.merged import Merged
from planner.search.graphs.walk import NO_LOAD, Offer

__all__ = ["KindLoads", "kind_speeds", "least_work_ns"]


def least_work_ns(merged: Merged) -> tuple[int, ...]:
    """Of each vertex, its time on the kind that is quickest for it."""
    by_kind = zip(*(merged.times_ns(kind) for kind in range(len(merged.problem.kinds))), strict=True)
    return tuple(min((time for time in times if time is not None), default=0) for times in by_kind)


def kind_speeds(merged: Merged) -> tuple[float, ...]:
    """The most work per ns that one device of each kind can do: at most 1."""
    work_ns = least_work_ns(merged)
    return tuple(
        max((work / time for work, time in zip(work_ns, merged.times_ns(kind), strict=True) if time), default=0.0)
        for kind in range(len(merged.problem.kinds))
    )


class KindLoads:
    """One option a device kind, one device a stage."""

    def __init__(self, merged: Merged, sets: DownSets) -> None:
        self._sets, self._merged = sets, merged
        self._kinds = merged.problem.kinds
        known = np.array([[time is not None for time in merged.times_ns(k)] for k in range(len(self._kinds))])
        times = np.array([[time or 0 for time in merged.times_ns(k)] for k in range(len(self._kinds))], np.int64)
        members = sets.members.astype(np.int64)
        self._times_ns = times @ members.T  # [kind, set]
        self._missing = None if known.all() else (~known).astype(np.int64) @ members.T
        self._bytes = members @ np.array(merged.memory_bytes, np.int64)
        self._count_pins(merged)

    def _count_pins(self, merged: Merged) -> None:
        """``inside[net, set]``: pins of a net in a set."""
        pins = np.zeros((len(merged.nets), len(merged.parts)), np.float32)
        for number, (net, _) in enumerate(merged.nets):
            pins[number, list(net)] = 1
        self._cost_ns = np.array([cost for _, cost in merged.nets], np.int64)
        self._inside = np.rint(pins @ self._sets.members.T.astype(np.float32)).astype(np.int16)
        self._pins = pins.sum(axis=1).astype(np.int16)
        opened = (self._inside > 0) & (self._inside < self._pins[:, None])
        self._opened = np.ascontiguousarray(opened.T)
        self._open_ns = self._cost_ns @ opened

    @cached_property
    def counts(self) -> tuple[int, ...]:
        return tuple(min(kind.num_devices, self._sets.members.shape[1]) for kind in self._kinds)

    @cached_property
    def fewest(self) -> tuple[int, ...]:
        return tuple(0 for _ in self._kinds)

    @cached_property
    def largest(self) -> tuple[int, ...]:
        return tuple(1 for _ in self._kinds)

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        return kind_speeds(self._merged)

    def option(self, number: int) -> tuple[int, int]:
        return number, 1

    def offers(self, first: int, ends: Integers) -> Iterator[Offer]:
        """Every kind; where memory or a layer refuses it, NO_LOAD."""
        cut_ns = self._cut(first, ends)
        for number, kind in enumerate(self._kinds):
            load_ns = self._times_ns[number, ends] - self._times_ns[number, first]
            if kind.pays_transfers:
                load_ns += cut_ns
            if kind.memory_bytes is not None:
                load_ns[self._bytes[ends] - self._bytes[first] > kind.memory_bytes] = NO_LOAD
            if self._missing is not None:
                load_ns[self._missing[number, ends] > self._missing[number, first]] = NO_LOAD
            yield Offer(number, number, 1, load_ns)

    def _cut(self, first: int, ends: Integers) -> Integers:
        """The formula above."""
        (nets,) = np.nonzero(self._opened[first])
        if not len(nets):
            return np.asarray(self._open_ns[ends], np.int64)
        inside = self._inside[nets[:, None], ends]
        whole = (inside == self._pins[nets, None]).astype(np.int64)
        outside = inside == self._inside[nets, first][:, None]
        return np.asarray(self._open_ns[ends] + self._cost_ns[nets] @ (whole - outside), np.int64)
