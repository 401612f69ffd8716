"""Layers that never part, taken as one vertex, and what crosses between vertices as nets.

A net is an output with its producer and its consumers as pins. A device pays a net when it holds some pins, not all:
the producer inside and a consumer outside, or the other way round, are exactly these two cases. Nets with equal pins
add up, nets inside one vertex vanish.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from planner.search.graphs.problem import GraphProblem

__all__ = ["Merged", "merge_classes", "merge_for_contiguous", "with_leaves_joined"]


@dataclass(frozen=True)
class Merged:
    """``parts``: layers of each vertex. ``before``: pairs of vertices, the first may not lie behind the second."""

    problem: GraphProblem
    parts: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, int], ...]

    @cached_property
    def vertex_of(self) -> tuple[int, ...]:
        """The vertex of each layer."""
        found = [0] * len(self.problem.layers)
        for vertex, layers in enumerate(self.parts):
            for layer in layers:
                found[layer] = vertex
        return tuple(found)

    @cached_property
    def nets(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Pins and ns of each net that can be cut, in the order of their pins."""
        found: dict[tuple[int, ...], int] = {}
        for number, readers in enumerate(self.problem.readers):
            pins = tuple(sorted({self.vertex_of[layer] for layer in (number, *readers)}))
            if len(pins) > 1 and self.problem.layers[number].transfer_ns > 0:
                found[pins] = found.get(pins, 0) + self.problem.layers[number].transfer_ns
        return tuple(sorted(found.items()))

    @cached_property
    def memory_bytes(self) -> tuple[int, ...]:
        layers = self.problem.layers
        return tuple(sum(layers[number].memory_bytes for number in part) for part in self.parts)

    def times_ns(self, kind: int) -> tuple[int | None, ...]:
        """Of each vertex on a device kind."""
        return tuple(self._time(part, kind) for part in self.parts)

    def _time(self, part: tuple[int, ...], kind: int) -> int | None:
        times = [self.problem.layers[number].times_ns[kind] for number in part]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    def layers_of(self, vertices: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(layer for vertex in vertices for layer in self.parts[vertex]))


def merge_classes(problem: GraphProblem) -> Merged:
    """One vertex a class; no order between them."""
    return Merged(problem, problem.classes, ())


def merge_for_contiguous(problem: GraphProblem) -> Merged:
    """One vertex a class, classes that read each other in a circle joined, ordered by the forward graph."""
    classes = merge_classes(problem)
    graph = _forward_graph(classes)
    joined = sorted(
        tuple(sorted(layer for vertex in group for layer in classes.parts[vertex]))
        for group in nx.strongly_connected_components(graph)
    )
    return _ordered(problem, joined)


def with_leaves_joined(merged: Merged) -> Merged:
    """A vertex that takes no time anywhere and has one neighbour joins it, repeatedly.

    Exact where memory cannot bind: the leaf never costs more beside its neighbour. Else only weightless leaves join.
    """
    problem = merged.problem
    limits = [kind.memory_bytes for kind in problem.kinds if kind.memory_bytes is not None]
    spare = not limits or sum(merged.memory_bytes) <= min(limits)
    idle = {
        vertex
        for vertex, part in enumerate(merged.parts)
        if all(time == 0 for number in part for time in problem.layers[number].times_ns)
        and (spare or merged.memory_bytes[vertex] == 0)
    }
    beside = [set[int]() for _ in merged.parts]
    for producer, readers in enumerate(problem.readers):
        for reader in readers:
            a, b = merged.vertex_of[producer], merged.vertex_of[reader]
            if a != b:
                beside[a].add(b)
                beside[b].add(a)
    parts = [list(part) for part in merged.parts]
    for vertex, neighbour in _leaves(beside, idle):
        parts[neighbour] += parts[vertex]
        parts[vertex] = []
    kept = sorted(tuple(sorted(part)) for part in parts if part)
    return _ordered(problem, kept) if merged.before else Merged(problem, tuple(kept), ())


def _leaves(beside: list[set[int]], idle: set[int]) -> Iterator[tuple[int, int]]:
    """Leaf and neighbour, in an order in which they can be joined; takes ``beside`` apart."""
    waiting = sorted(idle, reverse=True)
    while waiting:
        vertex = waiting.pop()
        if len(beside[vertex]) != 1:
            continue
        (neighbour,) = beside[vertex]
        beside[vertex].clear()
        beside[neighbour].discard(vertex)
        yield vertex, neighbour
        if neighbour in idle:
            waiting.append(neighbour)


def _forward_graph(merged: Merged) -> "nx.DiGraph[int]":
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(merged.parts)))
    pairs = ((merged.vertex_of[a], merged.vertex_of[b]) for a, b in merged.problem.forward_reads)
    graph.add_edges_from((a, b) for a, b in pairs if a != b)
    return graph


def _ordered(problem: GraphProblem, parts: list[tuple[int, ...]]) -> Merged:
    """Vertices numbered so that none reads a later one."""
    graph = _forward_graph(Merged(problem, tuple(parts), ()))
    order = list(nx.lexicographical_topological_sort(graph))
    place = {vertex: number for number, vertex in enumerate(order)}
    before = sorted((place[a], place[b]) for a, b in graph.edges)
    return Merged(problem, tuple(parts[vertex] for vertex in order), tuple(before))
