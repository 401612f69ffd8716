"""Non-negative least squares over a few terms, on relative error.

With at most four terms the optimum is found exactly: it is the plain least-squares solution on some subset of the
terms, so all subsets are tried. Few terms win ties, hence a fit over one point is a straight line through it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

__all__ = ["Fit", "fit_terms"]

_TIE = 1e-12  # a larger set of terms must lower the squared relative error by more than this


@dataclass(frozen=True)
class Fit:
    """``value = sum of coefficient x term``; ``worst_under_share``: the most that it is below a fitted value."""

    coefficients: tuple[float, ...]
    worst_under_share: float

    def value(self, terms: Sequence[float]) -> float:
        return sum(coefficient * term for coefficient, term in zip(self.coefficients, terms, strict=True))


def fit_terms(rows: Sequence[Sequence[float]], values: Sequence[float]) -> Fit:
    """The non-negative coefficients with the least sum of squared relative errors.

    The order of the terms breaks ties: a set of earlier terms is tried first.
    """
    matrix = np.asarray(rows, dtype=float)
    target = np.asarray(values, dtype=float)
    weights = 1.0 / np.maximum(np.abs(target), 1.0)
    best, least = np.zeros(matrix.shape[1]), float(np.sum((target * weights) ** 2))
    for size in range(1, matrix.shape[1] + 1):
        for chosen in combinations(range(matrix.shape[1]), size):
            solution = _solve(matrix[:, chosen] * weights[:, None], target * weights)
            if solution is None:
                continue
            error = float(np.sum((matrix[:, chosen] @ solution - target) ** 2 * weights**2))
            if error < least - _TIE:
                least, best = error, np.zeros(matrix.shape[1])
                best[list(chosen)] = solution
    under = (target - matrix @ best) * weights
    return Fit(tuple(float(c) for c in best), max(0.0, float(np.max(under))))


def _solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray | None:
    """The plain least-squares solution, or None where it has a negative part or is not determined."""
    scale = np.max(np.abs(matrix), axis=0)
    if np.any(scale == 0):
        return None
    solution, _, rank, _ = np.linalg.lstsq(matrix / scale, target, rcond=None)
    if rank < matrix.shape[1] or np.any(solution < 0):
        return None
    return np.asarray(solution / scale)
