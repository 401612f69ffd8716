"""Runs that save and load: shapes of plans for one small model, and the cases that ranks are asked for."""

import errno
import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from planner.errors import CheckpointError
from planner.executor.checkpoints import folder as folder_module
from planner.executor.executor import Executor
from planner.plan.plan import Plan
from tests.helpers.executor_cases import (
    adamw,
    make_batch,
    make_line,
    make_model,
    make_plan,
    squares,
    token_count,
    token_loss,
)

__all__ = ["SHAPES", "STEPS_BEFORE", "batch", "line_executor", "num_ranks", "shape_plan", "state_hashes"]

NUM_BLOCKS = 2  # of GPT-2: embedding, two blocks, head that shares the embedding's weight
STEPS_BEFORE = 2
STEPS_AFTER = 2
SHAPES = ["1x1", "2x1", "4x1", "1x2", "2x2", "4x2"]  # stages x data degree
_CUTS = {1: [0, 4], 2: [0, 1, 4], 4: [0, 1, 2, 3, 4]}


def num_ranks(shape: str) -> int:
    """Four stages with data degree 2 are two legs of two groups."""
    stages, data = map(int, shape.split("x"))
    return min(4, stages * data)


def shape_plan(shape: str) -> Plan:
    stages, data = map(int, shape.split("x"))
    num_groups = num_ranks(shape) // data
    cut = _CUTS[stages]
    return make_plan(
        make_model("gpt2", num_blocks=NUM_BLOCKS),
        family="1f1b" if num_groups == stages else "interleaved",
        groups=[list(range(group * data, (group + 1) * data)) for group in range(num_groups)],
        stages=[(stage % num_groups, cut[stage], cut[stage + 1], data) for stage in range(stages)],
        routes=[list(range(stages))],
        batches=[(0, 2)] * 4,
    )


def make_executor(group: Any, shape: str) -> Executor:
    model = make_model("gpt2", num_blocks=NUM_BLOCKS)
    group = group if torch.distributed.is_initialized() else None
    return Executor(shape_plan(shape), model, token_loss, token_count, adamw, process_group=group, emulate=True)


def state_hashes(executor: Executor) -> dict[str, str]:
    """Every bit of this rank's weights and optimizer states, by name."""
    found = {}
    for name, parameter in executor.parameters().items():
        found[name] = _hash(parameter)
        for state, value in executor.optimizer.state[parameter].items():
            found[f"{name}/{state}"] = _hash(value) if isinstance(value, Tensor) else repr(value)
    return found


def _hash(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def train_and_save(group: Any, *, shape: str, folder: str) -> dict[str, Any]:
    """Two steps, a checkpoint, two more steps."""
    executor = make_executor(group, shape)
    losses = [executor.step(make_batch(step)).loss for step in range(STEPS_BEFORE)]
    executor.save(Path(folder) / shape)
    hashes = state_hashes(executor)
    losses += [executor.step(make_batch(step)).loss for step in range(STEPS_BEFORE, STEPS_BEFORE + STEPS_AFTER)]
    executor.close()
    return {"losses": losses, "hashes": hashes}


def load_and_train(group: Any, *, shape: str, folder: str, saved: list[str]) -> dict[str, Any]:
    """From each checkpoint in turn two steps, by one executor: what was loaded before leaves nothing behind."""
    executor = make_executor(group, shape)
    found = {}
    for name in saved:
        executor.load(Path(folder) / name)
        hashes = state_hashes(executor)
        done = executor.progress.steps
        losses = [executor.step(make_batch(step)).loss for step in range(done, done + STEPS_AFTER)]
        found[name] = {"losses": losses, "hashes": hashes, "samples": executor.progress.samples}
    executor.close()
    return found


def line_executor(
    model: nn.Sequential | None = None, optimizer: Callable[..., torch.optim.Optimizer] = adamw
) -> Executor:
    """One rank alone, linear layers."""
    model = model or make_line()
    plan = make_plan(
        model, family="gpipe", groups=[[0]], stages=[(0, 0, len(model), 1)], routes=[[0]], batches=[(0, 4)], tokens=3
    )
    return Executor(plan, model, squares, Tensor.numel, optimizer, emulate=True)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """For ``line_executor``."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 3, 4, generator=generator), torch.randn(4, 3, 4, generator=generator)


def contested(group: Any, *, folder: str, how: str) -> list[str]:
    """What each of two ranks hears of a save that one of them cannot do, and what is complete after another try."""
    executor = make_executor(group, "2x1")
    executor.step(make_batch(0))
    directory = Path(folder) / "run"
    executor.save(directory)
    heard = [_refusal(executor, directory, how)]
    executor.step(make_batch(1))
    executor.save(directory)
    executor.close()
    return [*heard, *(path.name for path in sorted(directory.iterdir()) if path.name != ".lock")]


def _refusal(executor: Executor, directory: Path, how: str) -> str:
    with ExitStack() as stack:
        if executor.rank == 1 and how == "disk full":
            stack.enter_context(
                patch("os.fsync", side_effect=OSError(errno.ENOSPC, "No space left on device", "a shard"))
            )
        elif executor.rank == 1 and how == "another folder":
            stack.enter_context(patch.object(folder_module, "_SEEN_WITHIN_SECONDS", 0.1))
            directory = directory.with_name("elsewhere")
        elif how == "learning rates":
            executor.optimizer.param_groups[0]["lr"] = 0.1 + executor.rank
        elif how == "publishing" and executor.rank == 0:
            stack.enter_context(
                patch("os.rename", side_effect=OSError(errno.EROFS, "Read-only file system", "a folder"))
            )
        try:
            executor.save(directory)
        except CheckpointError as error:
            executor.optimizer.param_groups[0]["lr"] = 1e-3
            return f"{error.code}: {error.message}"
    return "saved"


def load_damaged(group: Any, *, folder: str) -> str:
    """The code that this rank hears of a checkpoint whose shard of rank 1 was changed."""
    executor = make_executor(group, "2x1")
    before = state_hashes(executor)
    path = executor.save(folder)
    if executor.rank == 1:
        shard = path / "rank-00001.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    torch.distributed.barrier(group)
    try:
        executor.load(folder)
    except CheckpointError as error:
        assert state_hashes(executor) == before
        executor.step(make_batch(0))
        executor.close()
        return error.code
    return "loaded"
