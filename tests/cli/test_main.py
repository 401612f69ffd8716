"""What every command shares: exit codes, machine codes, JSON errors, no heavy imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner import errors
from planner.cli import exit_codes
from planner.cli.main import app
from planner.cli.talk import MOST_FAULTS, error_lines, json_error, say
from planner.errors import DocumentError, Fault, PlannerError
from planner.problem.canonical import document_bytes
from tests.helpers.command import planner, two_stage_plan, write_problem

PLANNER = Path(sys.executable).with_name("planner")
FAULT = Fault("x", "", "y")


def test_every_error_class_has_its_exit_code() -> None:
    expected = {
        "DocumentError": 2,
        "JsonError": 2,
        "ContractError": 2,
        "ProblemError": 2,
        "PriceError": 2,
        "PlanError": 6,
        "UnsupportedPlanError": 6,
        "InfeasibleError": 3,
        "SolverError": 1,
        "ExecutorError": 1,
        "CheckpointError": 1,
        "HandshakeError": 1,
        "PeerLostError": 1,
        "ModelError": 2,
        "DeviceError": 8,
        "OutputError": 7,
        "ServerError": 9,
        "SettingsError": 78,
        "PlannerError": 1,
        "RequestError": 1,
        "StoreError": 1,
    }
    kinds = {
        name: kind
        for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type) and issubclass(kind, PlannerError)
    }
    assert kinds.keys() == expected.keys()
    for name, kind in kinds.items():
        takes_faults = issubclass(kind, DocumentError | errors.InfeasibleError)
        error = kind((FAULT,)) if takes_faults else kind("y", code="x")  # type: ignore[call-arg,arg-type]
        assert exit_codes.exit_code(error) == expected[name], name


def test_a_search_that_ran_out_of_time_has_its_own_code() -> None:
    assert exit_codes.exit_code(errors.SolverError("x", code="no_plan_in_time")) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["show"], "Missing argument 'PLAN'"),
        (["show", "--nonsense", "plan.json"], "No such option: --nonsense"),
    ],
)
def test_wrong_usage_exits_2_with_a_machine_code(arguments: list[str], message: str) -> None:
    done = planner(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert f"error[usage]: {message}" in done.err


def test_errors_are_json_where_json_was_asked_for(tmp_path: Path) -> None:
    done = planner("show", "--json", tmp_path / "nothing.json")
    assert done.code == 2
    assert done.out == ""
    assert json.loads(done.err) == {
        "code": "file_missing",
        "errors": [{"code": "file_missing", "pointer": "", "message": f"{tmp_path}/nothing.json does not exist"}],
        "error_count": 1,
    }


def test_many_faults_are_counted_not_listed() -> None:
    error = DocumentError(tuple(Fault("range", f"/a/{n}", "wrong") for n in range(25)))
    lines = error_lines(error)
    assert lines[0] == "error[range] at /a/0: wrong"
    assert len(lines) == MOST_FAULTS + 1
    assert lines[-1] == "... and 5 more"
    assert json.loads(json_error(error.faults))["error_count"] == 25


def test_nothing_said_can_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[31mb\nc\u202ed")
    assert capsys.readouterr().err == "a\\x1b[31mb\\x0ac\\x202ed\n"


def test_a_defect_of_ours_exits_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("planner.cli.files.read_plan", broken)
    done = planner("show", tmp_path / "plan.json")
    assert done.code == 1
    assert "error[internal]: ZeroDivisionError: by nought" in done.err


def test_the_bare_command_prints_its_help() -> None:
    done = planner()
    assert done.code == 2
    assert "Commands" in done.out
    assert done.err == ""


def commands() -> list[list[str]]:
    found = [[command.name or command.callback.__name__] for command in app.registered_commands if command.callback]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found += [
            [str(group.name), command.name or command.callback.__name__]
            for command in group.typer_instance.registered_commands
            if command.callback
        ]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_and_json(command: list[str]) -> None:
    done = planner(*command, "--help")
    assert done.code == 0
    assert "--json" in done.out or command == ["run"]


def test_a_reader_that_has_enough_is_no_defect(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(document_bytes(two_stage_plan()))
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as closed_pipe:
        done = subprocess.run(
            [PLANNER, "show", tmp_path / "plan.json"],
            stdout=closed_pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == ""


def test_ctrl_c_is_one_line_and_its_own_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.cli.files.read_plan", interrupted)
    done = planner("show", tmp_path / "plan.json")
    assert (done.code, done.out) == (130, "")
    assert done.err.strip() == "error[interrupted]: stopped by Ctrl-C before it was done"
    as_json = planner("show", tmp_path / "plan.json", "--json")
    assert json.loads(as_json.err.strip().splitlines()[-1])["code"] == "interrupted"


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "planner", "--version"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, subprocess.check_output([PLANNER, "--version"], text=True))


@pytest.mark.parametrize("text", ["3", "0", "10 parsecs", ""])
def test_a_time_limit_has_a_unit(tmp_path: Path, text: str) -> None:
    options = write_problem(tmp_path)
    done = planner("search", *options, "--time-limit", text)
    assert done.code == 2
    assert f"error[range] at /time_limit_ns: found {text!r}" in done.err
    assert "expected a number with one of the units ns, us, ms, s, min, h" in done.err
