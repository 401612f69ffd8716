"""The inner loop of the exact programme: one level of sums from the level before it, for one option.

Two forms of one rule, ``found[l, v] = min over n of stage_ns[n-1, l] + before[l+n, v]``, with equal results: numpy over
layers and vectors at once, and plain loops that numba compiles (extra ``fast``).
"""

from collections.abc import Callable

import numpy as np

from planner.search.partition import NO_PLAN, Integers

__all__ = ["Rows", "loop_rows", "numpy_rows"]

Rows = Callable[[Integers, Integers, Integers, int], None]
"""``found`` [rows, vectors] is lowered; ``before`` [layers + 1, vectors]; ``stage_ns`` [numbers, layers]; first row."""


def numpy_rows(found: Integers, before: Integers, stage_ns: Integers, low: int) -> None:
    """Rows ``low`` and on; ``found`` holds them alone."""
    num_layers = before.shape[0] - 1
    for number in range(1, stage_ns.shape[0] + 1):
        rows = min(found.shape[0], num_layers - number + 1 - low)
        times = stage_ns[number - 1, low : low + rows]
        if rows <= 0 or times.min() >= NO_PLAN:
            continue
        offered = before[low + number : low + number + rows] + times[:, None]
        np.minimum(found[:rows], offered, out=found[:rows])


def loop_rows(found: Integers, before: Integers, stage_ns: Integers, low: int) -> None:
    """The same in loops."""
    num_layers = before.shape[0] - 1
    for row in range(found.shape[0]):
        layer = low + row
        best = found[row]
        for number in range(1, min(stage_ns.shape[0], num_layers - layer) + 1):
            stage = stage_ns[number - 1, layer]
            if stage < NO_PLAN:
                after = before[layer + number]
                for vector in range(found.shape[1]):
                    best[vector] = min(best[vector], after[vector] + stage)
