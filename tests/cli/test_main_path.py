"""The commands on each other's files, in real processes with the real solver: search, check, simulate, show."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from planner.plan.plan import Plan
from planner.problem.reading import read_document
from tests.helpers.command import planner, write_problem
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload
from tests.helpers.slow_link import MADE_NS, NAMED_NS, ONE_LINE, slow_link

PLANNER = Path(sys.executable).with_name("planner")


def test_a_found_plan_passes_every_command(tmp_path: Path) -> None:
    options = write_problem(tmp_path)
    done = planner("search", *options, "--time-limit", "20s", "-o", tmp_path / "plan.json", "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, dict)
    predicted_ns = done.json["prediction"]["step_ns"]
    checked = planner("check", tmp_path / "plan.json", *options)
    assert checked.code == 0, checked.err
    simulated = planner("simulate", tmp_path / "plan.json", *options, "--json")
    assert isinstance(simulated.json, dict)
    assert simulated.json["step_ns"] == predicted_ns
    shown = planner("show", tmp_path / "plan.json", "--trace", tmp_path / "trace.json")
    assert shown.code == 0, shown.err
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_equal_seeds_give_equal_plans(tmp_path: Path) -> None:
    options = write_problem(tmp_path)
    for name in ("one.json", "two.json"):
        assert planner("search", *options, "--seed", "5", "-o", tmp_path / name).code == 0
    one, two = (read_document((tmp_path / name).read_bytes(), Plan) for name in ("one.json", "two.json"))
    assert one.digest == two.digest


def test_made_orders_are_asked_for_by_an_option(tmp_path: Path) -> None:
    options = write_problem(tmp_path, slow_link())
    (tmp_path / "constraints.json").write_text(ONE_LINE.model_dump_json())
    search = ["search", *options, "--constraints", tmp_path / "constraints.json", "--json"]
    for schedules, step_ns in (("named", NAMED_NS), ("synthesised", MADE_NS)):
        done = planner(*search, "--schedules", schedules, "-o", tmp_path / f"{schedules}.json")
        assert done.code == 0, done.err
        assert isinstance(done.json, dict)
        assert done.json["prediction"]["step_ns"] == step_ns
    shown = planner("show", tmp_path / "synthesised.json")
    assert "synthesised (" in shown.out
    assert ", from 1f1b)" in shown.out
    assert "warning[no_split]" not in done.err  # 1F1B and GPipe alone are allowed: nothing would be split
    refused = planner(*search, "--schedules", "best")
    assert refused.code == 2


def test_a_model_that_fits_nowhere_exits_3(tmp_path: Path) -> None:
    problem = make_problem(cluster=make_cluster(usable_bytes=1_000))
    done = planner("search", *write_problem(tmp_path, problem), "-o", tmp_path / "plan.json")
    assert done.code == 3, done.err
    assert "error[memory]" in done.err
    assert not (tmp_path / "plan.json").exists()


def test_an_interrupted_search_writes_a_legal_plan(tmp_path: Path) -> None:
    times_ns = tuple(1_000_000 + 37_000 * (layer * 7 % 11) for layer in range(48))
    problem = make_problem(
        profiles=(make_profile(layer_forward_ns=times_ns),),
        cluster=make_cluster(("cpu-a", 4, 8)),
        workload=make_workload(global_batch_size=256),
    )
    options = write_problem(tmp_path, problem)
    command = [PLANNER, "search", *options, "--time-limit", "600s", "-o", tmp_path / "plan.json"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "best step" not in (line := process.stderr.readline()):
        assert line, "the search ended before it could be interrupted"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    checked = planner("check", tmp_path / "plan.json", *options)
    assert checked.code == 0, checked.err
