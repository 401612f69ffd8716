"""Runs that are killed: what a rank does in the tests of kills, in saving and in training."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from planner.errors import CheckpointError
from planner.executor.executor import Executor
from tests.helpers.checkpoint_cases import batch, line_executor
from tests.helpers.executor_cases import adamw, make_line, make_plan, squares
from tests.helpers.nursery_main import note

__all__ = ["line_batch", "save_and_die", "save_for_ever", "train_to_the_end"]

WIDTH_TOKENS = 3


def line_of_ranks(group: Any) -> Executor:
    """One layer a rank."""
    size = torch.distributed.get_world_size(group)
    model = make_line(size)
    plan = make_plan(
        model,
        family="1f1b",
        groups=[[rank] for rank in range(size)],
        stages=[(rank, rank, rank + 1, 1) for rank in range(size)],
        routes=[list(range(size))],
        batches=[(0, 1)] * 4,
        tokens=WIDTH_TOKENS,
    )
    return Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)


def line_batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, WIDTH_TOKENS, 4, generator=generator), torch.randn(4, WIDTH_TOKENS, 4, generator=generator)


def resume(executor: Executor, root: str) -> None:
    try:
        executor.load(root)
    except CheckpointError as error:
        if error.code != "no_checkpoint":
            raise
    note(f"at {executor.progress.steps}")


def save_for_ever(group: Any, *, root: str) -> None:
    """Says ``saved N`` once it is so."""
    executor = line_of_ranks(group)
    resume(executor, root)
    while True:
        executor.step(line_batch(executor.progress.steps))
        executor.save(root, keep=2)
        note(f"saved {executor.progress.steps}")


def train_to_the_end(group: Any, *, root: str, num_steps: int, save_every: int, weights: str) -> int:
    """Says ``ready`` before it loads and ``step N`` after each step; the weights at the end."""
    executor = line_of_ranks(group)
    executor.parameters()
    note("ready")
    resume(executor, root)
    while executor.progress.steps < num_steps:
        executor.step(line_batch(executor.progress.steps))
        note(f"step {executor.progress.steps}")
        time.sleep(0.002)
        if executor.progress.steps % save_every == 0:
            executor.save(root, keep=2)
    executor.save_weights(weights)
    executor.close()
    return executor.progress.steps


def save_and_die(group: Any, *, root: str, event: int) -> int:
    """From the newest checkpoint one step and a save that dies at that of its file operations; how many there were."""
    executor = line_executor()
    resume(executor, root)
    executor.step(batch(executor.progress.steps))
    seen = 0

    def count(name: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if name in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and root in str(arguments[0]):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    executor.save(Path(root), keep=1)
    return seen
