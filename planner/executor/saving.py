"""All weights in one safetensors file under the unsplit model's own names, whole or not at all.

Rank 0 writes; every other tensor comes from its first holder when its turn comes, so that no rank holds the whole
model for it. The format is written by hand for that reason (https://huggingface.co/docs/safetensors, format section):
8 bytes length of the header, the header as JSON, then the tensors in the order of their offsets.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import OutputError
from planner.executor.team import Team
from planner.executor.weights import Weight

__all__ = ["SavedTensor", "save_tensors"]

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class SavedTensor(NamedTuple):
    """``name`` in the file; several names of one weight are written each, as the model's state has them."""

    name: str
    weight: Weight

    @property
    def num_bytes(self) -> int:
        return torch.Size(self.weight.shape).numel() * self.weight.dtype.itemsize


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
        yield tensor.cpu().contiguous()


def _write(path: Path, tensors: tuple[SavedTensor, ...], values: Iterator[Tensor]) -> str:
    """What went wrong, or nothing; the other ranks' tensors are taken in any case."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            _write_all(file, tensors, values)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        for _ in values:
            pass
        draft.unlink(missing_ok=True)
        return f"cannot write {path}: {error.strerror}"
    return ""


def _write_all(file: BinaryIO, tensors: tuple[SavedTensor, ...], values: Iterator[Tensor]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for saved in tensors:
        end = begin + saved.num_bytes
        header[saved.name] = {
            "dtype": _TYPES[saved.weight.dtype],
            "shape": list(saved.weight.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in values:
        file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
