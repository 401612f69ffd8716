"""The sweep compiled by numba, where it is installed (extra ``fast``); equal results, many times as fast.

The first call compiles (seconds; kept on disk where there is a folder for it), so small plans are swept plainly.
"""

import hashlib
import importlib.util
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from planner.errors import SettingsError
from planner.simulate.program import Numbers, Program
from planner.simulate.sweep import NOT_DONE, Sweep, Times, plain_sweep, sweep_rows

__all__ = ["compiled", "compiled_functions", "compiled_sweep", "is_installed", "quickest_sweep"]

_WORTH_COMPILING = 200_000  # instructions: below it plain Python ends before numba is loaded

_Rows = Callable[[Program, Numbers, Numbers], None]
_Function = TypeVar("_Function", bound=Callable[..., object])


def quickest_sweep(num_instructions: int) -> Sweep:
    """The compiled sweep for a large plan where numba is installed, else the plain one."""
    return compiled_sweep if num_instructions >= _WORTH_COMPILING and is_installed() else plain_sweep


def is_installed() -> bool:
    """Whether numba is there; does not load it."""
    return importlib.util.find_spec("numba") is not None


def compiled_sweep(program: Program) -> Times:
    """By compiled code. Raises ``SettingsError`` where numba is not installed."""
    starts_ns = np.zeros(program.num_instructions, np.int64)
    ends_ns = np.full(program.num_instructions + 1, NOT_DONE, np.int64)
    ends_ns[-1] = 0
    _compiled_rows()(program.as_arrays(), starts_ns, ends_ns)
    return Times(starts_ns, ends_ns[:-1])


@cache
def _compiled_rows() -> _Rows:
    return compiled(sweep_rows)


def compiled(function: _Function) -> _Function:
    """``function`` compiled by numba, kept on disk where there is a folder for it.

    Raises ``SettingsError`` (missing_extra) where numba is not installed.
    """
    if not is_installed():
        message = "'numba' is not installed: pip install 'parallel-planner[fast]'"
        raise SettingsError(message, code="missing_extra")
    from numba import njit

    try:
        found: _Function = njit(cache=True)(function)
    except RuntimeError as error:  # no folder to keep it in
        logging.getLogger(__name__).info("compiled code is not kept: %s", error)
        found = njit()(function)
    return found


def compiled_functions(module: ModuleType, *used: ModuleType) -> Mapping[str, Callable[..., Any]]:
    """The functions of ``module`` compiled, each calling the others compiled, by their names. Raises as ``compiled``.

    Kept code is found by the sources of the module and of ``used``, so code of other sources is never looked at.
    """
    sources = (Path(inspect.getfile(one)).read_bytes() for one in (module, *used))
    version = hashlib.sha256(b"".join(sources)).hexdigest()[:16]
    namespace = dict(vars(module))
    functions = {name: value for name, value in vars(module).items() if isinstance(value, FunctionType)}
    for name, value in functions.items():
        function = FunctionType(value.__code__, namespace, name)
        function.__qualname__ = f"{name}_{version}"  # compiled code is kept under this name
        namespace[name] = compiled(function)
    return {name: namespace[name] for name in functions}
