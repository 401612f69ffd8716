"""The inner loop of the local search over placements, on flat arrays.

The same source runs on lists in plain Python and, compiled, on numpy arrays, with identical results: whole numbers
only, and random numbers of its own. ``anneal`` moves one vertex, or two that change places, and takes what does not
lift the energy by more than a random allowance that falls to nothing (threshold accepting, Dueck and Scheuer 1990).
The energy is the sum over devices of the squared load above an aim just below the best value met: only the fullest
devices count, and all of them do.
"""

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

__all__ = ["Anneal", "Field", "MutableRow", "Row", "State", "anneal", "begin"]

Row = Sequence[int]
MutableRow = MutableSequence[int]


class Field(NamedTuple):
    """The problem. ``nets`` of a vertex stand at [net_first[v], net_first[v + 1]); ``pins`` of a net likewise.

    ``time_ns`` and ``pays``: [device] or [device x vertices + vertex]; a time below 0: not there.
    """

    net_first: Row
    nets: Row
    pin_first: Row
    pins: Row
    cost_ns: Row  # of a net
    time_ns: Row
    memory_bytes: Row  # of a vertex
    limit_bytes: Row  # of a device
    pays: Row  # of a device, 0 or 1


class State(NamedTuple):
    """``where``: device of each vertex. ``inside``: [net x devices + device] pins. The rest: of a device."""

    where: MutableRow
    inside: MutableRow
    load_ns: MutableRow
    used_bytes: MutableRow


class Anneal(NamedTuple):
    """``aim``: below the best, in parts of 1024. ``shift``: loads above it are counted in units of 2^shift ns."""

    tries: int
    heat: int  # first allowance of one device, in these units
    aim: int
    shift: int
    seed: int


def begin(field: Field, state: State) -> None:
    """Loads and pins of the placement ``state.where``; the rest of the state is zero."""
    devices = len(field.limit_bytes)
    for vertex in range(len(state.where)):
        device = state.where[vertex]
        state.load_ns[device] += field.time_ns[device * len(state.where) + vertex]
        state.used_bytes[device] += field.memory_bytes[vertex]
        for at in range(field.net_first[vertex], field.net_first[vertex + 1]):
            state.inside[field.nets[at] * devices + device] += 1
    for net in range(len(field.cost_ns)):
        pins = field.pin_first[net + 1] - field.pin_first[net]
        for device in range(devices):
            if field.pays[device] and 0 < state.inside[net * devices + device] < pins:
                state.load_ns[device] += field.cost_ns[net]


def anneal(field: Field, state: State, best: MutableRow, plan: Anneal) -> int:
    """``best`` becomes the best placement met, ``state`` the last one; the value of the best."""
    random, least = plan.seed, _largest(state.load_ns)
    _copy(state.where, best)
    aim = least - (least * plan.aim >> 10)
    energy = _energy(state.load_ns, aim, plan.shift)
    for number in range(plan.tries):
        random = _next(random)
        share = (plan.tries - number) * (random >> 16 & 1023) // plan.tries
        allowance = (plan.heat * share >> 10) * (plan.heat * share >> 10)
        first, source, second, random = _try(field, state, random)
        if first < 0:
            continue
        target = state.where[first]
        found = _energy(state.load_ns, aim, plan.shift)
        if found > energy + allowance or not _fits(field, state, source, target):
            if second >= 0:
                _move(field, state, second, target)
            _move(field, state, first, source)
            continue
        energy = found
        if _largest(state.load_ns) < least:
            least = _largest(state.load_ns)
            _copy(state.where, best)
            aim = least - (least * plan.aim >> 10)
            energy = _energy(state.load_ns, aim, plan.shift)
    return least


def _try(field: Field, state: State, random: int) -> tuple[int, int, int, int]:
    """Move a vertex, perhaps another one back: the first (-1: nothing moved), whence, the second (-1: none), random."""
    random = _next(random)
    first = (random >> 8) % len(state.where)
    random = _next(random)
    target, random = _target(field, state, first, random)
    source, second = state.where[first], -1
    if target == source or not _move(field, state, first, target):
        return -1, source, -1, random
    if random >> 20 & 1:
        random = _next(random)
        second = _partner(state, target, first, random)
        if second >= 0 and not _move(field, state, second, source):
            second = -1
    return first, source, second, random


def _copy(source: Row, target: MutableRow) -> None:
    for place in range(len(source)):
        target[place] = source[place]


def _next(random: int) -> int:
    """A linear congruential generator; its low bits are poor."""
    return (random * 1103515245 + 12345) & 0x7FFFFFFF


def _largest(loads: Row) -> int:
    found = 0
    for load in loads:
        found = max(found, load)
    return found


def _energy(loads: Row, aim: int, shift: int) -> int:
    total = 0
    for load in loads:
        if load > aim:
            above = load - aim >> shift
            total += above * above
    return total


def _fits(field: Field, state: State, source: int, target: int) -> bool:
    """Two vertices that changed places may pass through a full device, but not end there."""
    return (
        state.used_bytes[source] <= field.limit_bytes[source] and state.used_bytes[target] <= field.limit_bytes[target]
    )


def _target(field: Field, state: State, vertex: int, random: int) -> tuple[int, int]:
    """Mostly the device of a neighbour, else any; and the random number."""
    start, end = field.net_first[vertex], field.net_first[vertex + 1]
    if random >> 12 & 7 == 0 or start == end:
        random = _next(random)
        return (random >> 8) % len(field.limit_bytes), random
    random = _next(random)
    net = field.nets[start + (random >> 8) % (end - start)]
    random = _next(random)
    first, last = field.pin_first[net], field.pin_first[net + 1]
    return state.where[field.pins[first + (random >> 8) % (last - first)]], random


def _partner(state: State, device: int, but: int, random: int) -> int:
    """The first vertex on a device from a random place on; -1 for none."""
    count = len(state.where)
    start = (random >> 8) % count
    for step in range(count):
        vertex = start + step if start + step < count else start + step - count
        if vertex != but and state.where[vertex] == device:
            return vertex
    return -1


def _move(field: Field, state: State, vertex: int, target: int) -> bool:
    """Put a vertex on another device; False, and nothing done, where it cannot run there."""
    count, devices = len(state.where), len(field.limit_bytes)
    if field.time_ns[target * count + vertex] < 0:
        return False
    source = state.where[vertex]
    left, gained = field.time_ns[source * count + vertex], field.time_ns[target * count + vertex]
    for at in range(field.net_first[vertex], field.net_first[vertex + 1]):
        net = field.nets[at]
        cost, pins = field.cost_ns[net], field.pin_first[net + 1] - field.pin_first[net]
        there, here = net * devices + source, net * devices + target
        if field.pays[source]:
            left += cost if state.inside[there] == 1 else 0
            left -= cost if state.inside[there] == pins else 0
        if field.pays[target]:
            gained += cost if state.inside[here] == 0 else 0
            gained -= cost if state.inside[here] == pins - 1 else 0
        state.inside[there] -= 1
        state.inside[here] += 1
    state.load_ns[source] -= left
    state.load_ns[target] += gained
    state.used_bytes[source] -= field.memory_bytes[vertex]
    state.used_bytes[target] += field.memory_bytes[vertex]
    state.where[vertex] = target
    return True
