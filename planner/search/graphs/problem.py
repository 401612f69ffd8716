"""A layer graph and the devices that share it: minimise the largest load of a device.

Load of a device = time of its layers there + each transfer of an output that enters or leaves it, once, however many
other devices read it (Tarnawski et al., NeurIPS 2020, "throughput maximisation"). A kind without transfers (a CPU, on
which the outputs lie anyway) pays for none; what it reads and writes still enters and leaves the others. Layers of one
class sit together. Backward layers follow their class: a cut is contiguous when its devices can be numbered so that the
forward layers of the first n are closed under "what they read", for every n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import networkx as nx

from planner.errors import Fault, InfeasibleError, ProblemError
from planner.units import LARGEST_INTEGER, counted

__all__ = ["DeviceKind", "GraphLayer", "GraphProblem", "checked_order"]


class GraphLayer(NamedTuple):
    """One layer; ``times_ns`` by device kind, None: it cannot run there."""

    name: str
    times_ns: tuple[int | None, ...]
    memory_bytes: int
    transfer_ns: int = 0  # of its output, between a device and the host, once
    together: str = ""  # layers with the same word sit on one device; empty: alone
    is_backward: bool = False


class DeviceKind(NamedTuple):
    """``memory_bytes``: of one device, None: no limit. ``pays_transfers``: false for the host itself."""

    name: str
    num_devices: int
    memory_bytes: int | None = None
    pays_transfers: bool = True


@dataclass(frozen=True)
class GraphProblem:
    """Layers, who reads whom (producer, consumer) by number, and devices. Checks itself when it is made.

    Raises ``ProblemError`` (graph_cycle, unknown_layer, layer_repeated, kinds, negative, range) and, where a class of
    layers fits on no device, ``InfeasibleError``.
    """

    layers: tuple[GraphLayer, ...]
    reads: tuple[tuple[int, int], ...]
    kinds: tuple[DeviceKind, ...]

    def __post_init__(self) -> None:
        _check_layers(self)
        checked_order([layer.name for layer in self.layers], self.reads)
        _check_memory(self)

    @cached_property
    def num_devices(self) -> int:
        return sum(kind.num_devices for kind in self.kinds)

    @cached_property
    def forward_reads(self) -> tuple[tuple[int, int], ...]:
        """Those between two forward layers: what "contiguous" speaks of."""
        return tuple((a, b) for a, b in self.reads if not (self.layers[a].is_backward or self.layers[b].is_backward))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The consumers of each layer, ascending."""
        found: list[set[int]] = [set() for _ in self.layers]
        for producer, consumer in self.reads:
            found[producer].add(consumer)
        return tuple(tuple(sorted(consumers)) for consumers in found)

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Layers that sit together, by the first of them."""
        found: dict[str, list[int]] = {}
        for number, layer in enumerate(self.layers):
            found.setdefault(f"together {layer.together}" if layer.together else f"layer {number}", []).append(number)
        return tuple(tuple(numbers) for numbers in found.values())


def checked_order(names: Sequence[str], reads: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Numbers of the layers, producers first, lower numbers first. Raises ``ProblemError``."""
    for place, (producer, consumer) in enumerate(reads):
        for number in (producer, consumer):
            if not 0 <= number < len(names):
                message = f"reads[{place}] names layer {number}, expected 0..{len(names) - 1}"
                raise ProblemError(message, code="unknown_layer", pointer=f"/reads/{place}")
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(names)))
    graph.add_edges_from(reads)
    try:
        return tuple(nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
    shown = " -> ".join(repr(names[number]) for number in (*cycle[:6], cycle[0]))
    message = f"{_circle(len(cycle))}: {shown}, expected none"
    raise ProblemError(message, code="graph_cycle", pointer=f"/layers/{cycle[0]}")


def _circle(num_layers: int) -> str:
    return "a layer reads itself" if num_layers == 1 else f"{num_layers} layers read each other in a circle"


def _check_layers(problem: GraphProblem) -> None:
    num_devices = sum(kind.num_devices for kind in problem.kinds)
    if not problem.layers or not any(kind.num_devices > 0 for kind in problem.kinds):
        found = f"{counted(len(problem.layers), 'layer')} and {counted(num_devices, 'device')}"
        raise ProblemError(f"found {found}, expected at least one of each", code="kinds", pointer="/kinds")
    seen: dict[str, int] = {}
    for number, layer in enumerate(problem.layers):
        place = f"/layers/{number}"
        if seen.setdefault(layer.name, number) != number:
            message = f"layers {seen[layer.name]} and {number} are both named {layer.name!r}, expected different names"
            raise ProblemError(message, code="layer_repeated", pointer=place)
        if len(layer.times_ns) != len(problem.kinds):
            found = counted(len(layer.times_ns), "time")
            message = f"layer {layer.name!r} has {found}, expected {len(problem.kinds)}, one a kind"
            raise ProblemError(message, code="kinds", pointer=place)
        least = min(layer.memory_bytes, layer.transfer_ns, *(time or 0 for time in layer.times_ns))
        if least < 0:
            raise ProblemError(f"layer {layer.name!r} has {least}, expected >= 0", code="negative", pointer=place)
    for kind in range(len(problem.kinds)):
        total_ns = sum((layer.times_ns[kind] or 0) + layer.transfer_ns for layer in problem.layers)
        if total_ns > LARGEST_INTEGER:
            message = (
                f"all layers take {total_ns} ns on {problem.kinds[kind].name!r}, expected at most {LARGEST_INTEGER}"
            )
            raise ProblemError(message, code="range", pointer=f"/kinds/{kind}")


def _check_memory(problem: GraphProblem) -> None:
    """Every class must fit on some device alone."""
    for members in problem.classes:
        need_bytes = sum(problem.layers[number].memory_bytes for number in members)
        kinds = [
            kind
            for place, kind in enumerate(problem.kinds)
            if kind.num_devices and all(problem.layers[number].times_ns[place] is not None for number in members)
        ]
        if any(kind.memory_bytes is None or need_bytes <= kind.memory_bytes for kind in kinds):
            continue
        raise InfeasibleError((_reason(problem, members, kinds, need_bytes),))


def _reason(problem: GraphProblem, members: tuple[int, ...], kinds: list[DeviceKind], need_bytes: int) -> Fault:
    first = problem.layers[members[0]].name
    who = f"layer {first!r}" + (f" and {len(members) - 1} that sit with it" if len(members) > 1 else "")
    place = f"/layers/{members[0]}"
    if not kinds:
        return Fault("no_kind", place, f"{who}: no device kind runs all of them")
    largest = max(kinds, key=lambda kind: kind.memory_bytes or 0)
    have_bytes = largest.memory_bytes or 0
    short = f"{need_bytes - have_bytes} bytes short"
    message = f"{who}: {need_bytes} bytes, the largest device {largest.name!r} has {have_bytes}, {short}"
    return Fault("memory", place, message)
