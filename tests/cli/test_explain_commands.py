"""``planner explain`` and ``planner revalidate``."""

from pathlib import Path

import pytest

from planner.explain.documents import Explanation, Revalidation
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from tests.helpers.command import planner, two_stage_plan, write_problem
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload

PROFILE = make_profile(layer_forward_ns=[6_000_000, 6_000_000, 1_000_000, 1_000_000])
PROBLEM = make_problem(profiles=[PROFILE])


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(document_bytes(two_stage_plan(PROBLEM)))
    return path


def test_an_explanation_as_tables_and_as_json(tmp_path: Path, plan_file: Path) -> None:
    options = write_problem(tmp_path, PROBLEM)
    done = planner("explain", plan_file, *options)
    assert done.code == 0, done.err
    for text in ("critical path", "what binds", "what if", "plans near this one", "uneven_stages", "twice as fast"):
        assert text in done.out
    found = read_document(planner("explain", plan_file, *options, "--json").out.encode(), Explanation)
    assert found.alternatives[0].change == "layer 1 moves from stage 0 to stage 1"
    assert found.alternatives[0].change in done.out


def test_a_better_plan_is_written(tmp_path: Path, plan_file: Path) -> None:
    options = write_problem(tmp_path, PROBLEM)
    done = planner("revalidate", plan_file, *options, "-o", tmp_path / "better.json")
    assert done.code == 0, done.err
    assert "replan (gain)" in done.out
    better = read_document((tmp_path / "better.json").read_bytes(), Plan)
    found = read_document(planner("revalidate", plan_file, *options, "--json").out.encode(), Revalidation)
    assert found.new_plan == better
    assert planner("check", tmp_path / "better.json", *options).code == 0
    kept = planner("revalidate", plan_file, *options, "--smallest-gain", "0.5")
    assert "keep (small_gain)" in kept.out


def test_a_plan_that_does_not_fit_any_more(tmp_path: Path, plan_file: Path) -> None:
    small = make_problem(profiles=[PROFILE], cluster=make_cluster(usable_bytes=1000))
    done = planner("revalidate", plan_file, *write_problem(tmp_path, small))
    assert done.code == 0
    assert "replan (memory)" in done.out
    assert "the plan cannot run as it is: group 0 needs" in done.out


def test_the_plan_is_not_overwritten(tmp_path: Path, plan_file: Path) -> None:
    done = planner("revalidate", plan_file, *write_problem(tmp_path, PROBLEM), "-o", plan_file, "--force")
    assert (done.code, "output_is_input" in done.err) == (7, True)


@pytest.mark.parametrize("command", ["explain", "revalidate"])
def test_a_plan_of_other_work_is_refused(tmp_path: Path, plan_file: Path, command: str) -> None:
    double = make_problem(profiles=[PROFILE], workload=make_workload(global_batch_size=16))
    done = planner(command, plan_file, *write_problem(tmp_path, double))
    assert done.code == 6
    assert "error[global_batch]" in done.err
    assert "micro-batches hold 8 samples, expected 16" in done.err


@pytest.mark.parametrize("command", ["explain", "revalidate"])
def test_a_step_out_of_range_is_bad_input(tmp_path: Path, command: str) -> None:
    long = make_problem(profiles=[make_profile(per_instruction_ns=10**15)])
    plan = tmp_path / "long.json"
    plan.write_bytes(document_bytes(two_stage_plan(long)))
    done = planner(command, plan, *write_problem(tmp_path, long))
    assert (done.code, "error[range]" in done.err) == (2, True), done.err
