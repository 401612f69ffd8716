"""Shards as torch.distributed.checkpoint reads and writes them, without its pickled metadata.

Its planners decide what is written and which pieces of which shards make the tensors that a rank wants, whatever the
mesh was (``DefaultSavePlanner``, ``DefaultLoadPlanner``); these two classes are the storage below: a shard is a
safetensors file, the metadata is the manifest.
"""

import hashlib
import os
from collections import defaultdict
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from planner.executor.checkpoints.folder import open_manifest
from planner.executor.checkpoints.manifest import Manifest, Piece, Shard
from planner.executor.tensor_file import TENSOR_TYPES, TensorEntry, write_tensors

__all__ = ["ManifestReader", "ShardWriter", "shard_hash", "unset_tensor"]

_BLOCK_BYTES = 2**20
_TYPES = {name: dtype for dtype, name in TENSOR_TYPES.items()}


def unset_tensor(piece: Piece, device: torch.device) -> torch.Tensor:
    """Memory for the whole tensor that ``piece`` is a part of."""
    return torch.empty(piece.shape, dtype=_TYPES[piece.dtype], device=device)


class ShardWriter(StorageWriter):
    """Writes what one rank has into one file; ``shard`` and ``pieces`` then say what it is."""

    def __init__(self, path: Path, *, number: int) -> None:
        self.shard: Shard | None = None
        self.pieces: tuple[Piece, ...] = ()
        self._path, self._number = path, number

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        pieces = tuple(_piece(item, self._number) for item in plan.items)
        entries = [TensorEntry(_key(piece), piece.size, _TYPES[piece.dtype]) for piece in pieces]
        with self._path.open("xb") as file:
            sink = _HashingSink(file)
            write_tensors(sink, entries, (planner.resolve_data(item) for item in plan.items))  # type: ignore[misc]
            file.flush()
            os.fsync(file.fileno())
        self.pieces = pieces
        self.shard = Shard(file=self._path.name, num_bytes=sink.num_bytes, sha256=sink.hash.hexdigest())
        done: Future[list[WriteResult]] = Future()
        sizes = zip(plan.items, entries, strict=True)
        done.set_result([WriteResult(item.index, entry.num_bytes, self._path.name) for item, entry in sizes])
        return done

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None: ...
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Path(checkpoint_id).parent.is_dir()


class ManifestReader(StorageReader):
    """Reads the tensors of a complete checkpoint; also serves ``torch.distributed.checkpoint.load``."""

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self._path = path
        self._manifest = manifest or open_manifest(path)
        self._pieces = {_index(piece): piece for piece in self._manifest.pieces}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({name: _tensor(pieces) for name, pieces in self._manifest.by_name().items()})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        by_shard: dict[int, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_shard[self._pieces[item.storage_index].shard].append(item)
        for number, items in sorted(by_shard.items()):
            with safe_open(self._path / self._manifest.shards[number].file, framework="pt") as file:
                for item in items:
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(_part(file, _key(self._pieces[item.storage_index]), item))
                    planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...
    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Path(checkpoint_id).is_dir()


class _HashingSink:
    def __init__(self, file: BinaryIO) -> None:
        self.hash, self.num_bytes, self._file = hashlib.sha256(), 0, file

    def write(self, data: bytes | memoryview, /) -> None:
        self._file.write(data)
        self.hash.update(data)
        self.num_bytes += len(data)


def shard_hash(path: Path) -> str:
    """SHA-256 of a shard as it lies there; a link in its place is refused."""
    found = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()


def _piece(item: Any, number: int) -> Piece:
    data = item.tensor_data
    return Piece(
        name=item.index.fqn,
        dtype=TENSOR_TYPES[data.properties.dtype],  # type: ignore[arg-type]
        shape=tuple(data.size),
        begin=tuple(data.chunk.offsets),
        size=tuple(data.chunk.sizes),
        shard=number,
    )


def _key(piece: Piece) -> str:
    """The piece's name in its file."""
    return piece.name if piece.size == piece.shape else f"{piece.name}@{','.join(map(str, piece.begin))}"


def _index(piece: Piece) -> MetadataIndex:
    return MetadataIndex(piece.name, torch.Size(piece.begin))


def _tensor(pieces: list[Piece]) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=_TYPES[pieces[0].dtype]),
        size=torch.Size(pieces[0].shape),
        chunks=[ChunkStorageMetadata(torch.Size(piece.begin), torch.Size(piece.size)) for piece in pieces],
    )


def _part(file: Any, key: str, item: ReadItem) -> torch.Tensor:
    """The block of a stored piece that ``item`` asks for."""
    if not item.lengths:
        whole: torch.Tensor = file.get_tensor(key)
        return whole
    begins_and_sizes = zip(item.storage_offsets, item.lengths, strict=True)
    part: torch.Tensor = file.get_slice(key)[tuple(slice(begin, begin + size) for begin, size in begins_and_sizes)]
    return part
