"""A partition problem made ready for many devices: counted in grains, stage times by number of layers.

A grain is the largest number of devices of a kind that every option of the kind is a multiple of (a node, where only
whole nodes are used). Vectors of devices stand for devices *used*, and level j holds exactly those that j stages can
use: where every option is one grain the number of stages is the sum of the vector, and all levels together are as
large as one table over the devices left.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.search.partition import NO_PLAN, Cut, Integers, PartitionProblem, Pick

__all__ = ["Chain", "Level", "Limits", "Move"]

Integers32 = npt.NDArray[np.int32]


class Limits(NamedTuple):
    """The most that a stage may take: one micro-batch, and its sum of gradients over the routes."""

    stage_ns: int
    reduction_ns: int


class Move(NamedTuple):
    """Places of vectors in a level, and of the same vectors without one stage's devices in the level before."""

    targets: Integers32
    sources: Integers32


class Level(NamedTuple):
    """``vectors``: what exactly j stages can use, as indices of the box of counts, ascending; a move an option."""

    vectors: Integers
    moves: tuple[Move, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """All arrays are [option, number of layers - 1, first layer]; ``NO_PLAN`` where the stage would pass the end."""

    problem: PartitionProblem

    @property
    def num_layers(self) -> int:
        return self.problem.num_layers

    @property
    def most_stages(self) -> int:
        return len(self.problem.in_flight)

    @cached_property
    def grains(self) -> tuple[int, ...]:
        """Devices of each kind that are used together; the count itself for a kind that no option uses."""
        sizes = [[o.size for o in self.problem.options if o.kind == kind] for kind in range(len(self.problem.counts))]
        return tuple(
            math.gcd(*found) if found else max(1, count)
            for found, count in zip(sizes, self.problem.counts, strict=True)
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Of each option, in grains of its kind."""
        return tuple(option.size // self.grains[option.kind] for option in self.problem.options)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Of each kind, in grains; no more than all stages together can use."""
        largest = [0] * len(self.grains)
        for option, size in zip(self.problem.options, self.sizes, strict=True):
            largest[option.kind] = max(largest[option.kind], size)
        counts = zip(self.problem.counts, self.grains, largest, strict=True)
        return tuple(min(count // grain, self.most_stages * most) for count, grain, most in counts)

    @property
    def num_vectors(self) -> int:
        return math.prod(count + 1 for count in self.counts)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        return tuple(math.prod(count + 1 for count in self.counts[kind + 1 :]) for kind in range(len(self.counts)))

    @cached_property
    def stage_ns(self) -> Integers:
        return self._by_number([option.time_ns for option in self.problem.options], NO_PLAN)

    @cached_property
    def way_ns(self) -> Integers:
        """What a stage adds to the sum; its time, unless messages make the way of a micro-batch longer."""
        options = self.problem.options
        return self._by_number([o.time_ns if o.way_ns is None else o.way_ns for o in options], NO_PLAN)

    @cached_property
    def most_in_flight(self) -> Integers:
        return self._by_number([option.most_in_flight for option in self.problem.options], 0)

    @cached_property
    def reduction_ns(self) -> Integers:
        nothing = np.zeros((self.num_layers, self.num_layers + 1), np.int64)
        found = [option.reduction_ns for option in self.problem.options]
        return self._by_number([nothing if times is None else times for times in found], 0)

    def _by_number(self, tables: list[Integers], beyond: int) -> Integers:
        size = self.num_layers
        first, number = np.arange(size)[None, :], np.arange(1, size + 1)[:, None]
        ends = np.minimum(first + number, size)
        inside = first + number <= size
        return np.array([np.where(inside, table[first, ends], beyond) for table in tables], np.int64)

    def cut(self, picks: tuple[Pick, ...]) -> Cut:
        """Stages in order, with their sum and the largest."""
        places = [(pick.option, pick.end_layer - pick.first_layer - 1, pick.first_layer) for pick in picks]
        ways_ns = [int(self.way_ns[place]) for place in places]
        trips_ns = [
            self._round_trip_ns(sum(ways_ns[n:]), pick.first_layer, len(picks) - n) for n, pick in enumerate(picks)
        ]
        return Cut(picks, sum(ways_ns), max(*trips_ns, *(int(self.stage_ns[place]) for place in places)))

    def _round_trip_ns(self, way_ns: int, layer: int, position: int) -> int:
        """The shortest time between two micro-batches that a round trip from a stage to the end and back allows."""
        front_ns, in_flight = self.problem.front_ns, self.problem.in_flight[position - 1]
        if front_ns is None or in_flight >= self.problem.num_micro_batches:
            return 0
        return -(-(way_ns - int(front_ns[layer])) // in_flight)

    def longest_ways_ns(self, limits: Limits, position: int) -> Integers:
        """By first layer: the longest way from there to the end whose round trip keeps to the limits."""
        front_ns, in_flight = self.problem.front_ns, self.problem.in_flight[position - 1]
        if front_ns is None or in_flight >= self.problem.num_micro_batches:
            return np.full(self.num_layers + 1, NO_PLAN, np.int64)
        return np.append(in_flight * limits.stage_ns + front_ns, NO_PLAN)

    def largest_reduction_ns(self, cut: Cut) -> int:
        """Sum of gradients over the routes, of the stage where it takes longest."""
        found = [
            self.reduction_ns[pick.option, pick.end_layer - pick.first_layer - 1, pick.first_layer]
            for pick in cut.stages
        ]
        return int(max(found))

    @cached_property
    def least_layer_ns(self) -> Integers:
        """Of each layer on its best option, without a border."""
        return np.asarray(np.min([option.layer_ns for option in self.problem.options], axis=0))

    def steps(self, limits: Limits, position: int) -> Integers:
        """What the ``position``-th stage from the end adds; ``NO_PLAN`` where a limit or memory is passed.

        Cut off behind the largest number of layers that any option holds.
        """
        numbers = self._most_layers(limits)
        stage_ns = self.stage_ns[:, :numbers]
        allowed = (stage_ns <= limits.stage_ns) & (self.reduction_ns[:, :numbers] <= limits.reduction_ns)
        allowed &= self.most_in_flight[:, :numbers] >= self.problem.in_flight[position - 1]
        return np.where(allowed, self.way_ns[:, :numbers], NO_PLAN)

    def _most_layers(self, limits: Limits) -> int:
        fits = (self.stage_ns <= limits.stage_ns) & (self.most_in_flight >= self.problem.in_flight[0])
        (numbers,) = np.nonzero(fits.any(axis=(0, 2)))
        return int(numbers.max(initial=-1)) + 1

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """From no stage to as many as there may be."""
        found = [Level(np.zeros(1, np.int64), ())]
        held = self._held()
        while len(found) <= self.most_stages:
            before = found[-1].vectors
            fits = [
                before[held[option.kind][before] + size <= self.counts[option.kind]] + size * self.strides[option.kind]
                for option, size in zip(self.problem.options, self.sizes, strict=True)
            ]
            vectors = np.unique(np.concatenate(fits))
            found.append(
                Level(vectors, tuple(self._move(reached, vectors, before, n) for n, reached in enumerate(fits)))
            )
        return tuple(found)

    def _held(self) -> list[Integers]:
        """Of each kind, by index of the vector."""
        every = np.arange(self.num_vectors)
        return [every // stride % (count + 1) for stride, count in zip(self.strides, self.counts, strict=True)]

    def _move(self, reached: Integers, vectors: Integers, before: Integers, option: int) -> Move:
        used = self.sizes[option] * self.strides[self.problem.options[option].kind]
        targets, sources = np.searchsorted(vectors, reached), np.searchsorted(before, reached - used)
        return Move(targets.astype(np.int32), sources.astype(np.int32))
