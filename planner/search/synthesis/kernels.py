"""The inner loops as plain Python or compiled by numba (extra ``fast``): the same source, so the same results.

Compiled code is kept on disk where there is a folder for it; compiling takes some ten seconds, once.
"""

import hashlib
import importlib.util
import inspect
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from planner.errors import SettingsError
from planner.search.synthesis import kernel, layout
from planner.search.synthesis.lanes import Integers
from planner.search.synthesis.layout import Lanes, Manner, MutableRow, Row, State, Walk

__all__ = ["Kernels", "compiled_kernels", "is_installed", "plain_kernels", "quickest_kernels"]

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


def is_installed() -> bool:
    """Whether numba is there; does not load it."""
    return importlib.util.find_spec("numba") is not None


def plain_kernels() -> Kernels:
    """Python's own loops over lists."""
    return Kernels(_as_list, kernel.list_schedule, kernel.retime, kernel.fits, kernel.walk)


def _as_list(values: Integers) -> list[int]:
    return cast(list[int], values.tolist())


@cache
def compiled_kernels() -> Kernels:
    """Compiled loops over arrays. Raises ``SettingsError`` where numba is not installed."""
    if not is_installed():
        message = "'numba' is not installed: pip install 'parallel-planner[fast]'"
        raise SettingsError(message, code="missing_extra")
    names = [name for name, value in vars(kernel).items() if isinstance(value, FunctionType)]
    namespace, version = dict(vars(kernel)), _source_version()
    for name in names:
        function = FunctionType(vars(kernel)[name].__code__, namespace, name)
        function.__qualname__ = f"{name}_{version}"  # compiled code is kept under this name
        namespace[name] = _compiled(function)
    loops = [namespace[name] for name in ("list_schedule", "retime", "fits", "walk")]
    return Kernels(_as_array, *loops)


def _source_version() -> str:
    """Of everything that compiled code is made of: kept code of other sources is never looked at."""
    sources = (Path(inspect.getfile(module)).read_bytes() for module in (kernel, layout))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]


def _as_array(values: Integers) -> MutableRow:
    return cast(MutableRow, np.ascontiguousarray(values, np.int64))


def _compiled(function: FunctionType) -> Callable[..., Any]:
    from numba import njit

    try:
        return cast(Callable[..., Any], njit(cache=True)(function))
    except RuntimeError as error:  # no folder to keep it in
        logging.getLogger(__name__).info("compiled code is not kept: %s", error)
        return cast(Callable[..., Any], njit()(function))
