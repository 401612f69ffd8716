"""Bounds from prices of devices against the exact programme."""

import random

import pytest

from planner.search.chains.chain import Chain, Limits
from planner.search.chains.kernel import numpy_rows
from planner.search.chains.prices import fluid_ns, priced_sum
from planner.search.chains.tables import fill_tables
from planner.search.partition import NO_PLAN
from tests.helpers.cuts import INSTANCES, random_instance
from tests.helpers.search_instances import Routes, read_instance

# At the optimal T of A, B, C: without prices, with the prices of the worked table, and what these prove.
WORKED = {"A": (43, 61, (21, 0), 82), "B": (37, 65, (6, 0), 71), "C": (31, 46, (30, 8), 90)}


@pytest.mark.parametrize("name", sorted(WORKED))
def test_worked_prices(name: str) -> None:
    limit_ns, free, prices, priced = WORKED[name]
    chain = Chain(INSTANCES[name].problem())
    # a target below any bound: the first round ends it, so the bound is that of the prices given
    assert priced_sum(chain, Limits(limit_ns, 0), (0, 0), -1).sum_ns == free
    assert priced_sum(chain, Limits(limit_ns, 0), prices, -1).sum_ns == priced
    assert priced_sum(chain, Limits(limit_ns, 0), (0, 0), None).sum_ns >= 0.97 * priced


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_is_above_the_least_sum(seed: int) -> None:
    source, tight = random.Random(seed), 0
    for _ in range(50):
        chain = Chain(random_instance(source))
        limits = Limits(source.randint(3, 60), 0)
        exact = fill_tables(chain, limits, numpy_rows).best_cut()
        least_ns = NO_PLAN if exact is None else exact.sum_ns
        prices = tuple(source.choice([0, 0, 5, 50]) for _ in chain.counts)
        for target_ns in (None, least_ns):
            priced = priced_sum(chain, limits, prices, target_ns)
            assert priced.sum_ns <= least_ns
            assert priced.cut is None or priced.cut.sum_ns >= least_ns
            tight += priced.sum_ns == least_ns
    assert tight >= 20


@pytest.mark.parametrize("seed", range(2))
def test_no_bottleneck_is_below_the_fluid_one(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(100):
        chain = Chain(random_instance(source))
        assert (
            fill_tables(
                chain, Limits(fluid_ns(chain.problem.options, chain.problem.counts) - 1, 0), numpy_rows
            ).best_cut()
            is None
        )


def test_a_cluster_too_large_for_a_table_is_bounded_by_prices() -> None:
    """Four kinds of 256 devices on one route (33^4 vectors): no cut is below the published bound of 16.339 s, 13.123 s
    being the best step with more routes: 255 T + S at T up to 42 ms proves more than that."""
    chain = read_instance("four_kinds_4096_each").chain(Routes(routes=16), [8], None)
    priced = priced_sum(chain, Limits(42_000_000, 0), (0,) * 4, 14 * 10**9)
    assert priced.sum_ns + 255 * fluid_ns(chain.problem.options, chain.problem.counts) > 13_123_269_821
