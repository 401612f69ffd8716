"""The ranks of a plan as torch.distributed knows them: numbers, device, and groups made in one common order."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store

from planner.errors import ExecutorError
from planner.executor.devices import device_of
from planner.executor.teardown import hold
from planner.plan.plan import Plan

__all__ = ["Circle", "SharedStore", "Team", "finish", "make_team"]

STORE_PREFIX = "parallel-planner"


class SharedStore(Protocol):
    """What we use of torch's key-value store."""

    timeout: timedelta

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


class Circle(Protocol):
    """Ranks that sum together: a process group, or its backend alone."""

    def allreduce(self, tensors: list[Tensor]) -> dist.Work: ...
    def broadcast(self, tensor: Tensor, root: int) -> dist.Work: ...


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

    def circles(self, members: Iterable[tuple[int, ...]], *, name: str) -> dict[tuple[int, ...], Circle]:
        """One for each different set of more than one rank that this rank is in; all ranks ask for the same sets."""
        found: dict[tuple[int, ...], Circle] = {}
        for ranks in sorted({ranks for ranks in members if len(ranks) > 1}):
            circle = self._circle(ranks, f"{name}/{'_'.join(map(str, ranks))}")
            if circle is not None:
                found[ranks] = circle
        return found

    def _circle(self, ranks: tuple[int, ...], name: str) -> Circle | None:
        assert self.group is not None, "one rank has no circle"
        if len(ranks) == self.num_ranks:
            return self.group
        if self.num_ranks == dist.get_world_size():
            made = dist.new_group([self.global_ranks[rank] for rank in ranks])
            return made if self.rank in ranks else None
        if self.rank not in ranks:
            return None
        # new_group needs the ranks outside the caller's group, and with local synchronization its names differ by
        # rank where groups overlap (torch 2.13): the backend is made by hand
        store = self.store(name)
        gloo: Any = dist.ProcessGroupGloo
        made_here: Circle = gloo(store, ranks.index(self.rank), len(ranks), store.timeout)
        return made_here

    def sum(self, values: Tensor) -> Tensor:
        """``values`` summed over all ranks, in place."""
        if self.group is not None and self.num_ranks > 1:
            finish(dist.all_reduce(values, group=self.group, async_op=True))
        return values

    def gather(self, values: Tensor) -> Tensor:
        """``values`` of all ranks, [rank, ...]."""
        found = values.new_empty((self.num_ranks, *values.shape))
        if self.group is None or self.num_ranks == 1:
            return found.copy_(values)
        finish(dist.all_gather(list(found.unbind()), values, group=self.group, async_op=True))
        return found


def finish(work: dist.Work | None) -> None:
    """Wait for a transfer in which this rank takes part, and let none of gloo's threads be its last holder."""
    assert work is not None, "this rank is in the group"
    work.wait()
    hold(work)


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
