"""The exact programme over devices used: worked instances A, B, C, brute force, and equal tables by all loops."""

import random

import numpy as np
import pytest
from numba import njit

from planner.search.chains.chain import Chain, Limits
from planner.search.chains.compiled import compiled_rows, quickest_rows
from planner.search.chains.elastic import elastic_steps
from planner.search.chains.kernel import loop_rows, numpy_rows
from planner.search.chains.tables import Tables, fill_tables
from planner.search.partition import best_cut
from tests.helpers.cuts import INSTANCES, Instance, brute_force_step, random_instance, with_counts
from tests.helpers.search_instances import Routes, read_instance


@pytest.fixture(params=sorted(INSTANCES))
def instance(request: pytest.FixtureRequest) -> Instance:
    return INSTANCES[request.param]


def tables_at(chain: Chain, stage_ns: int) -> Tables:
    return fill_tables(chain, Limits(stage_ns, 0), numpy_rows)


# Least sums at the realised bottlenecks; a limit 1 ns below the least of them fits nothing.
LEAST_SUMS = {
    "A": {36: None, 37: 104, 43: 82, 49: 79, 55: 67, 60: 60},
    "B": {30: None, 31: 96, 37: 71},
    "C": {30: None, 31: 90, 37: 87, 43: 52},
}


def test_least_sums_at_realised_bottlenecks(instance: Instance) -> None:
    chain = Chain(instance.problem())
    for limit_ns, expected in LEAST_SUMS[instance.name].items():
        cut = tables_at(chain, limit_ns).best_cut()
        assert (None if cut is None else cut.sum_ns) == expected
        assert cut is None or cut.bottleneck_ns == limit_ns


ELASTIC = {  # by (fast, slow) devices that are left; what is missing is infeasible
    "A": {(0, 1): 612, (0, 2): 418, (1, 0): 240, (1, 1): 211, (1, 2): 211},
    "B": {(1, 2): 221, (2, 1): 182, (2, 2): 182},
    "C": {(2, 1): 356, (2, 2): 307},
}


def test_elastic_table(instance: Instance) -> None:
    problem = instance.problem()
    values = elastic_steps(Chain(problem))
    found = {v: values.step_ns(v) for v in problem.vectors if values.step_ns(v) is not None}
    assert found == ELASTIC[instance.name]


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_programme_over_devices_left(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(50):
        problem = random_instance(source)
        chain = Chain(problem)
        for limit_ns in (source.randint(1, 40), 10**6):
            cut, expected = tables_at(chain, limit_ns).best_cut(), best_cut(problem, limit_ns)
            assert (cut is None) == (expected is None)
            assert cut is None or expected is None or cut.sum_ns == expected.sum_ns


@pytest.mark.parametrize("seed", range(4))
def test_elastic_values_equal_brute_force_for_every_sub_cluster(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(25):
        problem = random_instance(source)
        values = elastic_steps(Chain(problem))
        for counts in problem.vectors:
            assert values.step_ns(counts) == brute_force_step(with_counts(problem, counts))


def test_all_loops_fill_equal_tables() -> None:
    """Compiled with bounds checked; plain Python on the small ones."""
    checked = njit(boundscheck=True)(loop_rows)
    source = random.Random(7)
    for _ in range(30):
        chain = Chain(random_instance(source))
        limits = Limits(source.randint(5, 60), 0)
        expected = fill_tables(chain, limits, numpy_rows)
        for rows in (checked, compiled_rows(), loop_rows):
            found = fill_tables(chain, limits, rows)
            assert all(np.array_equal(a, b) for a, b in zip(expected.sums, found.sums, strict=True))
    chain = read_instance("four_kinds_16_each").chain(Routes(), [4, 8], 12)
    limits = Limits(300_000_000, 0)
    expected, found = fill_tables(chain, limits, numpy_rows), fill_tables(chain, limits, checked)
    assert expected.best_cut() is not None
    assert all(np.array_equal(a, b) for a, b in zip(expected.sums, found.sums, strict=True))


def test_small_work_loads_no_compiler() -> None:
    assert quickest_rows(1_000_000) is numpy_rows


def test_devices_are_counted_in_grains() -> None:
    # 32 devices of four kinds, all options of 8: 5^4 vectors; one stage uses one grain, so level j holds the sum j
    chain = read_instance("four_kinds_32_each").chain(Routes(), [8], 16)
    assert chain.grains == (8, 8, 8, 8)
    assert chain.counts == (4, 4, 4, 4)
    assert sum(len(level.vectors) for level in chain.levels) == 625
