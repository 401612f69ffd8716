"""All weights in one safetensors file under the unsplit model's own names, whole or not at all.

Rank 0 writes; every other tensor comes from its first holder when its turn comes, so that no rank holds the whole
model for it.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import OutputError
from planner.executor.team import Team
from planner.executor.tensor_file import TensorEntry, write_tensors
from planner.executor.weights import Weight

__all__ = ["SavedTensor", "save_tensors", "sync_folder"]


class SavedTensor(NamedTuple):
    """``name`` in the file; several names of one weight are written each, as the model's state has them."""

    name: str
    weight: Weight


def save_tensors(path: Path, tensors: tuple[SavedTensor, ...], own: Mapping[str, Tensor], *, team: Team) -> None:
    """Every rank calls it with the same ``tensors`` and what it holds. Raises ``OutputError`` on all ranks."""
    fault = ""
    if team.rank == 0:
        fault = _write(path, tensors, _collected(tensors, own, team))
    else:
        for saved in tensors:
            if saved.weight.owner == team.rank:
                dist.send(own[saved.weight.name].detach().contiguous(), team.global_ranks[0], group=team.group)
    failed = int(team.sum(torch.tensor([len(fault)], device=team.device)).item())
    if failed:
        raise OutputError(fault or f"rank 0 could not write {path}", code="output", pointer=str(path))


def _collected(tensors: tuple[SavedTensor, ...], own: Mapping[str, Tensor], team: Team) -> Iterator[Tensor]:
    """The tensors in order, on the processor."""
    for saved in tensors:
        weight = saved.weight
        if weight.owner == 0:
            tensor = own[weight.name].detach()
        else:
            tensor = torch.empty(weight.shape, dtype=weight.dtype, device=team.device)
            dist.recv(tensor, team.global_ranks[weight.owner], group=team.group)
        yield tensor


def _write(path: Path, tensors: tuple[SavedTensor, ...], values: Iterator[Tensor]) -> str:
    """What went wrong, or nothing; the other ranks' tensors are taken in any case."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    entries = [TensorEntry(saved.name, saved.weight.shape, saved.weight.dtype) for saved in tensors]
    try:
        with draft.open("wb") as file:
            write_tensors(file, entries, values)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        for _ in values:
            pass
        draft.unlink(missing_ok=True)
        return f"cannot write {path}: {error.strerror}"
    return ""


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed in ``folder`` outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
