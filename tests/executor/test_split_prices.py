"""A split plan from a real profile: priced, simulated, and run by two ranks."""

from pathlib import Path
from typing import cast

import pytest

from planner.costs.price import price_plan
from planner.plan.graph import Node
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.simulate.simulate import simulate
from profiles.capture import CaptureOptions, capture
from profiles.protocol import Grid
from profiles.source import ModelSource
from tests.helpers.documents import make_cluster, make_workload
from tests.helpers.executor_cases import KIND, TOKENS, changed, make_model, make_plan
from tests.helpers.family_cases import SPLIT_CASES
from tests.helpers.ranks import Ranks

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    options = CaptureOptions(
        num_ranks=1, time_limit_ns=0, device_kind=KIND, lock_folder=tmp_path_factory.mktemp("lock")
    )
    source = ModelSource(factory="tests.profiles.measured_models:eight_layers", folder=ROOT)
    return capture(source, Grid(micro_batch_sizes=(1, 2), sequence_lengths=(TOKENS,)), options)


def problem_of(profile: ModelProfile) -> Problem:
    return Problem(
        profiles=(profile,), cluster=make_cluster((KIND, 1, 2)), workload=make_workload(sequence_length=TOKENS)
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", ["2 ranks zb-h1", "2 ranks zb-v"])
def test_a_real_profile_prices_a_split_plan_that_runs(
    ranks: Ranks, profile: ModelProfile, case: str, tmp_path: Path
) -> None:
    node = Node(node_group=KIND, device_kind=KIND, num_ranks=2)
    plan = changed(make_plan(make_model("llama"), **SPLIT_CASES[case]), nodes=(node,))
    assert {"I", "W"} <= {instruction.operation for stream in plan.instructions for instruction in stream}
    prices = price_plan(plan, problem_of(profile))
    overhead_ns = profile.overheads.per_instruction_ns
    for price in prices.visits.values():
        assert price.backward_input_ns > overhead_ns
        assert price.backward_weight_ns > overhead_ns
    predicted = simulate(plan, prices)
    assert predicted.step_ns > 0
    assert all(peak > state for peak, state in zip(predicted.peak_bytes, prices.state_bytes, strict=True))

    arguments = {"model": "llama", "case": SPLIT_CASES[case], "folder": str(tmp_path), "num_steps": 1}
    found = ranks.results("tests.helpers.executor_cases:train", 2, **arguments)
    assert [len(cast("list[int]", one["steps_ns"])) for one in found] == [1, 1]
