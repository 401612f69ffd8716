"""Run the command line inside the test's process, and small files for it."""

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from planner.cli.main import run_command
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.problem import Problem
from tests.helpers.documents import make_problem

__all__ = ["Done", "planner", "two_stage_plan", "write_problem"]


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


class _Stream(io.TextIOWrapper):
    """Text over bytes in memory, as the process's own stdout is."""


def planner(*arguments: str | Path) -> Done:
    """``planner ARGUMENTS`` without a process."""
    out, err = _Stream(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(argument) for argument in arguments])
    out.flush()
    return Done(code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


def two_stage_plan(problem: Problem | None = None, *, streams: Sequence[str] | None = None) -> Plan:
    """1F1B on two ranks of one node, four layers, two micro-batches of four samples of 32 tokens."""
    problem = problem or make_problem()
    profile = problem.profiles[0]
    return Plan.model_validate(
        {
            "schema": "plan/1",
            "problem": problem.digest,
            "precision": "fp32",
            "graph": {"model": profile.model.fingerprint, "num_layers": 4},
            "nodes": ({"node_group": "cpu-a", "device_kind": "cpu-a", "num_ranks": 2},),
            "groups": ((0,), (1,)),
            "stages": (
                {"group": 0, "first_layer": 0, "end_layer": 2},
                {"group": 1, "first_layer": 2, "end_layer": 4},
            ),
            "routes": ((0, 1),),
            "micro_batches": ({"route": 0, "samples": 4, "cuts": (0, 32)},) * 2,
            "streams": tuple(streams or ("0F0 0F1 0B0 0B1 0G0 0U0", "1F0 1B0 1F1 1B1 1G0 1U0")),
        }
    )


def write_problem(folder: Path, problem: Problem | None = None) -> list[str]:
    """The files of a problem in ``folder``; the options that name them."""
    problem = problem or make_problem()
    options: list[str] = []
    for number, profile in enumerate(problem.profiles):
        path = folder / f"profile-{number}.json"
        path.write_bytes(document_bytes(profile))
        options += ["--profile", str(path)]
    for name, document in (("cluster", problem.cluster), ("workload", problem.workload)):
        path = folder / f"{name}.json"
        path.write_bytes(document_bytes(document))
        options += [f"--{name}", str(path)]
    return options
