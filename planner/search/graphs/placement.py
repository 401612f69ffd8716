"""Any parts of a layer graph, contiguous or not: rounds of local search from the best start at hand.

Every other round goes on from the best placement, the rest begin again; each has its own heat and random numbers, so a
seed gives one answer. Loads are counted anew from the definition at the end.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from planner.search.graphs.kernels import Kernels
from planner.search.graphs.merged import Merged
from planner.search.graphs.moves import Anneal, Field, State
from planner.search.graphs.plan import GraphPlan, plan_of

__all__ = [
    "Effort",
    "Placement",
    "Range",
    "Solved",
    "device_kinds",
    "first_fit",
    "improved",
    "placement_of",
    "plan_of_placement",
]

Placement = tuple[int, ...]  # the device of each vertex
_NO_LIMIT_BYTES = 2**62
_HEATS = (20, 50, 100, 200)  # first allowance, in parts of 1000 of the value
_AIM = 30  # below the best value, in parts of 1024


class Effort(NamedTuple):
    """How long to look; the same on every machine."""

    rounds: int = 8
    tries: int = 100_000


class Range(NamedTuple):
    """No plan is below ``low_ns``; ``high_ns``: of the best placement known, ``hint``, or what every plan keeps to."""

    low_ns: int
    high_ns: int
    hint: Placement | None


class Solved(NamedTuple):
    """``too_large``: nothing was tried."""

    status: Literal["optimal", "feasible", "infeasible", "unknown", "too_large"]
    placement: Placement | None
    bound_ns: int


def device_kinds(merged: Merged) -> tuple[int, ...]:
    """The kind of each device."""
    return tuple(number for number, kind in enumerate(merged.problem.kinds) for _ in range(kind.num_devices))


def placement_of(merged: Merged, plan: GraphPlan) -> Placement:
    """Devices of one kind are taken in the order of the parts."""
    free = {kind: [d for d, k in enumerate(device_kinds(merged)) if k == kind] for kind in set(device_kinds(merged))}
    found = [-1] * len(merged.parts)
    for part in plan.parts:
        device = free[part.kind].pop(0)
        for layer in part.layers:
            found[merged.vertex_of[layer]] = device
    return tuple(found)


def plan_of_placement(merged: Merged, placement: Sequence[int]) -> GraphPlan:
    """Devices that hold nothing are left out."""
    held: dict[int, list[int]] = {}
    for vertex, device in enumerate(placement):
        held.setdefault(device, []).append(vertex)
    kinds = device_kinds(merged)
    return plan_of(merged.problem, [(kinds[d], merged.layers_of(vertices)) for d, vertices in sorted(held.items())])


def first_fit(merged: Merged) -> Placement | None:
    """The largest vertices first, each where it is done soonest and has room; None where one has none."""
    kinds = device_kinds(merged)
    limits = [merged.problem.kinds[kind].memory_bytes for kind in kinds]
    room = [_NO_LIMIT_BYTES if limit is None else limit for limit in limits]
    busy_ns, found = [0] * len(kinds), [-1] * len(merged.parts)
    times = [merged.times_ns(kind) for kind in range(len(merged.problem.kinds))]
    for vertex in sorted(range(len(merged.parts)), key=lambda v: (-merged.memory_bytes[v], v)):
        best: tuple[int, int] | None = None
        for device, kind in enumerate(kinds):
            time_ns = times[kind][vertex]
            if time_ns is not None and merged.memory_bytes[vertex] <= room[device]:
                offer = (busy_ns[device] + time_ns, device)
                best = offer if best is None else min(best, offer)
        if best is None:
            return None
        busy_ns[best[1]], found[vertex] = best
        room[best[1]] -= merged.memory_bytes[vertex]
    return tuple(found)


def improved(merged: Merged, start: Placement, *, kernels: Kernels, effort: Effort, seed: int) -> Iterator[Placement]:
    """After each round the best placement so far."""
    field, best = _field(merged, kernels), start
    value_ns = plan_of_placement(merged, start).value_ns
    for number in range(effort.rounds):
        state = _state(merged, field, kernels, best if number % 2 == 0 else start)
        found = kernels.row([0] * len(start))
        shift = _shift(merged)
        heat = (value_ns >> shift) * _HEATS[number % len(_HEATS)] // 1000
        plan = Anneal(effort.tries, heat, _AIM, shift, (seed * 1_000_003 + number + 1) & 0x7FFFFFFF)
        found_ns = kernels.anneal(field, state, found, plan)
        if found_ns < value_ns:
            value_ns, best = int(found_ns), tuple(int(device) for device in found)
        yield best


def _shift(merged: Merged) -> int:
    """So that the squares of all loads, were each as large as it can be, add up within 63 bits."""
    kinds = range(len(merged.problem.kinds))
    times_ns = sum(max(merged.times_ns(kind)[vertex] or 0 for kind in kinds) for vertex in range(len(merged.parts)))
    largest_ns = times_ns + sum(cost_ns for _, cost_ns in merged.nets)
    return max(0, largest_ns.bit_length() + (merged.problem.num_devices.bit_length() + 1) // 2 - 31)


def _field(merged: Merged, kernels: Kernels) -> Field:
    kinds = device_kinds(merged)
    at = [[net for net, (pins, _) in enumerate(merged.nets) if vertex in pins] for vertex in range(len(merged.parts))]
    pins = [pins for pins, _ in merged.nets]
    times = [merged.times_ns(kind) for kind in range(len(merged.problem.kinds))]
    limits = [merged.problem.kinds[kind].memory_bytes for kind in kinds]
    rows = (
        _firsts(at),
        [net for nets in at for net in nets],
        _firsts(pins),
        [pin for net in pins for pin in net],
        [cost_ns for _, cost_ns in merged.nets],
        [-1 if time is None else time for kind in kinds for time in times[kind]],
        list(merged.memory_bytes),
        [_NO_LIMIT_BYTES if limit is None else limit for limit in limits],
        [int(merged.problem.kinds[kind].pays_transfers) for kind in kinds],
    )
    return Field(*(kernels.row(row) for row in rows))


def _firsts(lists: Sequence[Sequence[int]]) -> list[int]:
    """Where each list begins when they stand one behind the other, and the end."""
    found = [0]
    for one in lists:
        found.append(found[-1] + len(one))
    return found


def _state(merged: Merged, field: Field, kernels: Kernels, placement: Placement) -> State:
    devices = len(field.limit_bytes)
    sizes = (len(merged.nets) * devices, devices, devices)
    state = State(kernels.row(list(placement)), *(kernels.row([0] * size) for size in sizes))
    kernels.begin(field, state)
    return state
