"""The ranks of a plan as torch.distributed knows them: numbers, device, and groups made in one common order."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store

from planner.errors import ExecutorError
from planner.executor.devices import device_of
from planner.plan.plan import Plan

__all__ = ["SharedStore", "Team", "make_team"]

STORE_PREFIX = "parallel-planner"


class SharedStore(Protocol):
    """What we use of torch's key-value store."""

    timeout: timedelta

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


@dataclass(frozen=True)
class Team:
    """``group`` is None for one rank without torch.distributed; then nothing is ever sent."""

    rank: int
    num_ranks: int
    device: torch.device
    group: dist.ProcessGroup | None
    global_ranks: tuple[int, ...]

    def store(self, name: str) -> SharedStore:
        """A part of the key-value store that all ranks share, over a connection of its own."""
        assert self.group is not None, "one rank has no store"
        # torch has no public way to the store that the caller's init_process_group made
        own_connection = _get_default_store().clone()  # type: ignore[attr-defined]
        prefix = f"{STORE_PREFIX}/{self.group.group_name}/{name}"
        store: SharedStore = dist.PrefixStore(prefix, own_connection)  # type: ignore[attr-defined, assignment]
        return store

    def subgroups(self, members: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], dist.ProcessGroup]:
        """A group for each different set of more than one rank; every rank calls this with the same sets."""
        found: dict[tuple[int, ...], dist.ProcessGroup] = {}
        for ranks in sorted({ranks for ranks in members if len(ranks) > 1}):
            assert self.group is not None
            if len(ranks) == self.num_ranks:
                found[ranks] = self.group
            else:
                whole = self.num_ranks == dist.get_world_size()
                made = dist.new_group([self.global_ranks[rank] for rank in ranks], use_local_synchronization=not whole)
                if self.rank in ranks:
                    found[ranks] = made
        return found

    def sum(self, values: Tensor) -> Tensor:
        """``values`` summed over all ranks, in place."""
        if self.group is not None and self.num_ranks > 1:
            dist.all_reduce(values, group=self.group)
        return values


def make_team(plan: Plan, process_group: dist.ProcessGroup | None, *, model: nn.Module) -> Team:
    """The caller's group, else the default group, else one rank alone."""
    if process_group is None and not (dist.is_available() and dist.is_initialized()):
        if plan.num_ranks > 1:
            raise ExecutorError(
                f"found no process group, expected one of {plan.num_ranks} ranks: call init_process_group first",
                code="no_process_group",
            )
        return Team(0, 1, device_of(model, None), None, (0,))
    group = process_group if process_group is not None else dist.group.WORLD
    assert group is not None
    size = dist.get_world_size(group)
    ranks = tuple(dist.get_global_rank(group, rank) for rank in range(size))
    return Team(dist.get_rank(group), size, device_of(model, group), group, ranks)
