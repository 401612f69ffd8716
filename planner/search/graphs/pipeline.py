"""Contiguous stages of a layer graph with tensor and data degrees, recompute by layer and micro-batches in flight.

Piper's model (Tarnawski et al., NeurIPS 2021). A stage S of tensor degree t on d data ranks takes, a sample,
``(cut(S) / d + sum 4 (d-1) weights / (d N)) / B + sum of times / d``; it keeps ``y = ceil(data ranks of this and later
stages / d)`` micro-batches, and ``sum (A y + C)`` must fit. d divides the N micro-batches of a step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from planner.errors import ProblemError
from planner.search.graphs.problem import checked_order
from planner.units import NS_PER_SECOND

__all__ = [
    "PipelineChoice",
    "PipelineLayer",
    "PipelineProblem",
    "PipelineRead",
    "PipelineStage",
    "stage_bytes",
    "stage_ns",
]


class PipelineChoice(NamedTuple):
    """One way to run a layer at one tensor degree; bytes and ns of each tensor rank, a micro-batch.

    ``synchronised_bytes``: by the other layer, what crosses besides the output where that border is cut.
    """

    name: str
    tensor: int
    time_ns: int
    weight_bytes: int
    kept_bytes: int  # of each micro-batch in flight
    fixed_bytes: int
    synchronised_bytes: Mapping[int, int]


class PipelineLayer(NamedTuple):
    """A layer with its choices."""

    name: str
    choices: tuple[PipelineChoice, ...]


class PipelineRead(NamedTuple):
    """Who reads whom, by number, and the bytes that cross."""

    producer: int
    consumer: int
    num_bytes: int


@dataclass(frozen=True)
class PipelineProblem:
    """Raises ``ProblemError`` for a circle, an unknown layer, or choices of one degree with different weights."""

    layers: tuple[PipelineLayer, ...]
    reads: tuple[PipelineRead, ...]
    num_devices: int
    memory_bytes: int
    num_micro_batches: int
    bandwidth_bytes_per_s: int

    def __post_init__(self) -> None:
        assert self.order  # checks the graph
        for number, layer in enumerate(self.layers):
            for tensor in self.tensors:
                weights = {choice.weight_bytes for choice in layer.choices if choice.tensor == tensor}
                if len(weights) > 1:
                    message = f"layer {layer.name!r} has weights of {sorted(weights)} bytes at tensor degree {tensor}"
                    raise ProblemError(f"{message}, expected one size", code="weights", pointer=f"/layers/{number}")

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Layers by number, producers first."""
        pairs = [(read.producer, read.consumer) for read in self.reads]
        return checked_order([f"{number} {layer.name}" for number, layer in enumerate(self.layers)], pairs)

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Every tensor degree that some layer has."""
        return tuple(sorted({choice.tensor for layer in self.layers for choice in layer.choices}))

    @cached_property
    def data_degrees(self) -> tuple[int, ...]:
        """Divisors of the micro-batches up to the devices."""
        return tuple(d for d in range(1, self.num_devices + 1) if self.num_micro_batches % d == 0)

    @cached_property
    def borders(self) -> tuple[tuple[PipelineRead, ...], ...]:
        """Of each layer: the reads that it takes part in."""
        found: list[list[PipelineRead]] = [[] for _ in self.layers]
        for read in self.reads:
            found[read.producer].append(read)
            found[read.consumer].append(read)
        return tuple(tuple(reads) for reads in found)

    def cut_bytes(self, layer: int, choice: PipelineChoice, inside: frozenset[int]) -> int:
        """What a layer of the stage ``inside`` sends and receives over the stage's borders, both ways of the step."""
        total = 0
        for read in self.borders[layer]:
            other = read.consumer if read.producer == layer else read.producer
            if other not in inside:
                total += 2 * (read.num_bytes + choice.synchronised_bytes.get(other, 0))
        return total


class PipelineStage(NamedTuple):
    """Layers by number with the choice of each, in that order; degrees."""

    layers: tuple[int, ...]
    choices: tuple[PipelineChoice, ...]
    tensor: int
    data: int


def stage_ns(problem: PipelineProblem, stage: PipelineStage) -> float:
    """The formula above."""
    inside, d = frozenset(stage.layers), stage.data
    pairs = list(zip(stage.layers, stage.choices, strict=True))
    cut = sum(problem.cut_bytes(layer, choice, inside) for layer, choice in pairs)
    summed = sum(4 * (d - 1) * choice.weight_bytes for choice in stage.choices) / (d * problem.num_micro_batches)
    moved_ns = (cut / d + summed) / problem.bandwidth_bytes_per_s * NS_PER_SECOND
    return moved_ns + sum(choice.time_ns for choice in stage.choices) / d


def stage_bytes(stage: PipelineStage, *, later_data: int) -> int:
    """With ``later_data`` data ranks in the stages behind it."""
    in_flight = -(-(later_data + stage.data) // stage.data)
    return sum(choice.kept_bytes * in_flight + choice.fixed_bytes for choice in stage.choices)
