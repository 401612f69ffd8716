"""Cut layers into stages on devices of several kinds: exact dynamic programme at a fixed bottleneck T.

``S_T(j, l, u)`` = least sum of stage times for layers [l, L) in exactly j stages with devices u, every stage <= T. The
j-th stage from the end holds ``in_flight[j-1]`` micro-batches, which makes memory local to a transition. A step of m
micro-batches takes ``(m-1) x T + S`` in this model (one stage a group, GPipe or 1F1B). Whole nanoseconds throughout.
Tables are vectors over u (mixed radix) and over the ends of a stage. ``planner.search.refinement`` searches over T.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NO_PLAN", "Cut", "Integers", "PartitionProblem", "StageOption", "SumTables", "best_cut", "sum_tables"]

Integers = npt.NDArray[np.int64]
NO_PLAN = 2**61  # larger than any sum of stage times, small enough to add two


@dataclass(frozen=True, eq=False)
class StageOption:
    """What a stage may choose. Arrays over [first layer, end layer]; only ends above the first layer count.

    ``time_ns`` of one micro-batch and ``most_in_flight``, the micro-batches that memory holds (0: none), are
    monotone: the time grows with the end, the count falls.
    """

    kind: int
    size: int  # devices of the kind
    time_ns: Integers
    most_in_flight: Integers
    layer_ns: Integers  # of each layer alone, without a border: for lower bounds
    layer_state_bytes: Integers  # of each layer, on each device of the stage: for lower bounds
    reduction_ns: Integers | None = None  # sum of gradients over routes, after the last backward; the largest counts
    way_ns: Integers | None = None  # what the stage adds to the way of one micro-batch; its time where absent


@dataclass(frozen=True, eq=False)
class PartitionProblem:
    """``counts``: devices of each kind. ``in_flight``: by stage counted from the end; as many as stages are allowed."""

    options: tuple[StageOption, ...]
    counts: tuple[int, ...]
    num_micro_batches: int
    in_flight: tuple[int, ...]
    usable_bytes: tuple[int, ...]  # of a device, by kind
    fewest_stages: int = 1
    front_ns: Integers | None = None  # messages in front of each layer; given: round trips bound the bottleneck too

    @property
    def num_layers(self) -> int:
        return len(self.options[0].layer_ns)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Of the mixed-radix index of a vector of devices: sum of count x stride."""
        return tuple(int(np.prod([count + 1 for count in self.counts[k + 1 :]])) for k in range(len(self.counts)))

    @cached_property
    def vectors(self) -> tuple[tuple[int, ...], ...]:
        """Every vector of devices, by its index."""
        return tuple(product(*(range(count + 1) for count in self.counts)))


class Pick(NamedTuple):
    """One stage of a cut."""

    option: int
    first_layer: int
    end_layer: int


class Cut(NamedTuple):
    """Stages in order, their sum and the largest."""

    stages: tuple[Pick, ...]
    sum_ns: int
    bottleneck_ns: int

    def step_ns(self, num_micro_batches: int) -> int:
        """In the model of this module."""
        return (num_micro_batches - 1) * self.bottleneck_ns + self.sum_ns


class SumTables(NamedTuple):
    """``sums[j][l, u]``, and the option and end that give it (rows for j = 0 have none)."""

    problem: PartitionProblem
    sums: tuple[Integers, ...]
    options: tuple[Integers, ...]
    ends: tuple[Integers, ...]

    def least_sums(self) -> Integers:
        """Of the whole model, for each vector of devices."""
        allowed = [table[0] for table in self.sums[self.problem.fewest_stages :]]
        return np.asarray(np.min(allowed, axis=0)) if allowed else np.full_like(self.sums[0][0], NO_PLAN)

    def walk(self, devices: int) -> Cut | None:
        """The cut with the least sum for a vector of devices by its index; fewest stages first among equals."""
        fewest = self.problem.fewest_stages
        sums = [int(table[0, devices]) for table in self.sums[fewest:]]
        if not sums or min(sums) >= NO_PLAN:
            return None
        total = min(sums)
        stages, layer, left = fewest + sums.index(total), 0, devices
        picks, bottleneck_ns = [], 0
        for j in range(stages, 0, -1):
            number, end = int(self.options[j][layer, left]), int(self.ends[j][layer, left])
            option = self.problem.options[number]
            picks.append(Pick(number, layer, end))
            bottleneck_ns = max(bottleneck_ns, int(option.time_ns[layer, end]))
            left -= option.size * self.problem.strides[option.kind]
            layer = end
        return Cut(tuple(picks), total, bottleneck_ns)


