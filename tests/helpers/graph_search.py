"""Small random layer graphs and everything that can be done with them, written from the definitions alone."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product

from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem

NOTHING = 10**18


def chain_graph(
    times_ns: Sequence[int], *, num_devices: int, transfer_ns: int = 0, memory_bytes: int | None = None
) -> GraphProblem:
    """Layers in a line, of one byte each, on one kind."""
    layers = tuple(GraphLayer(f"layer {n}", (time,), 1, transfer_ns) for n, time in enumerate(times_ns))
    reads = tuple((n, n + 1) for n in range(len(times_ns) - 1))
    return GraphProblem(layers, reads, (DeviceKind("device", num_devices, memory_bytes),))


def random_graph(seed: int) -> GraphProblem:
    """Up to 6 layers, up to 3 devices and a host; classes, backward layers, holes and memory limits now and then."""
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    with_host = draw.random() < 0.4
    limit = draw.choice([None, None, draw.randint(4, 12)])
    kinds = [DeviceKind("device", draw.randint(1, 3), limit)]
    if with_host:
        kinds.append(DeviceKind("host", 1, draw.choice([None, 6]), draw.random() < 0.3))
    layers = []
    for number in range(count):
        time = draw.choice([0, draw.randint(1, 9)])
        times = [time] + [time * draw.randint(1, 4) for _ in kinds[1:]]
        known = tuple(None if draw.random() < 0.05 else one for one in times)
        together = draw.choice(["", "", "", "red", "blue"])
        layers.append(
            GraphLayer(f"l{number}", known, draw.randint(0, 4), draw.randint(0, 4), together, draw.random() < 0.2)
        )
    reads = tuple(pair for pair in combinations(range(count), 2) if draw.random() < 0.4)
    return GraphProblem(tuple(layers), reads, tuple(kinds))


def load_of(problem: GraphProblem, kind: int, inside: frozenset[int]) -> int:
    """From the definition; NOTHING where memory or a layer refuses."""
    device, layers = problem.kinds[kind], problem.layers
    times = [layers[number].times_ns[kind] for number in inside]
    if device.memory_bytes is not None and sum(layers[n].memory_bytes for n in inside) > device.memory_bytes:
        return NOTHING
    total = 0
    for time in times:
        if time is None:
            return NOTHING
        total += time
    if device.pays_transfers:
        incoming = {a for a, b in problem.reads if a not in inside and b in inside}
        outgoing = {a for a, b in problem.reads if a in inside and b not in inside}
        total += sum(layers[number].transfer_ns for number in incoming | outgoing)
    return total


def best_anywhere(problem: GraphProblem) -> int:
    """Over every way to give each class a device."""
    devices = [kind for kind, one in enumerate(problem.kinds) for _ in range(one.num_devices)]
    best = NOTHING
    for chosen in product(range(len(devices)), repeat=len(problem.classes)):
        loads = []
        for device, kind in enumerate(devices):
            held = [problem.classes[c] for c, at in enumerate(chosen) if at == device]
            loads.append(load_of(problem, kind, frozenset(n for layers in held for n in layers)))
        best = min(best, max(loads))
    return best


def closed_sets(problem: GraphProblem) -> list[frozenset[int]]:
    """Unions of classes that hold, with a forward layer, the forward layers that it reads; small ones first."""
    found = []
    for size in range(len(problem.classes) + 1):
        for some in combinations(problem.classes, size):
            inside = frozenset(number for layers in some for number in layers)
            if all(a in inside for a, b in problem.forward_reads if b in inside):
                found.append(inside)
    return found


def best_contiguous(problem: GraphProblem) -> int:
    """Over every chain of closed sets and kinds."""
    counts = tuple(kind.num_devices for kind in problem.kinds)
    sets = closed_sets(problem)
    best = {(frozenset[int](), tuple(0 for _ in counts)): 0}
    for first in sets:
        for used in product(*(range(count + 1) for count in counts)):
            if (first, used) not in best:
                continue
            for then, kind in product(sets, range(len(counts))):
                if first < then and used[kind] < counts[kind]:
                    after = tuple(n + (place == kind) for place, n in enumerate(used))
                    value = max(best[first, used], load_of(problem, kind, then - first))
                    best[then, after] = min(best.get((then, after), NOTHING), value)
    everything = frozenset(range(len(problem.layers)))
    return min((value for (held, _), value in best.items() if held == everything), default=NOTHING)


def closed_chains(num_layers: int, reads: Sequence[tuple[int, int]]) -> Iterator[tuple[frozenset[int], ...]]:
    """Every way to cut layers into stages in order."""
    subsets = [frozenset(some) for size in range(num_layers + 1) for some in combinations(range(num_layers), size)]
    closed = [inside for inside in subsets if all(a in inside for a, b in reads if b in inside)]

    def from_here(held: frozenset[int]) -> Iterator[tuple[frozenset[int], ...]]:
        if len(held) == num_layers:
            yield ()
        for then in closed:
            if held < then:
                for rest in from_here(then):
                    yield (then - held, *rest)

    yield from from_here(frozenset())
