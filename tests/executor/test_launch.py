"""``planner run``: the script gets the plan, its arguments and a process group; what does not fit is refused first."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import CheckpointError, ExecutorError, HandshakeError, PlanError
from planner.executor.current import CheckpointWish, current_plan
from planner.executor.launch import RunWish, launch_settings, run_script
from planner.executor.loading import load_plan
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from tests.helpers.executor_cases import changed, make_line, make_plan

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import torch.distributed as dist
from planner.executor.current import current_plan
from planner.executor.executor import Executor
from tests.helpers.executor_cases import adamw, make_line, squares
import torch

executor = Executor(current_plan(), make_line(), squares, torch.Tensor.numel, adamw, emulate=True)
loss = executor.step((torch.ones(4, 3, 4), torch.zeros(4, 3, 4))).loss
with open(f"{sys.argv[1]}/loss-{executor.rank}", "w") as file:
    file.write(f"{loss:.7f} {dist.is_initialized()} {sys.argv[2]}")
"""


def line_plan(num_ranks: int) -> Plan:
    cut = [0, 2, 4] if num_ranks == 2 else [0, 4]
    stages = [(rank, cut[rank], cut[rank + 1], 1) for rank in range(num_ranks)]
    groups = [[rank] for rank in range(num_ranks)]
    routes = [list(range(num_ranks))]
    batches = [(0, 2), (0, 2)]
    return make_plan(make_line(), family="1f1b", groups=groups, stages=stages, routes=routes, batches=batches, tokens=3)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def write(plan: Plan, path: Path) -> Path:
    path.write_bytes(document_bytes(plan))
    return path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(plans: list[Path], script: Path, folder: Path) -> list[tuple[int, str]]:
    """One process a rank, as torchrun starts them; exit status and what each wrote to standard error."""
    port = str(free_port())
    code = "import sys; from planner.executor.launch import run_script; run_script(*sys.argv[1:3], sys.argv[3:])"
    ranks = []
    for rank, plan in enumerate(plans):
        given = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(plans)), "OMP_NUM_THREADS": "1"}
        given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code, str(plan), str(script), str(folder), "seen"]
        ranks.append(subprocess.Popen(command, env=os.environ | given, stderr=subprocess.PIPE, text=True))
    ends = [rank.communicate(timeout=150)[1] for rank in ranks]
    return [(rank.returncode, end) for rank, end in zip(ranks, ends, strict=True)]


def test_two_ranks_run_the_script_with_the_loss_of_one(script: Path, tmp_path: Path) -> None:
    plan = write(line_plan(2), tmp_path / "plan.json")
    assert [status for status, _ in start([plan, plan], script, tmp_path)] == [0, 0]
    two = [(tmp_path / f"loss-{rank}").read_text() for rank in range(2)]
    run_script(write(line_plan(1), tmp_path / "one.json"), script, [str(tmp_path), "seen"])
    one = (tmp_path / "loss-0").read_text()
    assert two == [one.replace("False", "True")] * 2
    assert one.endswith("False seen")


def test_two_plans_are_refused_on_both_ranks(script: Path, tmp_path: Path) -> None:
    plan = line_plan(2)
    plans = [write(plan, tmp_path / "a.json"), write(changed(plan, problem="0" * 64), tmp_path / "b.json")]
    for status, errors in start(plans, script, tmp_path):
        assert status == 1
        assert "the ranks differ in plan" in errors
        assert plan.digest in errors
    assert not (tmp_path / "loss-0").exists()


def test_another_world_size_is_refused_with_both_numbers(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write(line_plan(2), tmp_path / "plan.json")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(HandshakeError, match="found 3 ranks, expected the plan's 2") as caught:
        run_script(plan, script, [])
    assert caught.value.code == "world_size"


def test_a_plan_of_another_digest_is_refused(tmp_path: Path) -> None:
    plan = line_plan(1)
    path = write(plan, tmp_path / "plan.json")
    assert load_plan(path, plan.digest) == plan
    with pytest.raises(HandshakeError, match=plan.digest):
        load_plan(path, "0" * 64)


def test_a_missing_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot read"):
        load_plan(tmp_path / "absent.json")


def test_a_script_without_planner_run_has_no_plan() -> None:
    with pytest.raises(ExecutorError, match="planner run --plan"):
        current_plan()


def test_the_environment_of_torchrun_is_read() -> None:
    found = launch_settings({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"})
    assert (found.rank, found.local_rank, found.world_size, found.under_torchrun) == (3, 1, 4, True)
    assert not launch_settings({}).under_torchrun


TRAINING = """
import sys
from pathlib import Path
import torch
from planner.executor.current import current_plan
from planner.executor.executor import Executor
from tests.helpers.checkpoint_cases import batch
from tests.helpers.executor_cases import adamw, make_line, squares

executor = Executor(current_plan(), make_line(), squares, torch.Tensor.numel, adamw, emulate=True)
with Path(sys.argv[1]).open("a") as losses:
    for step in range(executor.progress.steps, int(sys.argv[2])):
        losses.write(f"{step} {executor.step(batch(step)).loss!r}\\n")
"""


def test_a_script_that_knows_nothing_of_checkpoints_goes_on_from_the_last_one(tmp_path: Path) -> None:
    """Saved after steps 2 and 4, ended after 5: the next start does 4 again, with the same loss."""
    script, losses = tmp_path / "train.py", tmp_path / "losses"
    script.write_text(TRAINING)
    plan = write(line_plan(1), tmp_path / "plan.json")
    wish = RunWish(checkpoints=CheckpointWish(tmp_path / "saved", save_every=2, keep=1, resume=True))
    run_script(plan, script, [str(losses), "5"], wish=wish)
    run_script(plan, script, [str(losses), "7"], wish=wish)
    steps = [line.split() for line in losses.read_text().splitlines()]
    assert [step for step, _ in steps] == ["0", "1", "2", "3", "4", "4", "5", "6"]
    assert steps[4] == steps[5]
    assert [path.name for path in (tmp_path / "saved").glob("step-*")] == ["step-00000006"]


def test_a_folder_with_checkpoints_is_refused_before_the_first_step_unless_it_is_resumed(tmp_path: Path) -> None:
    script, losses = tmp_path / "train.py", tmp_path / "losses"
    script.write_text(TRAINING)
    plan = write(line_plan(1), tmp_path / "plan.json")
    wish = RunWish(checkpoints=CheckpointWish(tmp_path / "saved", save_every=1))
    run_script(plan, script, [str(losses), "1"], wish=wish)
    with pytest.raises(CheckpointError, match=r"step-00000001, which this run .* \(--resume\)") as caught:
        run_script(plan, script, [str(losses), "1"], wish=wish)
    assert caught.value.code == "checkpoint_of_another_run"
    assert losses.read_text().count("\n") == 1
