"""``checkpoint/1``: what a checkpoint holds, under the model's own names, and the hash of every shard.

The manifest is written last and names every piece of every tensor: nothing of a checkpoint is found by looking at
its folder. Its own digest makes a changed manifest as visible as a changed shard.
"""

import math
from collections import defaultdict
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from planner.errors import CheckpointError, DocumentError
from planner.problem.canonical import document_bytes, document_digest
from planner.problem.contract import Bytes, Contract, Count, Digest, FiniteFloat, Index, Many, fault
from planner.problem.reading import read_document
from planner.problem.workload import Precision

__all__ = [
    "Manifest",
    "OptimizerGroup",
    "OptimizerRecord",
    "Option",
    "OptionValue",
    "Piece",
    "Shard",
    "ShardRecord",
    "manifest_bytes",
    "read_manifest",
    "with_digest",
]

OptionValue = None | bool | int | FiniteFloat | str | tuple[int | FiniteFloat | bool | str | None, ...]
TensorName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ShardFile = Annotated[str, StringConstraints(pattern=r"^rank-[0-9]{5}\.safetensors$")]
TypeName = Literal["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"]


class Shard(Contract):
    """One file: what one rank wrote."""

    file: ShardFile
    num_bytes: Bytes
    sha256: Digest


class Piece(Contract):
    """A block of a tensor: from ``begin``, of ``size``, in the shard of that number; mostly the whole tensor."""

    name: TensorName
    dtype: TypeName
    shape: tuple[Index, ...]
    begin: tuple[Index, ...]
    size: tuple[Index, ...]
    shard: Index

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if not len(self.shape) == len(self.begin) == len(self.size):
            raise fault("piece", f"{self.name}: shape, begin and size differ in length")
        if any(first + size > whole for first, size, whole in zip(self.begin, self.size, self.shape, strict=True)):
            raise fault("piece", f"{self.name}: a piece that ends outside its tensor")
        return self


class Option(Contract):
    """One setting of a group of the optimizer, such as the learning rate."""

    name: str
    value: OptionValue


class OptimizerGroup(Contract):
    """Weights with the same settings."""

    names: tuple[TensorName, ...]
    options: tuple[Option, ...]


class OptimizerRecord(Contract):
    """``numbers``: states that are Python numbers; ``on_processor``: those that lie there whatever the device."""

    kind: str
    groups: tuple[OptimizerGroup, ...]
    numbers: tuple[str, ...]
    on_processor: tuple[str, ...]


class ShardRecord(Contract):
    """What one rank wrote."""

    shard: Shard
    pieces: tuple[Piece, ...]
    optimizer: OptimizerRecord


class Manifest(Contract):
    """All of a checkpoint but the tensors' values. ``steps`` done and ``samples`` seen by then; ``plan`` for people."""

    schema_version: Literal["checkpoint/1"] = Field(alias="schema")
    planner: str
    torch: str
    model: Digest
    plan: Digest
    precision: Precision
    num_ranks: Count
    steps: Index
    samples: Index
    optimizer: OptimizerRecord
    shards: Many[Shard]
    pieces: Many[Piece]
    digest: Digest

    @model_validator(mode="after")
    def _whole(self) -> Self:
        files = [shard.file for shard in self.shards]
        if len(set(files)) != len(files):
            raise fault("duplicate", "a shard is listed twice")
        for name, pieces in self.by_name().items():
            _check_tensor(name, pieces, num_shards=len(files))
        return self

    def by_name(self) -> dict[str, list[Piece]]:
        """The pieces of each tensor."""
        found: dict[str, list[Piece]] = defaultdict(list)
        for piece in self.pieces:
            found[piece.name].append(piece)
        return found


def _check_tensor(name: str, pieces: list[Piece], *, num_shards: int) -> None:
    """One type and shape, every element once."""
    first = pieces[0]
    if any((piece.shape, piece.dtype) != (first.shape, first.dtype) for piece in pieces):
        raise fault("piece", f"{name}: pieces of different tensors")
    if any(piece.shard >= num_shards for piece in pieces):
        raise fault("piece", f"{name}: a shard that is not listed")
    if sum(math.prod(piece.size) for piece in pieces) != math.prod(first.shape):
        raise fault("piece", f"{name}: the pieces do not make the whole tensor")
    if any(_overlap(one, other) for number, one in enumerate(pieces) for other in pieces[:number]):
        raise fault("piece", f"{name}: an element is stored twice")


def _overlap(one: Piece, other: Piece) -> bool:
    sides = zip(one.begin, one.size, other.begin, other.size, strict=True)
    return all(a < b + b_size and b < a + a_size for a, a_size, b, b_size in sides)


def with_digest(manifest: Manifest) -> Manifest:
    """The same with its own digest filled in."""
    return manifest.model_copy(update={"digest": _digest(manifest)})


def manifest_bytes(manifest: Manifest) -> bytes:
    return document_bytes(manifest)


def _digest(manifest: Manifest) -> Digest:
    return document_digest(manifest, leave_out=frozenset({"digest"}))


def read_manifest(data: bytes, where: str) -> Manifest:
    """Raises ``CheckpointError``: another version, no manifest, or one that was changed."""
    try:
        manifest = read_document(data, Manifest)
    except DocumentError as error:
        code = "checkpoint_version" if error.code == "schema" else "checkpoint_damaged"
        raise CheckpointError(f"{where} is no checkpoint/1: {error.message}", code=code, pointer=where) from error
    digest = _digest(manifest)
    if digest != manifest.digest:
        raise CheckpointError(
            f"{where} was changed: found content {digest}, expected {manifest.digest}",
            code="checkpoint_damaged",
            pointer=where,
        )
    return manifest
