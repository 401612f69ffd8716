"""A batch of draws against one sweep a draw."""

import random
import time

import numpy as np
import pytest

from planner.costs.prices import VisitPrice
from planner.simulate.arrays import instruction_arrays
from planner.simulate.batch import Draws, ProgramBatch, noise_draws
from planner.simulate.compiled import compiled_sweep
from planner.simulate.program import Program, make_program
from planner.simulate.simulate import simulate
from planner.simulate.sweep import plain_sweep
from tests.helpers.plans import make_prices
from tests.helpers.prices import random_prices
from tests.helpers.random_plans import random_plan
from tests.helpers.waves import wave_plan


def test_a_batch_by_hand() -> None:
    """Rows [0 1] and [2 3]; 2 waits for 0, 1 for 2, messages of 5: 0, 2, then 1 and 3 side by side."""
    program = Program(first=[0, 2, 4], duration_ns=[0, 0, 0, 0], before=[4, 2, 0, 4], delay_ns=[0, 5, 5, 0])
    batch = ProgramBatch(program, num_groups=2)
    found = batch.steps(Draws(np.array([[10, 1], [2, 1], [3, 1], [1, 100]])))
    # first draw: 0 ends 10, 2 runs 15..18, 1 23..25, 3 18..19; second: 0 ends 1, 2 6..7, 1 12..13, 3 7..107
    assert found.step_ns.tolist() == [25, 107]
    assert found.group_end_ns.tolist() == [[25, 13], [19, 107]]


@pytest.mark.parametrize("part", range(2))
def test_each_draw_is_a_simulation(part: int) -> None:
    """Random plans, each at 5 random price lists: durations and messages drawn together."""
    for seed in range(30):
        source = random.Random(100 * part + seed)
        plan = random_plan(source)
        base = random_prices(source, plan)
        drawn = []
        for _ in range(5):
            other = random_prices(source, plan)
            drawn.append(other.__class__(**{**vars(other), "sum_ns": base.sum_ns}))  # sums are not drawn
        arrays = [instruction_arrays(plan, prices) for prices in drawn]
        batch = ProgramBatch(
            make_program(plan, instruction_arrays(plan, base), base), num_groups=len(plan.groups), sweep=compiled_sweep
        )
        durations = np.stack([found.duration_ns for found in arrays], axis=1)
        delays = [np.stack([column.delay_ns for column in found.columns]) for found in arrays if found.columns]
        delay_ns = np.stack(delays, axis=2) if delays else None
        steps = batch.steps(Draws(durations, delay_ns))
        timelines = [simulate(plan, prices) for prices in drawn]
        assert steps.step_ns.tolist() == [timeline.step_ns for timeline in timelines]
        ends = [[events[-1].end_ns for events in timeline.events] for timeline in timelines]
        assert steps.group_end_ns.T.tolist() == ends


def test_many_draws_are_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.simulate.batch._ENDS_AT_ONCE", 0)
    source = random.Random(5)
    plan = random_plan(source)
    prices = random_prices(source, plan)
    arrays = instruction_arrays(plan, prices)
    program = make_program(plan, arrays, prices)
    draws = noise_draws(arrays.duration_ns, spread=0.2, num_draws=37, seed=1)
    steps = ProgramBatch(program, num_groups=len(plan.groups)).steps(draws)
    for draw in (0, 15, 16, 36):
        sums_ns = np.asarray(program.duration_ns)[len(arrays.duration_ns) :]
        durations = np.concatenate([draws.duration_ns[:, draw], sums_ns])
        assert steps.step_ns[draw] == plain_sweep(program._replace(duration_ns=durations)).end_ns.max()


def test_noise_has_the_median_1_and_the_spread_that_is_asked_for() -> None:
    draws = noise_draws(np.array([10**9]), spread=0.1, num_draws=4000, seed=3).duration_ns / 1e9
    # 4,000 draws: the median is known to 0.1 * 1.25 / sqrt(4000) = 0.002, the spread to 0.1 / sqrt(8000) = 0.0011
    assert np.median(draws) == pytest.approx(1, abs=0.01)
    assert np.log(draws).std() == pytest.approx(0.1, abs=0.006)


def test_noise_is_the_same_for_the_same_seed() -> None:
    durations = np.array([10, 1000, 10**6])
    one, same = (noise_draws(durations, spread=0.3, num_draws=8, seed=7).duration_ns for _ in range(2))
    other = noise_draws(durations, spread=0.3, num_draws=8, seed=8).duration_ns
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    np.testing.assert_array_equal(
        noise_draws(durations, spread=0.0, num_draws=2, seed=1).duration_ns, np.stack([durations, durations], axis=1)
    )


def test_512_draws_of_a_long_wave_are_scored_quickly() -> None:
    """12,288 instructions, numpy alone: measured 170 M instructions a second of CPU time; asked for: 10 M."""
    plan = wave_plan(16, 32, 128)
    prices = make_prices(plan, lambda stage: VisitPrice(9000 + stage, 0, 10_000, 8000), message_ns=lambda a, b: 700)
    arrays = instruction_arrays(plan, prices)
    batch = ProgramBatch(make_program(plan, arrays, prices), num_groups=16)
    draws = noise_draws(arrays.duration_ns, spread=0.1, num_draws=512, seed=1)
    rates = []
    for _ in range(3):
        before = time.process_time()
        steps = batch.steps(draws)
        rates.append(512 * batch.num_instructions / (time.process_time() - before))
    assert batch.num_instructions == 12_288
    assert max(rates) >= 10_000_000
    assert steps.step_ns.min() > simulate(plan, prices).step_ns  # noise on every path makes the longest longer
