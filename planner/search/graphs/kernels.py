"""The local search's loop as plain Python over lists, or compiled by numba (extra ``fast``) over arrays: equal results.

Compiled code is kept on disk where there is a folder for it; compiling takes some seconds, once.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from planner.errors import SettingsError
from planner.search.graphs import moves
from planner.search.graphs.moves import Anneal, Field, MutableRow, State
from planner.simulate.compiled import is_installed

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
    if not is_installed():
        message = "'numba' is not installed: pip install 'parallel-planner[fast]'"
        raise SettingsError(message, code="missing_extra")
    namespace = dict(vars(moves))
    version = hashlib.sha256(Path(inspect.getfile(moves)).read_bytes()).hexdigest()[:16]
    for name, value in vars(moves).items():
        if isinstance(value, FunctionType):
            function = FunctionType(value.__code__, namespace, name)
            function.__qualname__ = f"{name}_{version}"  # compiled code is kept under this name
            namespace[name] = _compiled(function)
    return Kernels(_as_array, namespace["begin"], namespace["anneal"])


def _as_array(values: list[int]) -> MutableRow:
    return cast(MutableRow, np.array(values, np.int64))


def _compiled(function: FunctionType) -> Callable[..., Any]:
    from numba import njit

    try:
        return cast(Callable[..., Any], njit(cache=True)(function))
    except RuntimeError as error:  # no folder to keep it in
        logging.getLogger(__name__).info("compiled code is not kept: %s", error)
        return cast(Callable[..., Any], njit()(function))
