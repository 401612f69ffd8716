"""The example's two loops give the same losses, and the demo notices when they do not."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from examples.demo import print_losses
from examples.settings import SAMPLES, TOKENS
from planner.cutting.cut import cut_model
from planner.executor.processor import cpu_kind
from planner.plan.graph import LayerGraph, Node
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from planner.schedules.build import PlanParts, build_plan
from planner.simulate.run_record import RunRecord
from tests.helpers.documents import digest_of

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
STEPS = 3


def make_plan(num_ranks: int) -> Plan:
    """One or two stages."""
    from examples.llama import build_model

    cut = cut_model(build_model())
    cuts = [0, 5, len(cut.layers)] if num_ranks == 2 else [0, len(cut.layers)]
    return build_plan(
        PlanParts(
            problem=digest_of("example"),
            precision="fp32",
            graph=LayerGraph(model=cut.fingerprint, num_layers=len(cut.layers)),
            nodes=(Node(node_group="local", device_kind=cpu_kind(), num_ranks=num_ranks),),
            groups=tuple((rank,) for rank in range(num_ranks)),
            stages=tuple(
                Stage(group=number, first_layer=first, end_layer=end)
                for number, (first, end) in enumerate(pairwise(cuts))
            ),
            routes=(tuple(range(num_ranks)),),
            micro_batches=(MicroBatch(route=0, samples=2, cuts=(0, TOKENS)),) * (SAMPLES // 2),
        ),
        "1f1b",
    )


def run(folder: Path, *command: str | Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr


def test_two_ranks_train_like_one_process(tmp_path: Path) -> None:
    plan = make_plan(2)
    (tmp_path / "plan.json").write_bytes(document_bytes(plan))
    start = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", "--no-python", BIN / "planner", "run"]
    script = [ROOT / "examples" / "train_llama.py", "--steps", str(STEPS), "--output", "run.json"]
    run(tmp_path, *start, "--plan", "plan.json", "--checkpoint", "saved", "--save-every", "2", *script)
    options = ["--steps", str(STEPS), "--micro-batches", ",".join(["2"] * (SAMPLES // 2)), "--output", "losses.json"]
    run(tmp_path, sys.executable, "-m", "examples.plain_loop", *options)
    record = read_document((tmp_path / "run.json").read_bytes(), RunRecord)
    alone = json.loads((tmp_path / "losses.json").read_text())
    assert record.plan == plan.digest
    assert [step.loss for step in record.steps] == pytest.approx(alone, rel=1e-6, abs=0)
    assert alone[-1] < alone[0]
    require_same_end_under_one_rank(tmp_path, alone)


def require_same_end_under_one_rank(folder: Path, alone: list[float]) -> None:
    """The checkpoint of step 2 goes on with step 3, without torchrun."""
    (folder / "one.json").write_bytes(document_bytes(make_plan(1)))
    script = [ROOT / "examples" / "train_llama.py", "--steps", str(STEPS), "--output", "resumed.json"]
    run(folder, BIN / "planner", "run", "--plan", "one.json", "--checkpoint", "saved", "--resume", *script)
    record = read_document((folder / "resumed.json").read_bytes(), RunRecord)
    assert [step.loss for step in record.steps] == pytest.approx(alone[2:], rel=1e-6, abs=0)


def test_a_different_loss_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    alone = [5.0 - 0.1 * step for step in range(20)]
    assert print_losses(alone, alone)
    assert print_losses([loss * (1 + 0.9e-6) for loss in alone], alone)
    assert not print_losses([*alone[:-1], alone[-1] * (1 + 1.1e-6)], alone)
    assert not print_losses(alone[:-1], alone[:-1])  # a step is missing
    assert "largest relative difference" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_demo_ends_well(tmp_path: Path) -> None:
    run_demo = [sys.executable, "-m", "examples.demo", "--output", str(tmp_path / "out")]
    done = subprocess.run(run_demo, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "plan.json").exists()
