"""The end of an executor, whether its user closes it, drops it or forgets it until the interpreter ends.

gloo's threads let go of a collective's tensors after the collective is done. A thread that is the last to hold one
needs the interpreter for it, and a thread that asks for an interpreter that is ending is ended in the middle of a
destructor: std::terminate, SIGABRT. So the last collective is waited for before the interpreter ends, and what was
given to a collective stays referenced from here for a while after it.
"""

import weakref
from collections import deque
from collections.abc import Callable

__all__ = ["at_end", "end_all", "hold"]

_held: deque[object] = deque(maxlen=32)
_ends: list["weakref.finalize[..., object]"] = []


def hold(*given: object) -> None:
    """Tensors of a collective: kept while another thread may still let go of them."""
    _held.append(given)


def at_end(owner: object, end: Callable[[], object]) -> "weakref.finalize[..., object]":
    """Run ``end`` once: when the result is called, ``owner`` is gone, or the interpreter ends.

    ``end`` must not refer to ``owner``.
    """
    found = weakref.finalize(owner, end)
    _ends[:] = [other for other in _ends if other.alive]
    _ends.append(found)
    return found


def end_all() -> None:
    """End every owner that still lives, the newest first."""
    while _ends:
        _ends.pop()()
