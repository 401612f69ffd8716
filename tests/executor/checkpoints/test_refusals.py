"""Damaged, foreign and contested checkpoints: a named error, and nothing changed, in the run or on the disk."""

import errno
import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from planner.errors import CheckpointError
from planner.executor.checkpoints import folder as folder_module
from planner.executor.checkpoints import storage
from planner.executor.checkpoints.folder import complete
from planner.executor.executor import Executor
from planner.problem.canonical import canonical_bytes, canonical_digest
from tests.helpers.checkpoint_cases import batch, line_executor, state_hashes
from tests.helpers.executor_cases import make_line

sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def trained(num_steps: int = 1) -> Executor:
    executor = line_executor()
    for step in range(num_steps):
        executor.step(batch(step))
    return executor


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two complete checkpoints, of steps 1 and 2."""
    executor = trained()
    executor.save(tmp_path / "run")
    executor.step(batch(1))
    executor.save(tmp_path / "run")
    executor.close()
    return tmp_path / "run"


def refused(place: Path, code: str, executor: Executor | None = None) -> str:
    """Loading says ``code`` and leaves the run as it was, able to go on."""
    executor = executor or trained()
    before = state_hashes(executor)
    with pytest.raises(CheckpointError) as caught:
        executor.load(place)
    assert caught.value.code == code
    assert state_hashes(executor) == before
    executor.step(batch(7))
    executor.close()
    return str(caught.value)


def flip(path: Path, place: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def edit(path: Path, **fields: Any) -> None:
    """Other fields in a manifest, with the right digest."""
    document = json.loads(path.read_bytes()) | fields
    del document["digest"]
    path.write_bytes(canonical_bytes({**document, "digest": canonical_digest(document)}))


def test_a_flipped_byte_is_found_and_an_older_checkpoint_is_named(root: Path) -> None:
    shard = root / "step-00000002" / "rank-00000.safetensors"
    flip(shard)
    said = refused(root, "checkpoint_damaged")
    assert str(shard) in said
    assert said.endswith("complete and older: step-00000001")
    executor = trained()
    executor.load(root / "step-00000001")
    assert executor.progress.steps == 1


def test_every_byte_of_a_manifest_counts(root: Path) -> None:
    manifest = root / "step-00000002" / "manifest.json"
    data = manifest.read_bytes()
    place = data.index(b'"steps":2') + len(b'"steps":')
    manifest.write_bytes(data[:place] + b"3" + data[place + 1 :])
    assert "was changed" in refused(root, "checkpoint_damaged")


def test_a_truncated_shard_is_found(root: Path) -> None:
    shard = root / "step-00000002" / "rank-00000.safetensors"
    os.truncate(shard, shard.stat().st_size - 8)
    assert "bytes" in refused(root, "checkpoint_damaged")


def test_a_missing_shard_is_named(root: Path) -> None:
    (root / "step-00000002" / "rank-00000.safetensors").unlink()
    assert "rank-00000.safetensors is missing" in refused(root, "checkpoint_damaged")


def test_a_shard_or_manifest_that_is_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    for name in ("rank-00000.safetensors", "manifest.json"):
        file = root / "step-00000002" / name
        file.rename(tmp_path / name)
        file.symlink_to(tmp_path / name)
        refused(root, "symbolic_link")
        file.unlink()
        (tmp_path / name).rename(file)


def test_a_manifest_cannot_name_files_elsewhere(root: Path) -> None:
    manifest = root / "step-00000002" / "manifest.json"
    shard = json.loads(manifest.read_bytes())["shards"][0] | {"file": "../step-00000001/rank-00000.safetensors"}
    edit(manifest, shards=[shard])
    refused(root, "checkpoint_damaged")


def test_a_linked_folder_does_not_count_and_a_linked_root_does(root: Path, tmp_path: Path) -> None:
    (root / "step-00000009").symlink_to(root / "step-00000001")
    (tmp_path / "latest").symlink_to(root)
    executor = trained()
    assert executor.load(tmp_path / "latest").name == "step-00000002"


def test_another_version_is_named(root: Path) -> None:
    edit(root / "step-00000002" / "manifest.json", schema="checkpoint/2")
    assert "checkpoint/2" in refused(root, "checkpoint_version")


def test_a_checkpoint_of_another_model_is_refused(root: Path) -> None:
    refused(root, "model_mismatch", line_executor(make_line(3)))


def test_a_checkpoint_of_another_optimizer_is_refused_with_both_names(root: Path) -> None:
    said = refused(root, "optimizer_mismatch", line_executor(optimizer=sgd))
    assert "AdamW" in said
    assert "SGD" in said


def test_a_checkpoint_of_another_precision_is_refused(root: Path) -> None:
    edit(root / "step-00000002" / "manifest.json", precision="bf16")
    refused(root, "precision_mismatch")


def test_weights_of_another_type_are_refused(root: Path) -> None:
    manifest = root / "step-00000002" / "manifest.json"
    pieces = json.loads(manifest.read_bytes())["pieces"]
    edit(manifest, pieces=[p | {"dtype": "F64"} if p["name"] == "model.0.weight" else p for p in pieces])
    assert "model.0.weight F64 [4, 4], expected F32 [4, 4]" in refused(root, "checkpoint_shape")


def test_missing_and_extra_weights_are_listed(root: Path) -> None:
    manifest = root / "step-00000002" / "manifest.json"
    pieces = json.loads(manifest.read_bytes())["pieces"]
    edit(manifest, pieces=[p | {"name": p["name"].replace("model.0.weight", "model.odd")} for p in pieces])
    said = refused(root, "checkpoint_names")
    assert "lacks model.0.weight and has model.odd" in said


def test_pieces_that_overlap_or_leave_a_gap_are_refused(root: Path) -> None:
    manifest = root / "step-00000002" / "manifest.json"
    pieces = json.loads(manifest.read_bytes())["pieces"]
    for change in ({"size": [3, 4]}, {"begin": [1, 0]}, {"shard": 1}):
        edit(manifest, pieces=[p | change if p["name"] == "model.0.weight" else p for p in pieces])
        refused(root, "checkpoint_damaged")


def test_an_empty_or_absent_folder_has_no_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path, "no_checkpoint")
    refused(tmp_path / "absent", "no_checkpoint")
    (tmp_path / "step-00000001").mkdir()  # a copy that has only begun
    (tmp_path / ".draft-ab").mkdir()
    refused(tmp_path, "no_checkpoint")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    refused(tmp_path / "run", "not_a_folder")
    refused_save(tmp_path / "run", "not_a_folder")


def refused_save(place: Path, code: str, executor: Executor | None = None) -> str:
    """Saving says ``code``; complete checkpoints and the run are as they were, and no draft stays."""
    executor = executor or trained()
    before = complete(place) if place.is_dir() else []
    with pytest.raises(CheckpointError) as caught:
        executor.save(place)
    assert caught.value.code == code
    if place.is_dir():
        assert complete(place) == before
        assert list(place.glob(".draft-*")) == []
    executor.step(batch(7))
    return str(caught.value)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EACCES, "no_permission"),
        (errno.EROFS, "read_only"),
        (errno.EIO, "checkpoint_files"),
    ],
)
@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir"])
def test_what_the_disk_refuses_leaves_the_older_checkpoints(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str, call: str
) -> None:
    executor = trained()
    executor.load(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, _raiser(number))
        if call == "mkdir":
            patch.setattr(Path, "mkdir", _raiser(number))
        refused_save(root, code, executor)
    assert executor.save(root).name == "step-00000003"


def _raiser(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "the place")

    return fail


def test_a_job_that_did_not_continue_from_the_newest_cannot_save_beside_it(root: Path, tmp_path: Path) -> None:
    said = refused_save(root, "checkpoint_of_another_run")
    assert "step-00000002" in said
    first, second = trained(), trained()
    first.load(root)
    second.load(root)
    first.step(batch(2))
    first.save(root)
    refused_save(root, "checkpoint_of_another_run", second)  # the first job was faster
    second.save(tmp_path / "elsewhere")


def test_two_jobs_do_not_save_at_the_same_moment(root: Path) -> None:
    executor = trained()
    executor.load(root)
    with folder_module._locked(root):
        refused_save(root, "checkpoint_busy", executor)
    executor.save(root)


def test_a_lock_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (root / ".lock").unlink()
    (root / ".lock").symlink_to(tmp_path / "victim")
    executor = trained()
    executor.load(root)
    refused_save(root, "symbolic_link", executor)
    assert not (tmp_path / "victim").exists()


def test_a_load_sees_the_old_or_the_new_checkpoint_while_another_job_saves(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that takes its time, as over a network: the reader finds step 2 before it and step 3 after it."""
    writer, reader = trained(), trained()
    writer.load(root)
    writer.step(batch(2))
    inside, go_on = threading.Event(), threading.Event()
    rename = os.rename

    def slow(source: Path, target: Path) -> None:
        inside.set()
        assert go_on.wait(60)
        rename(source, target)

    monkeypatch.setattr(os, "rename", slow)
    saving = threading.Thread(target=writer.save, args=(root,))
    saving.start()
    assert inside.wait(60)
    assert reader.load(root).name == "step-00000002"
    go_on.set()
    saving.join()
    assert reader.load(root).name == "step-00000003"


