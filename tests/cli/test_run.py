"""planner run: what it refuses, what the script sees, what becomes of the script's failures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from tests.helpers.command import planner, two_stage_plan

PLANNER = Path(sys.executable).with_name("planner")
TORCHRUN = Path(sys.executable).with_name("torchrun")
SCRIPT = """
import sys
import torch.distributed as dist
from planner.executor.current import current_plan, emulation_asked
rank = dist.get_rank() if dist.is_initialized() else 0
with open(f"{sys.argv[1]}.{rank}", "w") as file:
    print(current_plan().digest, emulation_asked(), *sys.argv[2:], __name__, file=file)
"""


def one_rank_plan() -> Plan:
    fields = two_stage_plan().model_dump(by_alias=True)
    stages = ({"group": 0, "first_layer": 0, "end_layer": 4},)
    nodes = ({"node_group": "cpu-a", "device_kind": "cpu-a", "num_ranks": 1},)
    changes = {"groups": ((0,),), "stages": stages, "routes": ((0,),), "nodes": nodes}
    return Plan.model_validate({**fields, **changes, "streams": ("0F0 0B0 0F1 0B1 0G0 0U0",)})


def run(folder: Path, plan: Plan, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.json").write_bytes(document_bytes(plan))
    (folder / "script.py").write_text(script)
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [*arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )


def test_a_script_sees_the_plan_and_its_own_arguments(tmp_path: Path) -> None:
    plan = one_rank_plan()
    command = [str(PLANNER), "run", "--plan", "plan.json", "--emulate", "script.py", "seen", "--json", "--plan", "x"]
    done = run(tmp_path, plan, SCRIPT, *command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen.0").read_text() == f"{plan.digest} True --json --plan x __main__\n"


def test_torchrun_starts_every_rank(tmp_path: Path) -> None:
    plan = two_stage_plan()
    start = [str(TORCHRUN), "--standalone", "--nproc-per-node=2", "--no-python", str(PLANNER)]
    done = run(tmp_path, plan, SCRIPT, *start, "run", "--plan", "plan.json", "script.py", "seen")
    assert done.returncode == 0, done.stderr
    assert {(tmp_path / f"seen.{rank}").read_text() for rank in (0, 1)} == {f"{plan.digest} False __main__\n"}


@pytest.mark.parametrize(
    ("plan", "script", "options", "code", "message"),
    [
        (two_stage_plan(), SCRIPT, [], 1, "error[world_size] at /nodes: found 1 ranks, expected the plan's 2"),
        (one_rank_plan(), "1 / 0", [], 1, "error[script_failed]: script.py: ZeroDivisionError: division by zero"),
        (one_rank_plan(), "import sys; sys.exit(7)", [], 7, ""),
        (one_rank_plan(), SCRIPT, ["--digest", "0" * 64], 6, "error[digest]"),
    ],
    ids=["world-size", "failing-script", "exiting-script", "another-digest"],
)
def test_what_goes_wrong_is_said(
    tmp_path: Path, plan: Plan, script: str, options: list[str], code: int, message: str
) -> None:
    done = run(tmp_path, plan, script, str(PLANNER), "run", "--plan", "plan.json", *options, "script.py", "seen")
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert not list(tmp_path.glob("seen.*"))


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, one_rank_plan(), "", str(PLANNER), "run", "--plan", "plan.json", "other.py")
    assert done.returncode == 2
    assert "error[file_missing]: other.py does not exist" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--resume"], "need --checkpoint DIR"),
        (["--save-every", "2"], "need --checkpoint DIR"),
        (["--checkpoint", "saved"], "needs --save-every N, --resume or both"),
        (["--checkpoint", "saved", "--save-every", "0"], "--save-every"),
    ],
)
def test_options_of_checkpoints_belong_together(options: list[str], said: str) -> None:
    done = planner("run", "--plan", "absent.json", *options, "script.py")
    assert done.code == 2
    assert said in done.err
