"""The local search's loop as plain Python over lists, or compiled by numba (extra ``fast``) over arrays: equal results.

Compiled code is kept on disk where there is a folder for it; compiling takes some seconds, once.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol, cast

import numpy as np

from planner.search.graphs import moves
from planner.search.graphs.moves import Anneal, Field, MutableRow, State
from planner.simulate.compiled import compiled_functions, is_installed

__all__ = ["Kernels", "compiled_kernels", "plain_kernels", "quickest_kernels"]


class _Begin(Protocol):
    def __call__(self, field: Field, state: State, /) -> None: ...


class _Anneal(Protocol):
    def __call__(self, field: Field, state: State, best: MutableRow, plan: Anneal, /) -> int: ...


class Kernels(NamedTuple):
    """``row``: makes of whole numbers what the loops work on."""

    row: Callable[[list[int]], MutableRow]
    begin: _Begin
    anneal: _Anneal


def quickest_kernels() -> Kernels:
    """Compiled where numba is installed, else plain."""
    return compiled_kernels() if is_installed() else plain_kernels()


def plain_kernels() -> Kernels:
    """Python's own loops over lists."""
    return Kernels(list, moves.begin, moves.anneal)


@cache
def compiled_kernels() -> Kernels:
    """Compiled loops over arrays. Raises ``SettingsError`` where numba is not installed."""
    functions = compiled_functions(moves)
    return Kernels(_as_array, functions["begin"], functions["anneal"])


def _as_array(values: list[int]) -> MutableRow:
    return cast(MutableRow, np.array(values, np.int64))
