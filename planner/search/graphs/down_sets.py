"""Every down-set of an order, as rows of a table: the sets of vertices that hold all that comes before their members.

Vertices come in topological order, so the down-sets of the first n + 1 are those of the first n, and each of them that
holds what comes before vertex n, with it: none is made twice, and no prefix has more of them than the whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["DownSets", "down_sets", "prefixes"]

_WORD = 64
Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Members = npt.NDArray[np.bool_]


class DownSets(NamedTuple):
    """``words[w, i]``: 64 vertices of set i a word; ``members[i, vertex]``. Sorted: a set stands behind its subsets."""

    words: Words
    members: Members
    work_ns: Integers  # of each set, ascending

    @property
    def num_sets(self) -> int:
        return len(self.work_ns)

    def supersets(self, of: int, first: int, end: int) -> Integers:
        """The sets in [first, end) that hold the set ``of`` and more."""
        inside: Members | None = None
        for word in self.words:
            held = (word[first:end] & word[of]) == word[of]
            inside = held if inside is None else inside & held
        assert inside is not None
        return np.flatnonzero(inside) + first

    def between(self, first: int, end: int) -> tuple[int, ...]:
        """The vertices of set ``end`` that set ``first`` lacks."""
        return tuple(int(v) for v in np.flatnonzero(self.members[end] & ~self.members[first]))


def down_sets(before: Sequence[tuple[int, int]], work_ns: Sequence[int], *, most: int) -> DownSets | None:
    """All of them, the empty and the full one too; None where there are more than ``most``."""
    num_vertices = len(work_ns)
    masks = np.zeros((num_vertices, -(-num_vertices // _WORD)), np.uint64)
    for first, then in before:
        masks[then, first // _WORD] |= np.uint64(1 << first % _WORD)
    words = np.zeros((masks.shape[1], 1), np.uint64)
    for vertex in range(num_vertices):
        needed = masks[vertex][:, None]
        grown = words[:, ((words & needed) == needed).all(axis=0)]
        if words.shape[1] + grown.shape[1] > most:
            return None
        grown[vertex // _WORD] |= np.uint64(1 << vertex % _WORD)
        words = np.concatenate((words, grown), axis=1)
    return _sorted(words, work_ns)


def prefixes(orders: Sequence[Sequence[int]], work_ns: Sequence[int]) -> DownSets:
    """Only the down-sets that are the first n of one of ``orders``: few, and enough for a first plan."""
    found = {frozenset(order[:length]) for order in orders for length in range(len(order) + 1)}
    words = np.zeros((-(-len(work_ns) // _WORD), len(found)), np.uint64)
    for place, vertices in enumerate(sorted(found, key=sorted)):
        for vertex in vertices:
            words[vertex // _WORD, place] |= np.uint64(1 << vertex % _WORD)
    return _sorted(words, work_ns)


def _sorted(words: Words, work_ns: Sequence[int]) -> DownSets:
    """By work, then by number of members: both grow from a set to one that holds it."""
    octets = np.ascontiguousarray(words.T).astype("<u8").view(np.uint8)
    members = np.unpackbits(octets, axis=1, bitorder="little")[:, : len(work_ns)]
    work = np.asarray(members.astype(np.int64) @ np.array(work_ns, np.int64), np.int64)
    order = np.lexsort((*words, members.sum(axis=1, dtype=np.int64), work))
    return DownSets(np.ascontiguousarray(words[:, order]), members[order].astype(np.bool_), work[order])
