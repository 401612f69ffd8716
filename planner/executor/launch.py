"""``planner run``: run a user's script under torchrun with a plan that was read and checked once.

Before the script runs, the world size of the environment is compared with the plan's, and the digests of all ranks with
each other. The script finds the plan with ``current_plan()`` and the process group made.
"""

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from planner.errors import HandshakeError
from planner.executor.current import CheckpointWish, set_current_plan
from planner.executor.handshake import Handshake
from planner.executor.loading import load_plan
from planner.executor.stopping import stops_by_signal
from planner.executor.team import make_team
from planner.executor.teardown import end_all
from planner.plan.plan import Plan

__all__ = ["LaunchSettings", "RunWish", "launch_settings", "run_script"]

_GROUP_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class LaunchSettings:
    """What torchrun says in the environment; one rank alone where it says nothing."""

    rank: int
    local_rank: int
    world_size: int
    under_torchrun: bool


@dataclass(frozen=True)
class RunWish:
    """``digest``: the plan's; ``emulate``: executors may run a plan for other devices; ``checkpoints``: of them."""

    digest: str | None = None
    emulate: bool = False
    checkpoints: CheckpointWish | None = None


def launch_settings(environment: Mapping[str, str]) -> LaunchSettings:
    return LaunchSettings(
        rank=int(environment.get("RANK", "0")),
        local_rank=int(environment.get("LOCAL_RANK", "0")),
        world_size=int(environment.get("WORLD_SIZE", "1")),
        under_torchrun="WORLD_SIZE" in environment,
    )


def run_script(plan_path: str | Path, script: str | Path, args: Sequence[str], *, wish: RunWish = RunWish()) -> None:
    """Run ``script`` as ``__main__`` on this rank; its errors are the caller's.

    Raises ``PlanError`` or ``HandshakeError`` before the script runs where plan, world size or digests do not fit.
    """
    plan = load_plan(plan_path, wish.digest)
    settings = launch_settings(os.environ)
    if settings.world_size != plan.num_ranks:
        raise HandshakeError(
            f"found {settings.world_size} ranks, expected the plan's {plan.num_ranks}: "
            f"start it with torchrun --nproc-per-node and --nnodes that give {plan.num_ranks}",
            code="world_size",
            pointer="/nodes",
        )
    if settings.under_torchrun:
        _join(settings, plan)
    try:
        set_current_plan(plan, emulate=wish.emulate, checkpoints=wish.checkpoints)
        with stops_by_signal():
            _run(Path(script), args)
    finally:
        set_current_plan(None)
        end_all()
        if settings.under_torchrun and dist.is_initialized():
            dist.destroy_process_group()


def _join(settings: LaunchSettings, plan: Plan) -> None:
    """All ranks meet and hold the same plan."""
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available():
        torch.cuda.set_device(settings.local_rank % torch.cuda.device_count())
        backend = "nccl"
    dist.init_process_group(backend, timeout=_GROUP_TIMEOUT)
    team = make_team(plan, None, model=torch.nn.Module())
    Handshake(team, "launch").agree({"plan": plan.digest, "world size": str(settings.world_size)})


def _run(script: Path, args: Sequence[str]) -> None:
    arguments, path = sys.argv, sys.path
    sys.argv = [str(script), *args]
    sys.path = [str(script.resolve().parent), *path]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path = arguments, path
