"""The loops of the exact programme compiled by numba where it is installed (extra ``fast``); equal tables.

Loading numba costs about a second, so small problems stay with numpy. Compiled code is kept on disk where there is a
folder for it.
"""

from functools import cache

from planner.search.chains.kernel import Rows, loop_rows, numpy_rows
from planner.simulate.compiled import compiled, is_installed

__all__ = ["compiled_rows", "quickest_rows"]

_WORTH_COMPILING = 2_000_000_000  # sums looked at, in all evaluations: below it numpy ends before numba is loaded


def quickest_rows(work: int) -> Rows:
    """Compiled where numba is installed and ``work`` sums are worth it, else numpy."""
    return compiled_rows() if work >= _WORTH_COMPILING and is_installed() else numpy_rows


@cache
def compiled_rows() -> Rows:
    """Raises ``SettingsError`` where numba is not installed."""
    return compiled(loop_rows)
