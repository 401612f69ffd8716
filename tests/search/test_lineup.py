"""A candidate's score equals the simulated step of its plan, and its bound is never above."""

import dataclasses
import random
from typing import get_args

import numpy as np
import pytest

from planner.costs.price import ProblemCosts
from planner.problem.options import Constraints, Family
from planner.schedules.families import FAMILIES as FAMILIES_BY_NAME
from planner.search.assemble import assemble
from planner.search.degrees import allowed_degrees
from planner.search.fitting import fitting
from planner.search.lineup import Batch, Lineup
from planner.search.orders import ChainShape, serves
from planner.search.space import make_space
from planner.simulate.simulate import simulate
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload, with_split_costs

FAMILIES: tuple[Family, ...] = get_args(Family)


def random_costs(source: random.Random) -> ProblemCosts:
    num_layers = source.randint(2, 9)
    tied = [(0, num_layers - 1)] if source.random() < 0.5 else []
    kinds = source.choice([("cpu-a",), ("cpu-a", "cpu-b")])
    params = [source.randint(10**3, 10**6) for _ in range(num_layers)]
    outputs = [source.randint(0, 50_000) for _ in range(num_layers)]
    profiles = [
        make_profile(
            kind=kind,
            layer_forward_ns=[source.randint(10**4, 10**6) for _ in range(num_layers)],
            output_bytes=outputs,
            num_params=params,
            tied=tied,
            per_instruction_ns=source.choice([0, 7_000]),
            update_ns_per_million_params=source.choice([0, 900_000]),
            split=True,
        )
        for kind in kinds
    ]
    if source.random() < 0.7:  # a split visit has costs of its own
        costs = {"forward_ns": 300_000, "kept_bytes": source.randint(0, 9_000), "peak_bytes": source.randint(0, 50_000)}
        profiles = [with_split_costs(profile, **costs) for profile in profiles]
    groups = [(kind, source.randint(1, 2), source.randint(1, 4)) for kind in kinds]
    cluster = make_cluster(*groups, latency_ns=source.choice([0, 100_000]), bytes_per_us=source.choice([50, 5_000]))
    workload = make_workload(global_batch_size=source.randint(2, 9))
    return ProblemCosts(make_problem(profiles=profiles, cluster=cluster, workload=workload))


def random_lineup(source: random.Random, costs: ProblemCosts) -> Lineup | None:
    degrees = source.choice(list(allowed_degrees(costs.problem, Constraints())))
    space = make_space(costs, degrees, Constraints())
    seats = [number for number, found in enumerate(space.classes) for _ in found.blocks]
    if not seats:
        return None
    source.shuffle(seats)
    classes = tuple(seats[: source.randint(1, min(len(seats), space.num_layers))])
    family = source.choice(
        [f for f in FAMILIES if shapes(f, len(classes), degrees.num_micro_batches, space.num_layers)]
    )
    stages = source.choice(shapes(family, len(classes), degrees.num_micro_batches, space.num_layers))
    return Lineup(space, costs, family, classes, stages)


def shapes(family: Family, num_groups: int, num_micro_batches: int, most_stages: int) -> list[int]:
    """Numbers of stages that the family can have; loops and waves end anywhere."""
    legs = {"line": [1], "v": [2]}.get(FAMILIES_BY_NAME[family].placement, [1, 2, 3])
    counts = [num_groups * count for count in legs if num_groups * count <= most_stages]
    return [count for count in counts if serves(ChainShape(family, num_groups, count, num_micro_batches))]


def random_batch(source: random.Random, lineup: Lineup) -> Batch:
    num_layers = lineup.space.num_layers
    rows = [[0, *sorted(source.sample(range(1, num_layers), lineup.num_stages - 1)), num_layers] for _ in range(3)]
    again = [[source.random() < 0.3 and not lineup.splits for _ in range(lineup.num_stages)] for _ in range(3)]
    return Batch(np.array(rows), np.array(again))


@pytest.mark.parametrize("seed", range(150))
def test_score_equals_the_simulated_step(seed: int) -> None:
    source = random.Random(seed)
    costs = random_costs(source)
    lineup = random_lineup(source, costs)
    if lineup is None:
        return
    batch = random_batch(source, lineup)
    ends, bounds = lineup.compute_ends_ns(batch), lineup.bounds_ns(batch)
    for row in range(len(batch.cuts)):
        plan = assemble(costs, lineup.space, lineup.candidate(batch, row))
        timeline = simulate(plan, costs.price(plan))
        assert lineup.step_ns(batch, ends, row) == timeline.step_ns
        assert bounds[row] <= timeline.step_ns
        assert lineup.space.bound_ns <= timeline.step_ns


@pytest.mark.parametrize("seed", range(150))
def test_what_surely_fits_fits_and_what_cannot_does_not(seed: int) -> None:
    """Against the simulator's walk, with a limit near the need."""
    source = random.Random(seed)
    costs = random_costs(source)
    lineup = random_lineup(source, costs)
    if lineup is None:
        return
    batch = random_batch(source, lineup)
    plans = [assemble(costs, lineup.space, lineup.candidate(batch, row)) for row in range(len(batch.cuts))]
    peaks = [simulate(plan, costs.price(plan)).peak_bytes for plan in plans]
    for limit in {need + more for peak in peaks if peak for need in peak for more in (-1, 0, 10_000, 100_000)}:
        found = fitting(limited(lineup, limit), batch)
        for row, peak in enumerate(peaks):
            assert peak is not None
            if max(peak) > limit:
                assert not found.sure[row]
            else:
                assert found.possible[row]


def limited(lineup: Lineup, usable_bytes: int) -> Lineup:
    """The same lineup on devices with less memory."""
    tables = tuple(
        {
            size: dataclasses.replace(found, device_class=found.device_class._replace(usable_bytes=usable_bytes))
            for size, found in tables.items()
        }
        for tables in lineup.space.tables
    )
    return dataclasses.replace(lineup, space=dataclasses.replace(lineup.space, tables=tables))
