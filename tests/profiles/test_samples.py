"""Statistics of samples and the stop rule."""

import pytest

from planner.problem.profile import Statistic
from profiles.samples import spread_of, statistics_of

# 1..11: quantile q of eleven equally spaced values is 1 + 10 q
ONE_TO_ELEVEN = [7, 1, 11, 3, 5, 9, 2, 4, 10, 6, 8]


def test_quantiles_of_eleven_values() -> None:
    found = statistics_of(ONE_TO_ELEVEN, [4] * 11, "median_ns", seed=0)
    assert (found.min_ns, found.p10_ns, found.median_ns, found.p90_ns) == (1, 2, 6, 10)
    assert found.p25_ns == 4  # 1 + 10 x 0.25 = 3.5, rounded to even
    assert (found.mean_ns, found.num_samples, found.cpu_median_ns) == (6, 11, 4)


def test_equal_samples_are_sure() -> None:
    spread = spread_of([500] * 20, "p25_ns", seed=0)
    assert spread.worst == 0
    assert statistics_of([500] * 20, [1] * 20, "p25_ns", seed=0).confidence_95_share == 0


def test_few_samples_are_never_sure() -> None:
    assert spread_of([500] * 3, "median_ns", seed=0).worst == float("inf")
    assert statistics_of([500] * 3, [1] * 3, "median_ns", seed=0).confidence_95_share is None


def test_a_drift_shows_in_the_halves_though_the_interval_is_narrow() -> None:
    spread = spread_of([1000] * 50 + [1100] * 50, "mean_ns", seed=0)
    assert spread.interval_share < 0.03
    assert spread.halves_share == pytest.approx(100 / 1050)
    assert spread.worst == spread.halves_share


@pytest.mark.parametrize("statistic", ["p25_ns", "median_ns", "mean_ns", "min_ns"])
def test_more_noise_is_less_sure(statistic: Statistic) -> None:
    calm = [1000 + place % 5 for place in range(40)]
    noisy = [1000 + 200 * (place * 7 % 11) for place in range(40)]
    assert spread_of(calm, statistic, seed=3).worst < 0.01
    assert spread_of(noisy, statistic, seed=3).interval_share >= spread_of(calm, statistic, seed=3).interval_share
    assert spread_of(noisy, statistic, seed=3) == spread_of(noisy, statistic, seed=3)


def test_no_time_at_all_is_sure() -> None:
    assert spread_of([0] * 10, "median_ns", seed=0).worst == 0
