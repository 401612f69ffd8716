"""For each pair of nested down-sets and tensor degree: time against memory over all choices of the layers between.

Choices of a layer differ by (time, bytes kept, bytes fixed). Layers are taken one after the other; of partial sums with
equal bytes the quickest stays, so equal layers cost one more entry each, not twice as many; what another beats in all
three goes. That is exact.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.errors import ProblemError
from planner.search.graphs.down_sets import DownSets, Integers
from planner.search.graphs.pipeline import PipelineChoice, PipelineProblem
from planner.units import NS_PER_SECOND

__all__ = ["Front", "Fronts", "Point", "all_fronts", "chosen"]

Floats = npt.NDArray[np.float64]
_Sums = tuple[int, int]  # bytes kept, bytes fixed
_MOST_SUMS = 20_000


class Front(NamedTuple):
    """Of one pair of down-sets and one tensor degree."""

    first: int
    end: int
    tensor: int
    weight_bytes: int


class Point(NamedTuple):
    """One way to choose: ns of one data rank (times and what crosses, before dividing by d)."""

    time_ns: float
    kept_bytes: int
    fixed_bytes: int


class Fronts(NamedTuple):
    """``starts``: where the points of each front begin in the arrays of all points."""

    fronts: tuple[Front, ...]
    starts: Integers
    time_ns: Floats
    kept_bytes: Integers
    fixed_bytes: Integers


def all_fronts(problem: PipelineProblem, sets: DownSets) -> Fronts:
    """Of every pair, later ends first; those without a point that fits are left out."""
    fronts, starts, points = [], [], list[Point]()
    for first in range(sets.num_sets - 1):
        for end in sets.supersets(first, first + 1, sets.num_sets):
            layers = tuple(problem.order[vertex] for vertex in sets.between(first, int(end)))
            for tensor in problem.tensors:
                found = _front(problem, layers, tensor)
                if found:
                    weight_bytes = sum(_choices(problem, layer, tensor)[0].weight_bytes for layer in layers)
                    fronts.append(Front(first, int(end), tensor, weight_bytes))
                    starts.append(len(points))
                    points += found
    columns = [np.array([point[column] for point in points]) for column in range(3)]
    return Fronts(tuple(fronts), np.array(starts, np.int64), columns[0], *(c.astype(np.int64) for c in columns[1:]))


def chosen(problem: PipelineProblem, layers: tuple[int, ...], tensor: int, point: Point) -> tuple[PipelineChoice, ...]:
    """The choices of a point, by layer in the order of ``layers``."""
    time_ns, link = _sums(problem, layers, tensor)[point.kept_bytes, point.fixed_bytes]
    assert time_ns == point.time_ns, "the same sums in the same order"
    found = []
    while link is not None:
        link, choice = link
        found.append(choice)
    return tuple(reversed(found))


def _choices(problem: PipelineProblem, layer: int, tensor: int) -> list[PipelineChoice]:
    return [choice for choice in problem.layers[layer].choices if choice.tensor == tensor]


_Link = tuple["_Link | None", PipelineChoice]
_Partial = tuple[float, "_Link | None"]


def _sums(problem: PipelineProblem, layers: tuple[int, ...], tensor: int) -> dict[_Sums, _Partial]:
    """By bytes, the quickest way to choose; empty where a layer has no choice."""
    inside = frozenset(layers)
    ns_per_byte = NS_PER_SECOND / problem.bandwidth_bytes_per_s
    found: dict[_Sums, _Partial] = {(0, 0): (0.0, None)}
    for layer in layers:
        grown: dict[_Sums, _Partial] = {}
        for choice in _choices(problem, layer, tensor):
            own_ns = choice.time_ns + problem.cut_bytes(layer, choice, inside) * ns_per_byte
            for (kept, fixed), (time_ns, link) in found.items():
                key = (kept + choice.kept_bytes, fixed + choice.fixed_bytes)
                if key not in grown or time_ns + own_ns < grown[key][0]:
                    grown[key] = (time_ns + own_ns, (link, choice))
        found = grown
        if len(found) > _MOST_SUMS:
            message = f"{len(layers)} layers have more than {_MOST_SUMS} sums of bytes, expected layers more alike"
            raise ProblemError(message, code="too_many_choices", pointer=f"/layers/{layer}")
    return found


def _front(problem: PipelineProblem, layers: tuple[int, ...], tensor: int) -> list[Point]:
    """Quickest first; only what fits with one micro-batch in flight."""
    points = sorted(Point(time_ns, *key) for key, (time_ns, _) in _sums(problem, layers, tensor).items())
    kept: list[Point] = []
    for point in points:
        fits = point.kept_bytes + point.fixed_bytes <= problem.memory_bytes
        beaten = any(o.kept_bytes <= point.kept_bytes and o.fixed_bytes <= point.fixed_bytes for o in kept)
        if fits and not beaten:
            kept.append(point)
    return kept
