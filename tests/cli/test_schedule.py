"""planner schedule: list, compare, draw."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.families import FAMILIES
from tests.helpers.command import planner

SHAPE = ("--groups", "4", "--micro-batches", "16")
TIMES = ("--forward", "10ms", "--backward-input", "10ms", "--backward-weight", "10ms")


def rows(*arguments: str, synthesis: str = "--no-synthesis") -> list[dict[str, Any]]:
    done = planner("schedule", "compare", *arguments, synthesis, "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, list)
    return done.json


def test_list_names_every_family() -> None:
    found = planner("schedule", "list", "--json").json
    assert isinstance(found, list)
    assert [row["family"] for row in found] == list(FAMILIES)
    assert {row["family"] for row in found if row["changes_results"]} == {"1f1b-asynchronous"}
    table = planner("schedule", "list").out
    assert [name for name in FAMILIES if name not in table] == []


def test_compare_has_a_row_for_every_family_the_best_first() -> None:
    found = rows(*SHAPE, *TIMES, "--memory", "4")
    assert {row["family"] for row in found} >= set(FAMILIES)
    by_name = {row["family"]: row for row in found}
    numbers = ("bubble_units", "span_units", "memory_units", "messages", "bound_units")
    assert [by_name["1f1b"][name] for name in numbers] == [9, 9, 4, 96, 9]
    assert [by_name["zb-v"][name] for name in numbers] == [1.5, 0, 4, 192, 1.5]
    assert [row["best"] for row in found] == [True] + [False] * (len(found) - 1)
    candidates = [row["bubble_units"] for row in found if row["fits"]]
    assert candidates == sorted(candidates)
    assert all(row["memory_units"] <= 4 and row["reason"] is None for row in found if row["fits"])
    assert by_name["zb-h2"]["reason"] == "memory 7, limit 4"


def test_compare_makes_orders_of_its_own() -> None:
    """p = 4, m = 8, memory 4, split W: two V reach their bound p/4 - 1/2; no order is worse than the named ones."""
    found = {
        row["family"]: row
        for row in rows("--groups", "4", "--micro-batches", "8", "--memory", "4", synthesis="--synthesis")
    }
    made = {name: row for name, row in found.items() if name.startswith("synthesised ")}
    assert set(made) == {f"synthesised {name}" for name in ("line", "loop", "v", "wave", "two lines", "two v")}
    assert made["synthesised two v"]["bubble_units"] == made["synthesised two v"]["bound_units"] == 0.5
    assert made["synthesised two v"]["best"] is True
    assert made["synthesised line"]["bubble_units"] <= found["zb-h1"]["bubble_units"] == 3
    assert made["synthesised v"]["bubble_units"] <= found["zb-v"]["bubble_units"] == 1.5
    assert all(row["memory_units"] <= 4 and row["bubble_units"] >= row["bound_units"] for row in made.values())


def test_a_limit_below_one_micro_batch_leaves_no_order() -> None:
    found = rows("--groups", "2", "--micro-batches", "2", "--memory", "0.4", synthesis="--synthesis")
    made = [row for row in found if row["family"].startswith("synthesised ")]
    assert {row["reason"] for row in made} == {"no order found within 0.4 micro-batches"}
    assert [row["bubble_units"] for row in made] == [None] * 6


def test_one_micro_batch_has_no_second_route() -> None:
    found = rows("--groups", "2", "--micro-batches", "1", synthesis="--synthesis")
    made = {row["family"] for row in found if row["family"].startswith("synthesised ")}
    assert made == {f"synthesised {name}" for name in ("line", "loop", "v", "wave")}


def test_no_solver_is_loaded() -> None:
    code = (
        "import sys; from planner.cli.main import run_command; "
        "run_command('schedule compare --groups 2 --micro-batches 4 --json'.split()); "
        "sys.exit(any(name.split('.')[0] in ('ortools', 'torch', 'fastapi') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_compare_gives_the_reason_of_a_refused_shape() -> None:
    found = {row["family"]: row for row in rows("--groups", "3", "--micro-batches", "6")}
    assert found["chimera"]["bubble_units"] is None
    assert "even" in found["chimera"]["reason"]
    assert found["1f1b"]["fits"] is True


def test_compare_takes_the_link_into_account() -> None:
    """1F1B, p = 4, m = 16: an activation and its gradient cross each of 3 borders, and the steady state waits too."""
    free, slow = (
        {row["family"]: row["bubble_units"] for row in rows(*SHAPE, *TIMES, *link)} for link in ((), ("--link", "1ms"))
    )
    assert free["1f1b"] == 9
    assert slow["gpipe"] == 9 + 6 * 0.1
    assert all(slow[name] > free[name] for name in free)


def test_compare_as_a_table_marks_the_best() -> None:
    done = planner("schedule", "compare", *SHAPE, *TIMES, "--memory", "4", "--no-synthesis")
    assert done.code == 0, done.err
    best = [line for line in done.out.splitlines() if line.startswith("*")]
    assert len(best) == 1
    assert "memory 7, limit 4" in done.out
    assert "4 groups, 16 micro-batches" in done.out
    assert done.err == ""


def test_compare_without_a_candidate_says_so() -> None:
    done = planner("schedule", "compare", *SHAPE, "--memory", "0.1", "--no-synthesis")
    assert done.code == 0
    assert "no family is a candidate" in done.out
    assert not any(row["best"] for row in rows(*SHAPE, "--memory", "0.1"))


def test_bad_values_are_usage_errors() -> None:
    for arguments, text in (
        (("--forward", "fast"), "expected a number"),
        (("--forward", "0ms"), "more than 0"),
        (("--micro-batches", "1000000"), "at most"),
        (("--groups", "0"), "--groups"),
        (("--memory", "-1"), "--memory"),
    ):
        done = planner("schedule", "compare", *SHAPE, *arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert "error[usage]" in done.err
        assert text in done.err


def test_draw_shows_the_timeline_and_writes_plan_and_trace(tmp_path: Path) -> None:
    plan_file, trace_file = tmp_path / "plan.json", tmp_path / "trace.json"
    done = planner("schedule", "draw", "zb-v", *SHAPE, *TIMES, "-o", plan_file, "--trace", trace_file)
    assert done.code == 0, done.err
    assert [line[:7] for line in done.out.splitlines() if line.startswith("group ")] == [f"group {d}" for d in range(4)]
    assert "bubble 1.5 forwards" in done.out
    plan = read_document(plan_file.read_bytes(), Plan)
    assert [plan.stages_of_group(group) for group in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    blocks = [event for event in json.loads(trace_file.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(blocks) == sum(len(stream) for stream in plan.instructions)
    assert planner("check", plan_file).code == 0
    again = planner("schedule", "draw", "zb-v", *SHAPE, "-o", plan_file)
    assert (again.code, again.out) == (7, "")


def test_draw_to_stdout_prints_the_plan_alone() -> None:
    done = planner("schedule", "draw", "1f1b", "--groups", "2", "--micro-batches", "2", "-o", "-")
    assert done.code == 0
    assert read_document(done.out.encode(), Plan).streams[1] == "1F0 1B0 1F1 1B1 1G0 1U0"


def test_draw_says_when_results_change() -> None:
    done = planner("schedule", "draw", "1f1b-asynchronous", "--groups", "3", "--micro-batches", "4")
    assert "weights are up to 2 updates older" in done.out


def test_draw_refuses_an_unknown_family_and_a_shape_that_does_not_fit() -> None:
    unknown = planner("schedule", "draw", "zigzag", *SHAPE)
    assert (unknown.code, unknown.out) == (2, "")
    assert "expected one of gpipe, 1f1b" in unknown.err
    odd = planner("schedule", "draw", "chimera", "--groups", "3", "--micro-batches", "6")
    assert odd.code == 2
    assert "error[usage]" in odd.err
    assert "even" in odd.err


def test_a_drawing_as_json_holds_every_instruction() -> None:
    """1F1B on two groups, two micro-batches, F 10 ms, B 20 ms: 30 x (2 + 1) = 90 ms."""
    done = planner("schedule", "draw", "1f1b", "--groups", "2", "--micro-batches", "2", "--json")
    assert done.code == 0, done.err
    assert isinstance(done.json, dict)
    assert done.json["step_ns"] == 90_000_000
    counts = [len(stream.split()) for stream in done.json["streams"]]
    assert [len(times) for times in done.json["times_ns"]] == counts == [6, 6]
