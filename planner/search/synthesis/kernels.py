"""The inner loops as plain Python or compiled by numba (extra ``fast``): the same source, so the same results.

Compiled code is kept on disk where there is a folder for it; compiling takes some ten seconds, once.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol, cast

import numpy as np

from planner.search.synthesis import kernel, layout
from planner.search.synthesis.lanes import Integers
from planner.search.synthesis.layout import Lanes, Manner, MutableRow, Row, State, Walk
from planner.simulate.compiled import compiled_functions, is_installed

__all__ = ["Kernels", "compiled_kernels", "plain_kernels", "quickest_kernels"]

_WORTH_COMPILING = 20_000_000  # instructions handled: below it plain Python ends before compiled code would help


class _ListSchedule(Protocol):
    def __call__(self, lanes: Lanes, keys: Row, manner: Manner, order: MutableRow, state: State, /) -> int: ...


class _Retime(Protocol):
    def __call__(self, lanes: Lanes, order: Row, cutoff: int, state: State, /) -> int: ...


class _Fits(Protocol):
    def __call__(self, lanes: Lanes, order: Row, group: int, /) -> bool: ...


class _Walk(Protocol):
    def __call__(
        self, lanes: Lanes, order: MutableRow, best: MutableRow, states: tuple[State, State], plan: Walk, /
    ) -> int: ...


class Kernels(NamedTuple):
    """``row``: makes of an array what the loops work on."""

    row: Callable[[Integers], MutableRow]
    list_schedule: _ListSchedule
    retime: _Retime
    fits: _Fits
    walk: _Walk


def quickest_kernels(work: int) -> Kernels:
    """Compiled where numba is installed and ``work`` instructions are worth it, else plain."""
    return compiled_kernels() if work >= _WORTH_COMPILING and is_installed() else plain_kernels()


def plain_kernels() -> Kernels:
    """Python's own loops over lists."""
    return Kernels(_as_list, kernel.list_schedule, kernel.retime, kernel.fits, kernel.walk)


def _as_list(values: Integers) -> list[int]:
    return cast(list[int], values.tolist())


@cache
def compiled_kernels() -> Kernels:
    """Compiled loops over arrays. Raises ``SettingsError`` where numba is not installed."""
    functions = compiled_functions(kernel, layout)
    return Kernels(_as_array, *(functions[name] for name in ("list_schedule", "retime", "fits", "walk")))


def _as_array(values: Integers) -> MutableRow:
    return cast(MutableRow, np.ascontiguousarray(values, np.int64))
