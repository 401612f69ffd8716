"""No command writes over a file that it reads, whatever path leads there."""

from pathlib import Path

import pytest

from planner.problem.canonical import document_bytes
from tests.helpers.command import planner, two_stage_plan, write_problem
from tests.helpers.documents import make_problem


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    problem = make_problem()
    write_problem(tmp_path, problem)
    (tmp_path / "plan.json").write_bytes(document_bytes(two_stage_plan(problem)))
    (tmp_path / "constraints.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    return tmp_path


PROBLEM = ["--profile", "profile-0.json", "--cluster", "cluster.json", "--workload", "workload.json"]
COMMANDS = {
    "show": (["show", "plan.json", *PROBLEM], "--trace"),
    "simulate": (["simulate", "plan.json", *PROBLEM], "--trace"),
    "verify": (["verify", "plan.json", "profile-0.json", *PROBLEM], "--trace"),
    "search": (["search", *PROBLEM, "--constraints", "constraints.json"], "-o"),
    "scale": (["profile", "scale", "profile-0.json", "--kind", "b", "--factor", "2"], "-o"),
    "calibrate": (
        ["profile", "calibrate", "profile-0.json", "--plan", "plan.json", "--run", "constraints.json", *PROBLEM[2:]],
        "-o",
    ),
}
CASES = [
    (name, source) for name, (arguments, _) in COMMANDS.items() for source in arguments if source.endswith(".json")
]


@pytest.mark.parametrize(("name", "source"), CASES)
@pytest.mark.parametrize("way", ["{}", "./{}", "sub/../{}", "other-{}", "hard-{}"])
def test_an_output_that_is_an_input_is_refused(folder: Path, name: str, source: str, way: str) -> None:
    arguments, option = COMMANDS[name]
    before = (folder / source).read_bytes()
    target = Path(way.format(source))
    if way.startswith("other"):
        target.symlink_to(source)
    elif way.startswith("hard"):
        target.hardlink_to(source)
    done = planner(*arguments, option, target, "--force")
    assert done.code == 7, done.err
    assert f"error[output_is_input]: {target} is the input {source}, expected another file" in done.err
    assert (folder / source).read_bytes() == before


def test_two_outputs_are_two_files(folder: Path) -> None:
    arguments = ["schedule", "draw", "1f1b", "--groups", "2", "--micro-batches", "2"]
    done = planner(*arguments, "-o", "a.json", "--trace", "sub/../a.json")
    assert done.code == 7
    assert "error[output_twice]" in done.err
    assert not (folder / "a.json").exists()
