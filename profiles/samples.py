"""Samples of one operation -> its statistics, and whether more samples are needed.

Stop rule: the bootstrap 95 % interval of the statistic is narrow enough *and* both halves of the rounds agree: noise is
correlated in time, so a narrow interval alone proves little.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.problem.profile import Statistic, Statistics

__all__ = ["Spread", "spread_of", "statistics_of"]

_RESAMPLES = 200
_Times = NDArray[np.float64]


class Spread(NamedTuple):
    """How sure the statistic is, both relative to it."""

    interval_share: float  # width of the 95 % interval
    halves_share: float  # difference between the first and the second half of the samples

    @property
    def worst(self) -> float:
        return max(self.interval_share, self.halves_share)


def spread_of(durations_ns: Sequence[int], statistic: Statistic, *, seed: int) -> Spread:
    """The spread of samples in the order in which they were taken."""
    times = np.asarray(durations_ns, dtype=np.float64)
    centre = float(_value(times[None, :], statistic)[0])
    if centre == 0:
        return Spread(0.0, 0.0)
    if len(times) < 4:
        return Spread(float("inf"), float("inf"))
    picks = np.random.default_rng(seed).integers(0, len(times), (_RESAMPLES, len(times)))
    low, high = np.percentile(_value(times[picks], statistic), (2.5, 97.5))
    middle = len(times) // 2
    first, second = (_value(half[None, :], statistic)[0] for half in (times[:middle], times[middle:]))
    return Spread(float(high - low) / centre, abs(float(second - first)) / centre)


def statistics_of(durations_ns: Sequence[int], cpu_ns: Sequence[int], statistic: Statistic, *, seed: int) -> Statistics:
    """Quantiles, mean and CPU time, rounded to whole nanoseconds."""
    times = np.asarray(durations_ns, dtype=np.float64)
    p10, p25, median, p90 = (round(float(q)) for q in np.percentile(times, (10, 25, 50, 90)))
    spread = spread_of(durations_ns, statistic, seed=seed).interval_share
    return Statistics(
        num_samples=len(times),
        min_ns=int(times.min()),
        p10_ns=p10,
        p25_ns=p25,
        median_ns=median,
        mean_ns=round(float(times.mean())),
        p90_ns=p90,
        cpu_median_ns=round(float(np.median(np.asarray(cpu_ns, dtype=np.float64)))),
        confidence_95_share=spread if np.isfinite(spread) else None,
    )


def _value(rows: _Times, statistic: Statistic) -> _Times:
    """The statistic of each row."""
    if statistic == "mean_ns":
        return np.asarray(rows.mean(axis=1))
    if statistic == "min_ns":
        return np.asarray(rows.min(axis=1))
    return np.asarray(np.percentile(rows, 25 if statistic == "p25_ns" else 50, axis=1))
