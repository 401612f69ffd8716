"""The sweep compiled by numba, where it is installed (extra ``fast``); equal results, many times as fast.

The first call compiles (seconds; kept on disk where there is a folder for it), so small plans are swept plainly.
"""

import importlib.util
import logging
from collections.abc import Callable
from functools import cache

import numpy as np

from planner.errors import SettingsError
from planner.simulate.program import Numbers, Program
from planner.simulate.sweep import NOT_DONE, Sweep, Times, plain_sweep, sweep_rows

__all__ = ["compiled_sweep", "is_installed", "quickest_sweep"]

_WORTH_COMPILING = 200_000  # instructions: below it plain Python ends before numba is loaded

_Rows = Callable[[Program, Numbers, Numbers], None]


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
    if not is_installed():
        message = "'numba' is not installed: pip install 'parallel-planner[fast]'"
        raise SettingsError(message, code="missing_extra")
    from numba import njit

    try:
        found: _Rows = njit(cache=True)(sweep_rows)
    except RuntimeError as error:  # no folder to keep it in
        logging.getLogger(__name__).info("compiled code is not kept: %s", error)
        found = njit()(sweep_rows)
    return found
