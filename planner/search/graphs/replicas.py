"""Contiguous stages of a layer graph on equal machines, each stage copied on some of them: PipeDream's model.

A stage of S on r machines takes ``(sum of times + 4 (r-1) weights / (r B)) / r``; where cuts are priced also at least
``2 outputs / (r B)`` for the cut before it and, unless it is the last or the first, for the cut behind it. All machines
are used. (Narayanan et al., SOSP 2019; the sum of gradients is divided by r twice, as in the authors' tool.)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from planner.errors import Fault, InfeasibleError
from planner.plan.answer import Limit
from planner.search.graphs.contiguous import certified_chains, never
from planner.search.graphs.down_sets import DownSets, Integers, down_sets
from planner.search.graphs.problem import checked_order
from planner.search.graphs.walk import Chain, Offer
from planner.units import NS_PER_SECOND

__all__ = ["ReplicaAnswer", "ReplicaLayer", "ReplicaProblem", "ReplicaStage", "replica_answers"]

_MOST_DOWN_SETS = 100_000


class ReplicaLayer(NamedTuple):
    """``time_ns``: forward and backward of one mini-batch."""

    name: str
    time_ns: int
    output_bytes: int
    weight_bytes: int


@dataclass(frozen=True)
class ReplicaProblem:
    """``reads``: producer and consumer by number. Raises ``ProblemError`` for a circle or an unknown layer."""

    layers: tuple[ReplicaLayer, ...]
    reads: tuple[tuple[int, int], ...]
    num_machines: int
    bandwidth_bytes_per_s: int
    cuts: Literal["priced", "free"]

    def __post_init__(self) -> None:
        assert self.order  # checks the graph

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Layers by number, producers first."""
        return checked_order([layer.name for layer in self.layers], self.reads)


class ReplicaStage(NamedTuple):
    """Layers by number, and on how many machines."""

    layers: tuple[int, ...]
    num_machines: int


class ReplicaAnswer(NamedTuple):
    """The best stages so far, if any, the time of the slowest, and what no plan can beat."""

    stages: tuple[ReplicaStage, ...]
    value_ns: int | None
    bound_ns: int
    limit: Limit | None


def replica_answers(problem: ReplicaProblem, *, stop: Callable[[], bool] = never) -> Iterator[ReplicaAnswer]:
    """Answers with rising bounds; the last is the optimum unless it was stopped."""
    place = {layer: number for number, layer in enumerate(problem.order)}
    before = [(place[a], place[b]) for a, b in problem.reads]
    work_ns = [problem.layers[layer].time_ns for layer in problem.order]
    sets = down_sets(before, work_ns, most=_MOST_DOWN_SETS)
    if sets is None:
        message = f"more than {_MOST_DOWN_SETS} down-sets, expected fewer"
        raise InfeasibleError((Fault("too_many_down_sets", "/reads", message),))
    low_ns = sum(work_ns) // problem.num_machines
    for found in certified_chains(sets, _ReplicaPrices(problem, sets), first=None, low_ns=low_ns, stop=stop):
        value_ns = None if found.chain is None else found.chain.value_ns
        yield ReplicaAnswer(_stages(problem, found.chain), value_ns, found.bound_ns, found.limit)


def _stages(problem: ReplicaProblem, chain: Chain | None) -> tuple[ReplicaStage, ...]:
    taken = () if chain is None else chain.taken
    return tuple(ReplicaStage(tuple(sorted(problem.order[v] for v in one.vertices)), one.size) for one in taken)


class _ReplicaPrices:
    """Option r - 1: a stage on r machines."""

    def __init__(self, problem: ReplicaProblem, sets: DownSets) -> None:
        self._problem, self._sets = problem, sets
        layers = [problem.layers[layer] for layer in problem.order]
        members = sets.members.astype(np.int64)
        self._weight_bytes = members @ np.array([layer.weight_bytes for layer in layers], np.int64)
        self._cut_bytes = _crossing_bytes(problem, sets)

    @property
    def counts(self) -> tuple[int, ...]:
        return (self._problem.num_machines,)

    fewest = counts
    largest = counts

    @property
    def speeds(self) -> tuple[float, ...]:
        return (1.0,)

    def option(self, number: int) -> tuple[int, int]:
        return 0, number + 1

    def offers(self, first: int, ends: Integers) -> Iterator[Offer]:
        """Rounded up to whole ns."""
        time_ns = self._sets.work_ns[ends] - self._sets.work_ns[first]
        weight_bytes = self._weight_bytes[ends] - self._weight_bytes[first]
        ns_per_byte = NS_PER_SECOND / self._problem.bandwidth_bytes_per_s
        crossing = self._crossing(first, ends)
        for number in range(1, self._problem.num_machines + 1):
            summed_ns = 4 * (number - 1) * weight_bytes / number * ns_per_byte
            load_ns = np.maximum((time_ns + summed_ns) / number, crossing * 2 * ns_per_byte / number)
            yield Offer(number - 1, 0, number, np.ceil(load_ns - 1e-6).astype(np.int64))

    def _crossing(self, first: int, ends: Integers) -> Integers:
        """Bytes of the larger cut of each stage that pays for one; the first stage pays none."""
        if self._problem.cuts == "free" or first == 0:
            return np.zeros(len(ends), np.int64)
        behind = np.where(ends == self._sets.num_sets - 1, 0, self._cut_bytes[ends])
        return np.asarray(np.maximum(behind, self._cut_bytes[first]), np.int64)


def _crossing_bytes(problem: ReplicaProblem, sets: DownSets) -> Integers:
    """Of each set: outputs of its layers that a layer outside reads."""
    place = {layer: number for number, layer in enumerate(problem.order)}
    found = np.zeros(sets.num_sets, np.int64)
    readers: dict[int, list[int]] = {}
    for producer, consumer in problem.reads:
        readers.setdefault(producer, []).append(place[consumer])
    for producer, vertices in readers.items():
        crosses = sets.members[:, place[producer]] & ~sets.members[:, vertices].all(axis=1)
        found += crosses * problem.layers[producer].output_bytes
    return found