def test_a_checkpoint_that_goes_while_it_is_verified_gives_way_to_the_newest(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job saves step 3 and keeps one; the reader had begun with step 2."""
    writer, reader = trained(), trained()
    writer.load(root)
    writer.step(batch(2))
    hashed = storage.shard_hash
    left = [True]

    def overtaken(path: Path) -> str:
        if left.pop() if left else False:
            writer.save(root, keep=1)
        return hashed(path)

    monkeypatch.setattr("planner.executor.checkpoints.load.shard_hash", overtaken)
    assert reader.load(root).name == "step-00000003"
    assert [found.path.name for found in complete(root)] == ["step-00000003"]


def test_the_newest_are_kept_and_drafts_are_swept(tmp_path: Path) -> None:
    executor = trained()
    for step in range(1, 5):
        executor.save(tmp_path, keep=2)
        (tmp_path / f".draft-left{step}").mkdir()
        executor.step(batch(step))
    executor.save(tmp_path, keep=2)
    executor.save(tmp_path, keep=3)  # once more, nothing was trained between
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", "step-00000004", "step-00000005", "step-00000005.1"]
    assert executor.load(tmp_path).name == "step-00000005.1"
    with pytest.raises(CheckpointError, match="keep=0"):
        executor.save(tmp_path, keep=0)


def test_an_old_checkpoint_that_cannot_go_does_not_undo_the_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    executor = trained()
    executor.load(root)
    executor.step(batch(2))
    monkeypatch.setattr("shutil.rmtree", _raiser(errno.EACCES))
    assert executor.save(root, keep=1).name == "step-00000003"
    assert "cannot remove" in caplog.text
    assert [found.path.name for found in complete(root)] == ["step-00000003"]


def test_a_read_error_in_the_middle_ends_the_executor(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = trained()
    monkeypatch.setattr(storage, "safe_open", _raiser(errno.EIO))
    with pytest.raises(CheckpointError) as caught:
        executor.load(root)
    assert caught.value.code == "half_loaded"
    with pytest.raises(Exception, match="cannot go on: a checkpoint was loaded in part"):
        executor.step(batch(1))
