"""Most bytes that the fullest rank of each group holds: the memory walk of docs/plan-contract.md section 3.

State lives all the time. What a visit keeps lives from F to its last backward, what R restores from R to the same
moment; without R what was dropped is back inside the first backward only. A message lives, at its receiver, from the
end of its writer to the end of its reader. Transients live while their instruction runs.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from planner.costs.prices import VisitPrice
from planner.simulate.arrays import InstructionArrays, Integers

__all__ = ["peak_bytes"]


def peak_bytes(
    arrays: InstructionArrays, starts_ns: Integers, ends_ns: Integers, *, state_bytes: Sequence[int]
) -> tuple[int, ...]:
    """By group; times are those of a whole replay of the same arrays."""
    taken, freed = _own_bytes(arrays)
    peaks = []
    for group, (first, end) in enumerate(pairwise(arrays.first)):
        own = slice(first, end)
        released = freed[own] + sum(column.message_bytes[own] for column in arrays.columns)
        changes = np.stack([taken[own], -released], axis=1).ravel()  # at each start, at each end, in stream order
        arrivals_ns, arriving = _arrivals(arrays, ends_ns, own)
        changes = np.insert(changes, _places(arrivals_ns, starts_ns[own], ends_ns[own]), arriving)
        peaks.append(state_bytes[group] + max(0, int(np.cumsum(changes).max(initial=0))))
    return tuple(peaks)


def _own_bytes(arrays: InstructionArrays) -> tuple[Integers, Integers]:
    """By instruction: bytes taken at its start, bytes freed at its end, without messages."""

    def price(field: str) -> Integers:
        return arrays.visit_prices[:, VisitPrice._fields.index(field)]

    forward, backward = arrays.is_operation("F"), arrays.is_operation("BIW")
    recompute = arrays.is_operation("R")
    kept, restored = price("kept_bytes"), price("restored_bytes")
    while_running = np.where(forward | recompute, price("forward_transient_bytes"), 0)
    while_running = np.where(backward, price("backward_transient_bytes"), while_running)
    while_running += np.where(arrays.first_backward & ~arrays.restored_before, restored, 0)
    to_the_last = np.where(forward, kept, np.where(recompute, restored, 0))
    ended = np.where(arrays.restored_before, kept + restored, kept)
    freed = np.where(arrays.last_backward | (forward & ~arrays.goes_backward), ended, 0)
    return while_running + to_the_last, while_running + freed


def _arrivals(arrays: InstructionArrays, ends_ns: Integers, own: slice) -> tuple[Integers, Integers]:
    """When messages for the instructions of a group arrive, and their bytes."""
    times, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for column in arrays.columns:
        before = column.before[own]
        exists = before >= 0
        times.append(ends_ns[before[exists]])
        sizes.append(column.message_bytes[own][exists])
    return np.concatenate(times), np.concatenate(sizes)


def _places(arrivals_ns: Integers, starts_ns: Integers, ends_ns: Integers) -> Integers:
    """Before which change of a group an arrival falls: behind what has ended by then, before what starts from then."""
    following = np.searchsorted(starts_ns, arrivals_ns, side="left")
    running = (following > 0) & (ends_ns[np.maximum(following, 1) - 1] > arrivals_ns)
    return np.asarray(2 * following - running)
