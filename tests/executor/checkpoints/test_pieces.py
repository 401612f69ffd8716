"""Tensors that lie in pieces over several shards, as a mesh leaves them, come together again."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp

from planner.errors import CheckpointError
from planner.executor.checkpoints.folder import open_manifest
from planner.executor.checkpoints.manifest import (
    Manifest,
    OptimizerRecord,
    Piece,
    Shard,
    manifest_bytes,
    read_manifest,
    with_digest,
)
from planner.executor.checkpoints.storage import ManifestReader
from planner.executor.tensor_file import TensorEntry, write_tensors
from tests.helpers.documents import digest_of

WHOLE = torch.arange(24, dtype=torch.float64).reshape(6, 4)
# rank -> begin of its piece, and the piece: unequal rows, the last two cut by columns too
BLOCKS = [((0, 0), WHOLE[:3]), ((3, 0), WHOLE[3:, :1]), ((3, 1), WHOLE[3:, 1:])]


def write_shards(folder: Path) -> Manifest:
    shards, pieces = [], []
    for rank, (begin, block) in enumerate(BLOCKS):
        path = folder / f"rank-{rank:05d}.safetensors"
        with path.open("wb") as file:
            write_tensors(file, [TensorEntry(f"w@{begin[0]},{begin[1]}", tuple(block.shape), block.dtype)], [block])
        data = path.read_bytes()
        shards.append(Shard(file=path.name, num_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
        pieces.append(Piece(name="w", dtype="F64", shape=(6, 4), begin=begin, size=tuple(block.shape), shard=rank))
    return with_digest(
        Manifest(
            schema_version="checkpoint/1",
            planner="0",
            torch="0",
            model=digest_of("model"),
            plan=digest_of("plan"),
            precision="fp32",
            num_ranks=3,
            steps=1,
            samples=1,
            optimizer=OptimizerRecord(kind="none", groups=(), numbers=(), on_processor=()),
            shards=tuple(shards),
            pieces=tuple(pieces),
            digest="0" * 64,
        )
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(write_shards(tmp_path)))
    return tmp_path


def test_pieces_of_three_shards_make_the_whole_tensor(folder: Path) -> None:
    wanted: dict[str, Tensor] = {"w": torch.zeros_like(WHOLE)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(wanted, storage_reader=ManifestReader(folder), no_dist=True)
    assert torch.equal(wanted["w"], WHOLE)


def test_pieces_that_do_not_tile_the_tensor_are_refused(folder: Path) -> None:
    """[0, 3) and [3, 6) x [0, 1): the block of 3 x 3 is missing; twice the same block covers as many elements."""
    manifest = open_manifest(folder)
    for pieces in (manifest.pieces[:2], (*manifest.pieces[:1], *manifest.pieces[:1])):
        wrong = with_digest(manifest.model_copy(update={"pieces": pieces}))
        with pytest.raises(CheckpointError, match=r"do not make the whole tensor|stored twice") as caught:
            read_manifest(manifest_bytes(wrong), "here")
        assert caught.value.code == "checkpoint_damaged"
