"""Load a checkpoint into a run, by all ranks together; nothing of the run changes before all of it was verified.

A checkpoint is read only when its shards have the hashes of its manifest, and only into a run whose model, precision
and optimizer are those that were saved. Plan, cut, number of ranks and degrees are free: every rank reads the pieces
that it holds.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

from planner.errors import CheckpointError
from planner.executor.checkpoints.council import Council
from planner.executor.checkpoints.fitting import require_fitting
from planner.executor.checkpoints.folder import complete, newest, open_manifest, see
from planner.executor.checkpoints.manifest import Manifest, Shard
from planner.executor.checkpoints.optimizer_state import restore_optimizer, settle_numbers
from planner.executor.checkpoints.rank_state import Progress, RankState, model_name, random_names, set_random
from planner.executor.checkpoints.storage import ManifestReader, shard_hash, unset_tensor

__all__ = ["HALF_LOADED", "Found", "fill", "find_checkpoint"]

HALF_LOADED = "half_loaded"  # code of the error after which the run's state is neither the old nor the saved one


class Found(NamedTuple):
    """A checkpoint whose shards were all verified."""

    path: Path
    manifest: Manifest


def find_checkpoint(root: Path, state: RankState) -> Found:
    """The checkpoint ``root``, or the newest complete one in it. Every rank calls it.

    Where another job saves meanwhile, one that is gone before it was verified gives way to the newest then. Raises
    ``CheckpointError`` on all ranks.
    """
    council = Council(state.team)
    name = council.lead(lambda: _newest_name(root))
    while True:
        reading = _Reading(root / name, state)
        try:
            council.agree(reading.verify)
            return reading.found
        except CheckpointError as error:
            then = council.lead(lambda: _newest_name(root))
            if then == name:
                hint = council.lead(partial(_hint, root, name))
                raise CheckpointError(error.message + hint, code=error.code, pointer=error.pointer) from None
            name = then


def _newest_name(root: Path) -> str:
    path = newest(root)
    return "" if path == root else path.name


class _Reading:
    """One try; ``found`` after ``verify``."""

    found: Found

    def __init__(self, path: Path, state: RankState) -> None:
        self._path, self._state = path, state

    def verify(self) -> str:
        """The manifest fits this run, and this rank's share of the shards is what it says."""
        see(self._path)
        manifest = open_manifest(self._path)
        require_fitting(manifest, self._state, str(self._path))
        for shard in manifest.shards[self._state.team.rank :: self._state.team.num_ranks]:
            _require_unchanged(self._path / shard.file, shard)
        self.found = Found(self._path, manifest)
        return ""


def _require_unchanged(file: Path, shard: Shard) -> None:
    try:
        sha256, num_bytes = shard_hash(file), file.stat().st_size
    except FileNotFoundError:
        raise CheckpointError(f"{file} is missing", code="checkpoint_damaged", pointer=str(file)) from None
    if (sha256, num_bytes) != (shard.sha256, shard.num_bytes):
        raise CheckpointError(
            f"{file} was changed: found {num_bytes} bytes with SHA-256 {sha256}, "
            f"expected {shard.num_bytes} with {shard.sha256}",
            code="checkpoint_damaged",
            pointer=str(file),
        )


def _hint(root: Path, name: str) -> str:
    """What else could be loaded."""
    older = [found.path.name for found in complete(root) if found.path.name != name] if name else []
    return f"; complete and older: {', '.join(older[::-1][:3])}" if older else ""


def fill(found: Found, state: RankState) -> Progress:
    """This rank's weights, optimizer and random state become those of the checkpoint. Every rank calls it.

    Raises ``CheckpointError`` on all ranks, with the code ``half_loaded`` where reading failed on one.
    """
    council = Council(state.team)
    try:
        council.agree(lambda: _fill(found, state))
    except CheckpointError as error:
        raise CheckpointError(f"{found.path}: {error.message}", code=HALF_LOADED, pointer=str(found.path)) from error
    return Progress(found.manifest.steps, found.manifest.samples)


def _fill(found: Found, state: RankState) -> str:
    manifest, rank, device = found.manifest, state.team.rank, state.team.device
    first_pieces = {name: pieces[0] for name, pieces in manifest.by_name().items()}
    targets: dict[str, Tensor] = {
        model_name(weight.name): state.tensors[weight.name].detach()
        for weight in state.weights
        if rank in weight.holders
    }
    saved_states = {name: piece for name, piece in first_pieces.items() if name.startswith("optimizer.")}
    record, names = manifest.optimizer, state.parameter_names
    targets |= restore_optimizer(state.optimizer, names, record, pieces=saved_states)
    own_random = [name for name in random_names(rank, device) if name in first_pieces]
    random = {name: unset_tensor(first_pieces[name], torch.device("cpu")) for name in own_random}
    _read(found, targets | random)
    settle_numbers(state.optimizer, record)
    set_random(random, rank, device)
    return ""


def _read(found: Found, targets: dict[str, Tensor]) -> None:
    reader = ManifestReader(found.path, found.manifest)
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(targets, reader.read_metadata(), is_coordinator=True)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()
