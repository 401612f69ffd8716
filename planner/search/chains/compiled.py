"""The loops of the exact programme compiled by numba where it is installed (extra ``fast``); equal tables.

Loading numba costs about a second, so small problems stay with numpy. Compiled code is kept on disk where there is a
folder for it.
"""

import logging
from functools import cache

from planner.errors import SettingsError
from planner.search.chains.kernel import Rows, loop_rows, numpy_rows
from planner.simulate.compiled import is_installed

__all__ = ["compiled_rows", "quickest_rows"]

_WORTH_COMPILING = 2_000_000_000  # sums looked at, in all evaluations: below it numpy ends before numba is loaded


def quickest_rows(work: int) -> Rows:
    """Compiled where numba is installed and ``work`` sums are worth it, else numpy."""
    return compiled_rows() if work >= _WORTH_COMPILING and is_installed() else numpy_rows


@cache
def compiled_rows() -> Rows:
    """Raises ``SettingsError`` where numba is not installed."""
    if not is_installed():
        message = "'numba' is not installed: pip install 'parallel-planner[fast]'"
        raise SettingsError(message, code="missing_extra")
    from numba import njit

    try:
        found: Rows = njit(cache=True)(loop_rows)
    except RuntimeError as error:  # no folder to keep it in
        logging.getLogger(__name__).info("compiled code is not kept: %s", error)
        found = njit()(loop_rows)
    return found
