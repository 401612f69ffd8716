"""Save the state of a run, by all ranks together; what one rank cannot do none of them has done.

Every rank writes one shard into a draft; rank 0 then writes the manifest and makes the draft the newest checkpoint by
one rename.
"""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from planner import __version__
from planner.errors import CheckpointError
from planner.executor.checkpoints.council import Council
from planner.executor.checkpoints.folder import drafted, publish, see
from planner.executor.checkpoints.manifest import Manifest, ShardRecord, manifest_bytes, with_digest
from planner.executor.checkpoints.optimizer_state import merged_record, read_optimizer
from planner.executor.checkpoints.rank_state import Progress, RankState, model_name, random_tensors, writers
from planner.executor.checkpoints.storage import ShardWriter
from planner.executor.tensor_file import TENSOR_TYPES
from planner.problem.contract import Digest

__all__ = ["Saved", "save_checkpoint"]


class Saved(NamedTuple):
    """A complete checkpoint; ``digest`` is its manifest's."""

    path: Path
    digest: Digest


def save_checkpoint(
    root: Path, state: RankState, progress: Progress, *, known: frozenset[Digest], keep: int | None
) -> Saved:
    """Every rank calls it. ``known``: what this run wrote or continued from; ``keep``: how many of the newest stay.

    Raises ``CheckpointError`` on all ranks; the complete checkpoints are then as they were.
    """
    if keep is not None and keep < 1:
        raise CheckpointError(f"found keep={keep}, expected 1 or more", code="keep")
    council = Council(state.team)
    with ExitStack() as stack:
        name = council.lead(lambda: stack.enter_context(drafted(root, known=known)).name)
        draft = root / name
        said = council.agree(lambda: _write_shard(draft, state))
        published = council.lead(lambda: _publish(draft, said, _Head(state, progress), keep=keep))
    path, digest = json.loads(published)
    return Saved(root / path, digest)


class _Head(NamedTuple):
    state: RankState
    progress: Progress


def _write_shard(draft: Path, state: RankState) -> str:
    """This rank's tensors; what the manifest must say of them."""
    see(draft)
    rank = state.team.rank
    own = frozenset(name for name, writer in writers(state.weights).items() if writer == rank)
    optimizer = read_optimizer(state.optimizer, state.parameter_names, own)
    tensors = {model_name(name): state.tensors[name].detach() for name in sorted(own)}
    tensors |= optimizer.tensors | random_tensors(rank, state.team.device)
    _require_types(tensors)
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(tensors, is_coordinator=True)
    plans, _ = planner.create_global_plan([planner.create_local_plan()])
    writer = ShardWriter(draft / f"rank-{rank:05d}.safetensors", number=rank)
    writer.write_data(planner.finish_plan(plans[0]), planner).wait()
    assert writer.shard is not None, "it was written"
    return ShardRecord(shard=writer.shard, pieces=writer.pieces, optimizer=optimizer.record).model_dump_json()


def _require_types(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in TENSOR_TYPES:
            raise CheckpointError(
                f"{name} is of {tensor.dtype}, which a shard cannot hold", code="tensor_type", pointer=name
            )


def _publish(draft: Path, said: list[str], head: _Head, *, keep: int | None) -> str:
    """Path and digest of the new checkpoint."""
    manifest = _manifest(said, head)
    path = publish(draft, manifest_bytes(manifest), steps=head.progress.steps, keep=keep)
    return json.dumps([path.name, manifest.digest])


def _manifest(said: Iterable[str], head: _Head) -> Manifest:
    state, progress = head
    records = [ShardRecord.model_validate_json(text) for text in said]
    return with_digest(
        Manifest(
            schema_version="checkpoint/1",
            planner=__version__,
            torch=str(torch.__version__),
            model=state.plan.graph.model,
            plan=state.plan.digest,
            precision=state.plan.precision,
            num_ranks=state.team.num_ranks,
            steps=progress.steps,
            samples=progress.samples,
            optimizer=merged_record(record.optimizer for record in records),
            shards=tuple(record.shard for record in records),
            pieces=tuple(piece for record in records for piece in record.pieces),
            digest="0" * 64,
        )
    )
