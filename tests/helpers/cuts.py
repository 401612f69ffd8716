"""Worked and random partition problems in abstract units, and brute force over every cut and option.

Brute force shares the arrays of a problem with the programme under test, and nothing else.
"""

import dataclasses
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.search.partition import PartitionProblem, Pick, StageOption

__all__ = [
    "INSTANCES",
    "Instance",
    "brute_force_cuts",
    "brute_force_step",
    "random_instance",
    "with_counts",
    "with_reductions",
    "without_limits",
]

KINDS = ("fast", "slow")
_PLENTY = 10**6


class OptionShape(NamedTuple):
    """Kind, tensor degree and recompute of an option, and the forward time of each layer."""

    kind: int
    tensor: int
    recomputes: bool
    forward: tuple[int, ...]


def _option(shape: OptionShape, state: tuple[int, ...], saved: tuple[int, ...], capacity: int) -> StageOption:
    num_layers = len(state)
    time_ns = np.zeros((num_layers, num_layers + 1), np.int64)
    in_flight = np.zeros_like(time_ns)
    factor = 4 if shape.recomputes else 3
    for first in range(num_layers):
        for end in range(first + 1, num_layers + 1):
            time_ns[first, end] = factor * sum(shape.forward[first:end]) + (1 if first else 0)
            free = capacity - -(-sum(state[first:end]) // shape.tensor)
            kept = -(-sum(saved[first:end]) // shape.tensor)
            if shape.recomputes:
                free -= -(-max(saved[first:end]) // shape.tensor)
                kept = end - first
            in_flight[first, end] = max(0, free // kept) if free >= 0 else 0
    return StageOption(
        kind=shape.kind,
        size=shape.tensor,
        time_ns=time_ns,
        most_in_flight=in_flight,
        layer_ns=np.array([factor * forward for forward in shape.forward]),
        layer_state_bytes=np.array([size // shape.tensor for size in state]),
    )


@dataclasses.dataclass(frozen=True)
class Instance:
    """One column of the table of worked instances."""

    name: str
    num_micro_batches: int
    shapes: tuple[OptionShape, ...]
    state: tuple[int, ...]
    saved: tuple[int, ...]
    counts: tuple[int, ...]
    capacities: tuple[int, ...]

    def problem(self, *, num_micro_batches: int | None = None, capacity: int | None = None) -> PartitionProblem:
        m = num_micro_batches or self.num_micro_batches
        capacities = (capacity,) * len(self.capacities) if capacity else self.capacities
        most = min(len(self.state), sum(self.counts))
        return PartitionProblem(
            options=tuple(_option(s, self.state, self.saved, capacities[s.kind]) for s in self.shapes),
            counts=self.counts,
            num_micro_batches=m,
            in_flight=tuple(min(j, m) for j in range(1, most + 1)),
            usable_bytes=capacities,
        )

    def described(self, pick: Pick) -> tuple[str, int, int, int]:
        """Kind, tensor degree, first and end layer."""
        shape = self.shapes[pick.option]
        return KINDS[shape.kind], shape.tensor, pick.first_layer, pick.end_layer


def _with_recompute(shapes: list[OptionShape]) -> tuple[OptionShape, ...]:
    return tuple(shape._replace(recomputes=again) for shape in shapes for again in (False, True))


INSTANCES = {
    "A": Instance(
        name="A",
        num_micro_batches=4,
        shapes=(OptionShape(0, 1, False, (2, 2, 4, 5, 7)), OptionShape(1, 1, False, (4, 6, 12, 15, 14))),
        state=(4, 4, 8, 4, 6),
        saved=(2, 3, 2, 1, 2),
        counts=(1, 2),
        capacities=(40, 40),
    ),
    "B": Instance(
        name="B",
        num_micro_batches=4,
        shapes=(OptionShape(0, 1, False, (4, 3, 2, 2, 4, 6)), OptionShape(1, 1, False, (8, 9, 4, 4, 8, 12))),
        state=(6, 4, 8, 4, 4, 4),
        saved=(2, 2, 2, 3, 1, 2),
        counts=(2, 2),
        capacities=(22, 20),
    ),
    "C": Instance(
        name="C",
        num_micro_batches=8,
        shapes=_with_recompute(
            [
                OptionShape(0, 1, False, (2, 5, 5, 2, 3, 7)),
                OptionShape(0, 2, False, (1, 3, 4, 1, 2, 4)),
                OptionShape(1, 1, False, (4, 10, 10, 6, 6, 14)),
                OptionShape(1, 2, False, (3, 6, 6, 4, 4, 8)),
            ]
        ),
        state=(4, 6, 4, 8, 4, 6),
        saved=(3, 3, 2, 2, 3, 2),
        counts=(2, 2),
        capacities=(20, 10),
    ),
}


def random_instance(source: random.Random) -> PartitionProblem:
    """Up to 6 layers, 4 devices, 2 kinds; capacities from "nothing fits" to "everything fits"."""
    num_layers = source.randint(1, 6)
    counts = source.choice([(1,), (2,), (4,), (1, 1), (1, 2), (2, 1), (2, 2), (1, 3)])

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(source.randint(low, high) for _ in range(num_layers))

    state, saved = numbers(1, 8), numbers(1, 4)
    shapes = []
    for kind, count in enumerate(counts):
        for tensor in (1, 2) if count > 1 and source.random() < 0.5 else (1,):
            forward = numbers(1, 9)
            shapes.append(OptionShape(kind, tensor, False, forward))
            if source.random() < 0.4:
                shapes.append(OptionShape(kind, tensor, True, forward))
    total = sum(state) + sum(saved)
    return Instance(
        name="random",
        num_micro_batches=source.randint(1, 6),
        shapes=tuple(shapes),
        state=state,
        saved=saved,
        counts=counts,
        capacities=tuple(source.randint(max(2, total // 4), total * 2) for _ in counts),
    ).problem()


def brute_force_cuts(problem: PartitionProblem) -> Iterator[tuple[Pick, ...]]:
    """Every legal cut, by plain recursion from the front."""
    num_layers = problem.num_layers

    def extend(picks: tuple[Pick, ...], left: tuple[int, ...]) -> Iterator[tuple[Pick, ...]]:
        first = picks[-1].end_layer if picks else 0
        if first == num_layers:
            if len(picks) >= problem.fewest_stages and _fits(problem, picks):
                yield picks
            return
        if len(picks) == len(problem.in_flight):
            return
        for number, option in enumerate(problem.options):
            if left[option.kind] >= option.size:
                rest = tuple(n - option.size * (k == option.kind) for k, n in enumerate(left))
                for end in range(first + 1, num_layers + 1):
                    yield from extend((*picks, Pick(number, first, end)), rest)

    yield from extend((), problem.counts)


def _fits(problem: PartitionProblem, picks: tuple[Pick, ...]) -> bool:
    return all(
        problem.options[pick.option].most_in_flight[pick.first_layer, pick.end_layer]
        >= problem.in_flight[len(picks) - 1 - position]
        for position, pick in enumerate(picks)
    )


def brute_force_step(problem: PartitionProblem) -> int | None:
    """The least (m-1) x largest + sum + largest reduction over every legal cut; None where there is none."""
    best: int | None = None
    for picks in brute_force_cuts(problem):
        times = [int(problem.options[p.option].time_ns[p.first_layer, p.end_layer]) for p in picks]
        tables = [(problem.options[p.option].reduction_ns, p) for p in picks]
        reductions = [0 if table is None else int(table[p.first_layer, p.end_layer]) for table, p in tables]
        value = (problem.num_micro_batches - 1) * max(times) + sum(times) + max(reductions)
        best = value if best is None else min(best, value)
    return best


def without_limits(problem: PartitionProblem) -> PartitionProblem:
    """The same problem with memory for everything."""
    options = tuple(
        dataclasses.replace(option, most_in_flight=np.full_like(option.most_in_flight, _PLENTY))
        for option in problem.options
    )
    return dataclasses.replace(problem, options=options)


def with_counts(problem: PartitionProblem, counts: tuple[int, ...]) -> PartitionProblem:
    """The same problem on fewer devices."""
    return dataclasses.replace(problem, counts=counts)


def with_reductions(problem: PartitionProblem, source: random.Random) -> PartitionProblem:
    """The same problem with a sum of gradients behind every stage, which grows with its layers."""
    sizes = [source.randint(0, 20) for _ in range(problem.num_layers)]
    before = np.concatenate([[0], np.cumsum(sizes)])
    spans = np.maximum(before[None, :] - before[:-1, None], 0)
    options = tuple(
        dataclasses.replace(option, reduction_ns=-(-spans // source.choice([option.size, 1])))
        for option in problem.options
    )
    return dataclasses.replace(problem, options=options)