def best_cut(problem: PartitionProblem, limit_ns: int) -> Cut | None:
    """The cut with the least sum among those whose stages take at most ``limit_ns``; None where nothing fits."""
    return sum_tables(problem, limit_ns).walk(len(problem.vectors) - 1)


def sum_tables(problem: PartitionProblem, limit_ns: int) -> SumTables:
    """All of ``S_T`` for T = ``limit_ns``."""
    num_layers, num_vectors = problem.num_layers, len(problem.vectors)
    empty = np.full((num_layers + 1, num_vectors), NO_PLAN, np.int64)
    nothing = empty.copy()
    nothing[num_layers] = 0
    sums, options, ends = [nothing], [np.zeros_like(empty)], [np.zeros_like(empty)]
    sources = [_sources(problem, option) for option in problem.options]
    for in_flight in problem.in_flight:
        reaches = [_reach(option, limit_ns, in_flight) for option in problem.options]
        table = (empty.copy(), np.zeros_like(empty), np.zeros_like(empty))
        for layer in range(num_layers):
            for number, option in enumerate(problem.options):
                if reaches[number][layer] > layer:
                    stage_ns = option.time_ns[layer, layer + 1 : reaches[number][layer] + 1]
                    _extend(table, sums[-1], _Row(layer, number, *sources[number]), stage_ns)
        for tables, found in zip((sums, options, ends), table, strict=True):
            tables.append(found)
    return SumTables(problem, tuple(sums), tuple(options), tuple(ends))


class _Row(NamedTuple):
    """Where a transition starts: layer, option, and the vectors of devices that hold the option."""

    layer: int
    option: int
    vectors: Integers  # that have the devices of the option
    left: Integers  # the vectors without them


def _sources(problem: PartitionProblem, option: StageOption) -> tuple[Integers, Integers]:
    held = np.array([vector[option.kind] for vector in problem.vectors], np.int64)
    (vectors,) = np.nonzero(held >= option.size)
    return vectors, vectors - option.size * problem.strides[option.kind]


def _reach(option: StageOption, limit_ns: int, in_flight: int) -> Integers:
    """By first layer: the last end within the limit and memory; the layer itself where there is none."""
    num_layers = len(option.layer_ns)
    fits = (option.time_ns <= limit_ns) & (option.most_in_flight >= in_flight)
    ends = np.arange(num_layers + 1)
    after = ends[None, :] > np.arange(num_layers)[:, None]
    broken = after & ~fits
    first_broken = np.where(broken.any(axis=1), broken.argmax(axis=1), num_layers + 1)
    return np.asarray(first_broken - 1)


def _extend(table: tuple[Integers, Integers, Integers], before: Integers, row: _Row, stage_ns: Integers) -> None:
    """Offer one option to all vectors of devices; among equals the lower option and the nearer end stay."""
    sums, options, ends = table
    first_end = row.layer + 1
    found = before[first_end : first_end + len(stage_ns)][:, row.left] + stage_ns[:, None]
    best = found.argmin(axis=0)
    values = found[best, np.arange(len(row.left))]
    better = values < sums[row.layer, row.vectors]
    chosen = row.vectors[better]
    sums[row.layer, chosen] = values[better]
    options[row.layer, chosen] = row.option
    ends[row.layer, chosen] = first_end + best[better]
