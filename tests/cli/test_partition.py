"""planner partition: parts as a table, as a file, as JSON, and its refusals."""

import json
from pathlib import Path

import pytest

from planner.plan.partition import Partition
from planner.problem.reading import read_document
from tests.helpers.command import planner

ROOT = Path(__file__).parents[2]
LINE = {
    "schema": "graph/1",
    "kinds": [{"name": "gpu", "count": 2, "memory_bytes": 100}],
    "layers": [
        {"name": name, "times_ns": [time], "memory_bytes": 30} for name, time in zip("abc", (3, 4, 3), strict=True)
    ],
    "reads": [[0, 1], [1, 2]],
}


@pytest.fixture(autouse=True)
def _this_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the child


def write(folder: Path, graph: object) -> Path:
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    return path


def test_a_person_sees_value_bound_and_parts(tmp_path: Path) -> None:
    done = planner("partition", write(tmp_path, LINE))
    assert done.code == 0, done.err
    assert "7 ns" in done.out
    assert "0.00%" in done.out
    assert "gpu" in done.out


def test_a_program_gets_the_document_on_stdout_or_in_a_file(tmp_path: Path) -> None:
    graph, file = write(tmp_path, LINE), tmp_path / "parts.json"
    shown = planner("partition", graph, "--parts", "any", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["value_ns"] == 6  # type: ignore[index]
    assert planner("partition", graph, "--parts", "any", "-o", file).code == 0
    found = read_document(file.read_bytes(), Partition)
    assert (found.value_ns, found.bound_ns, found.limit) == (6, 6, "optimal")


def test_nothing_fits_says_how_many_bytes(tmp_path: Path) -> None:
    tight = LINE | {"kinds": [{"name": "gpu", "count": 2, "memory_bytes": 40}]}
    done = planner("partition", write(tmp_path, tight))
    assert done.code == 3
    assert "all layers need 90 bytes, 2 devices have 80" in done.err


def test_a_circle_is_refused(tmp_path: Path) -> None:
    done = planner("partition", write(tmp_path, LINE | {"reads": [[0, 1], [1, 0]]}))
    assert done.code == 2
    assert "read each other in a circle: 'a' -> 'b' -> 'a'" in done.err
    assert ".json#/layers/" in done.err


def test_another_document_is_refused(tmp_path: Path) -> None:
    done = planner("partition", write(tmp_path, LINE | {"schema": "plan/1"}))
    assert done.code == 2
    assert "graph/1" in done.err
