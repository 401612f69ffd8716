"""The end of an executor, whether its user closes it, drops it or forgets it until the interpreter ends.

gloo's threads let go of a collective after it is done. A thread that is the last to hold one lets its tensors go too,
which needs the interpreter (torch 2.13: also where Python still holds them), and a thread that asks for an interpreter
that is ending is ended in the middle of a destructor: std::terminate, SIGABRT. So the last collective is waited for
before the interpreter ends, and the newest works stay referenced from here, to the end of the process.
"""

import ctypes
import weakref
from collections import deque
from collections.abc import Callable

__all__ = ["at_end", "end_all", "hold"]

_held: deque[object] = deque(maxlen=32)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_held))  # not even the end of the interpreter frees it
_ends: list["weakref.finalize[..., object]"] = []


def hold(work: object) -> None:
    """The work of a collective that was waited for: another thread may be about to let go of it."""
    _held.append(work)


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
