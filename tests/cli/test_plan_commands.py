"""show, simulate and verify on real documents."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.plan_tables import torchrun_lines
from planner.costs.price import price_plan
from planner.plan.plan import Plan, Prediction
from planner.problem.canonical import document_bytes
from planner.simulate.run_record import RunRecord, recorded_step
from planner.simulate.simulate import simulate
from tests.helpers.command import planner, two_stage_plan, write_problem
from tests.helpers.documents import make_cluster, make_problem, make_profile

ROOT = Path(__file__).parents[2]


def plan_file(folder: Path, plan: Plan | None = None) -> Path:
    path = folder / "plan.json"
    path.write_bytes(document_bytes(plan or two_stage_plan()))
    return path


def run_file(folder: Path, plan: Plan, *, slower: float = 1) -> Path:
    """Two measured steps: as predicted, and that many times as long."""
    timeline = simulate(plan, price_plan(plan, make_problem()))
    first = recorded_step(plan, 0, timeline=timeline, loss=2.0)
    second = first.model_copy(update={"number": 1, "step_ns": int(timeline.step_ns * slower)})
    record = RunRecord(schema_version="run/1", plan=plan.digest, num_ranks=2, steps=(first, second))
    (folder / "run.json").write_bytes(document_bytes(record))
    return folder / "run.json"


def test_show_prints_stages_groups_the_order_and_the_command(tmp_path: Path) -> None:
    done = planner("show", plan_file(tmp_path))
    assert done.code == 0, done.err
    assert two_stage_plan().digest in done.out
    lines = done.out.splitlines()
    assert "    1      1  2..3         2  one rank  none" in [line.rstrip() for line in lines]
    assert lines[-1].startswith("  torchrun --standalone --nproc-per-node=2 --no-python planner run --plan ")
    drawn = next(line for line in lines if line.startswith("group 0 "))
    assert [text for text in ("F0", "F1", "B0", "B1") if text not in drawn] == []
    assert done.err == ""


def test_show_without_prices_states_no_time(tmp_path: Path) -> None:
    done = planner("show", plan_file(tmp_path))
    assert "order only" in done.out
    assert " ms" not in done.out


def test_show_as_json(tmp_path: Path) -> None:
    found = planner("show", plan_file(tmp_path), "--json").json
    assert isinstance(found, dict)
    assert found["plan"] == two_stage_plan().digest
    assert found["groups"] == [[0], [1]]
    assert "step_ns" not in found


def test_show_writes_a_trace_with_every_instruction(tmp_path: Path) -> None:
    done = planner("show", plan_file(tmp_path), *write_problem(tmp_path), "--trace", tmp_path / "trace.json")
    assert done.code == 0, done.err
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 12
    again = planner("show", plan_file(tmp_path), "--trace", tmp_path / "trace.json")
    assert (again.code, again.out) == (7, "")
    assert "error[output_exists]" in again.err


def test_a_part_of_a_problem_is_refused(tmp_path: Path) -> None:
    options = write_problem(tmp_path)
    done = planner("show", plan_file(tmp_path), *options[:2])
    assert done.code == 2
    assert "error[usage]: --profile, --cluster and --workload belong together" in done.err


def test_hosts_start_in_the_order_of_the_nodes() -> None:
    plan = two_stage_plan()
    node = plan.nodes[0].model_copy(update={"num_ranks": 1})
    lines = torchrun_lines(plan.model_copy(update={"nodes": (node, node)}), "plan.json")
    assert [line.split(" --master")[0] for line in lines] == [
        "torchrun --nnodes=2 --node-rank=0 --nproc-per-node=1",
        "torchrun --nnodes=2 --node-rank=1 --nproc-per-node=1",
    ]


def test_simulate_gives_the_worked_step(tmp_path: Path) -> None:
    """F of a stage 2 x 4 = 8 ms, B 16 ms, messages 1.000004 ms-free link: 4,000 bytes at 1 byte/ns + 1 us = 5,008 ns.

    Rank 0: F0 0-8, F1 8-16; rank 1: F0 8-16, B0 16-32, F1 32-40, B1 40-56; rank 0: B1 56-72. Two messages each way
    lie on the path F0 -> F0 ... B1 -> B1: 72 ms + 2 messages.
    """
    done = planner("simulate", plan_file(tmp_path), *write_problem(tmp_path), "--json")
    assert done.code == 0, done.err
    found = done.json
    assert isinstance(found, dict)
    message_ns = (found["step_ns"] - 72_000_000) / 2
    assert 4_000 <= message_ns <= 6_000
    assert found["busy_ns"] == [48_000_000, 48_000_000]
    assert found["bubble"] == pytest.approx(1 - 48_000_000 / found["step_ns"])


def test_simulate_prints_groups_and_the_timeline(tmp_path: Path) -> None:
    done = planner("simulate", plan_file(tmp_path), *write_problem(tmp_path))
    assert done.code == 0, done.err
    assert "bubble          33.3%" in done.out
    assert "timeline (predicted)" in done.out


def test_a_plan_of_another_model_is_refused(tmp_path: Path) -> None:
    other = make_problem(profiles=(make_profile(layer_forward_ns=(1_000_000,) * 3),))
    done = planner("simulate", plan_file(tmp_path), *write_problem(tmp_path, other))
    assert done.code in (2, 6)
    assert done.out == ""
    assert done.err.startswith("error[")


def test_verify_reports_each_step_and_the_median(tmp_path: Path) -> None:
    plan = two_stage_plan()
    options = write_problem(tmp_path)
    done = planner("verify", plan_file(tmp_path, plan), run_file(tmp_path, plan, slower=2), *options, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert isinstance(found, dict)
    assert [step["error"] for step in found["steps"]] == [0.0, -0.5]
    assert found["median_error"] == 0.25
    assert all(deviation["error"] == 0 for deviation in found["deviations"])


def predicted_plan() -> Plan:
    """Predicted truthfully, with a bound of nine tenths of the step."""
    plan = two_stage_plan()
    timeline = simulate(plan, price_plan(plan, make_problem()))
    prediction = Prediction(
        step_ns=timeline.step_ns,
        bound_ns=timeline.step_ns * 9 // 10,
        bound_model="any_schedule",
        bubble=0.25,
        peak_bytes=(1, 1),
        memory_limit_bytes=(2, 2),
        costs="measured",
    )
    return plan.model_copy(update={"prediction": prediction})


def test_verify_says_when_steps_are_below_the_bound(tmp_path: Path) -> None:
    # The first step takes as long as predicted, the second one half of it: below the bound.
    plan = predicted_plan()
    path = plan_file(tmp_path, plan)
    loud = planner("verify", path, run_file(tmp_path, plan, slower=0.5), "--json")
    assert isinstance(loud.json, dict)
    assert plan.prediction is not None
    assert (loud.json["below_bound"], loud.json["bound_ns"]) == ([1], plan.prediction.bound_ns)
    assert "warning[below_bound]: 1 of 2 measured steps are below the proven bound (fastest " in loud.err
    assert "planner profile calibrate" in loud.err
    assert "1 measured step is below it" in planner("verify", path, tmp_path / "run.json").out
    quiet = planner("verify", path, run_file(tmp_path, plan, slower=2), "--json")
    assert isinstance(quiet.json, dict)
    assert (quiet.json["below_bound"], "below_bound" in quiet.err) == ([], False)


def test_verify_prints_the_measured_timeline(tmp_path: Path) -> None:
    plan = two_stage_plan()
    done = planner("verify", plan_file(tmp_path, plan), run_file(tmp_path, plan), *write_problem(tmp_path))
    assert done.code == 0, done.err
    assert "+0.0%" in done.out
    assert "timeline (measured, last recorded step)" in done.out


def test_verify_writes_the_measured_step_as_a_trace(tmp_path: Path) -> None:
    plan = two_stage_plan()
    options = [*write_problem(tmp_path), "--trace", str(tmp_path / "trace.json")]
    done = planner("verify", plan_file(tmp_path, plan), run_file(tmp_path, plan), *options)
    assert done.code == 0, done.err
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 12


def test_verify_refuses_the_run_of_another_plan(tmp_path: Path) -> None:
    run = run_file(tmp_path, two_stage_plan())
    other = two_stage_plan(streams=("0F0 0F1 0B0 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0"))
    done = planner("verify", plan_file(tmp_path, other), run)
    assert done.code == 6
    assert "error[plan_mismatch] at /plan: the run is of plan" in done.err


def test_verify_needs_a_prediction(tmp_path: Path) -> None:
    plan = two_stage_plan()
    done = planner("verify", plan_file(tmp_path, plan), run_file(tmp_path, plan))
    assert done.code == 6
    assert "error[prediction_missing]" in done.err


def test_a_run_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[]")
    done = planner("verify", plan_file(tmp_path), tmp_path / "run.json")
    assert done.code == 6
    assert "error[type]" in done.err


def test_check_accepts_a_legal_plan(tmp_path: Path) -> None:
    done = planner("check", plan_file(tmp_path), *write_problem(tmp_path))
    assert done.code == 0, done.err
    facts = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in done.out.splitlines() if "  " in line}
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("verdict")] == ["legal"]
    assert facts["plan"] == two_stage_plan().digest


def test_check_names_the_cause_of_a_deadlock(tmp_path: Path) -> None:
    """Rank 1 wants the second micro-batch first, rank 0 waits for a gradient before it sends it."""
    plan = two_stage_plan(streams=("0F0 0B0 0F1 0B1 0G0 0U0", "1F1 1B1 1F0 1B0 1G0 1U0"))
    done = planner("check", plan_file(tmp_path, plan))
    assert done.code == 6
    assert "refused" in done.out
    assert "error[deadlock]" in done.err
    as_json = planner("check", plan_file(tmp_path, plan), "--json")
    assert as_json.code == 6
    assert isinstance(as_json.json, dict)
    assert (as_json.json["ok"], as_json.json["fault"]["code"]) == (False, "deadlock")


def test_check_exits_3_for_a_plan_that_does_not_fit(tmp_path: Path) -> None:
    problem = make_problem(cluster=make_cluster(usable_bytes=90_000))  # the simulated peak of group 0 is 118,048
    done = planner("check", plan_file(tmp_path, two_stage_plan(problem)), *write_problem(tmp_path, problem))
    assert done.code == 3
    assert "error[memory] at /groups/0: group 0 on 'cpu-a' needs 118" in done.err


def test_check_refuses_another_digest(tmp_path: Path) -> None:
    assert planner("check", plan_file(tmp_path), "--digest", two_stage_plan().digest).code == 0
    done = planner("check", plan_file(tmp_path), "--digest", "0" * 64)
    assert done.code == 6
    assert "error[digest]" in done.err


def test_check_reads_a_plan_from_stdin(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("planner"), "check", "-", "--json"]
    done = subprocess.run(
        command, input=document_bytes(two_stage_plan()), capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_schema_lists_the_documents_and_prints_each(tmp_path: Path) -> None:
    names = planner("schema").out.split()
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert names == sorted(name for line in headings for name in re.findall(r"`([a-z]+/1)`", line))
    for name in names:
        found = planner("schema", name).json
        assert isinstance(found, dict)
        assert found["properties"]["schema"]["const"] == name
    assert planner("schema", "plan").json == planner("schema", "plan/1").json
    assert planner("schema", "plan/1", "-o", tmp_path / "plan.schema.json").out == ""
    assert json.loads((tmp_path / "plan.schema.json").read_text()) == planner("schema", "plan/1").json


def test_an_unknown_schema_is_named() -> None:
    done = planner("schema", "plan/2")
    assert done.code == 2
    assert "error[usage]" in done.err
    assert "profile/1" in done.err
