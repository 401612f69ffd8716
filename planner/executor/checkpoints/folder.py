"""The folder of a run's checkpoints: complete ones are found, drafts never are.

A checkpoint is written as a draft beside the complete ones and renamed at the end; its manifest is the last file of
the draft. Whatever a kill leaves behind is a draft, and the next save removes it. Only one job at a time saves into a
folder (a lock that dies with its process), and only behind the checkpoint that it wrote or continued from.
"""

import errno
import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from planner.errors import CheckpointError
from planner.executor.checkpoints.manifest import Manifest, read_manifest
from planner.executor.saving import sync_folder
from planner.problem.contract import Digest

__all__ = [
    "MANIFEST",
    "NO_CHECKPOINT",
    "Complete",
    "complete",
    "drafted",
    "newest",
    "open_manifest",
    "publish",
    "require_own",
    "see",
]

MANIFEST = "manifest.json"
NO_CHECKPOINT = "no_checkpoint"  # code of the error where a folder has none
_MOST_MANIFEST_BYTES = 2**30
_NAME = re.compile(r"step-([0-9]{8,16})(?:\.([0-9]{1,9}))?")
_DRAFT = ".draft-"
_LOCK = ".lock"
_SEEN_WITHIN_SECONDS = 10.0  # a network file system shows another machine's folder late
_LOOK_AGAIN_SECONDS = 0.05

_log = logging.getLogger(__name__)


class Complete(NamedTuple):
    """A complete checkpoint; ``again`` counts those of one step, the highest is the newest."""

    steps: int
    again: int
    path: Path


def complete(root: Path) -> list[Complete]:
    """The complete checkpoints in ``root``, oldest first; folders without a manifest and links do not count."""
    found = []
    with os.scandir(root) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            path = root / entry.name
            if name and entry.is_dir(follow_symlinks=False) and (path / MANIFEST).is_file():
                found.append(Complete(int(name[1]), int(name[2] or 0), path))
    return sorted(found)


def newest(root: Path) -> Path:
    """``root`` itself where it is a checkpoint, else the newest complete one in it. Raises ``CheckpointError``."""
    if (root / MANIFEST).is_file():
        return root
    try:
        found = complete(root)
    except FileNotFoundError:
        found = []
    if not found:
        message = f"no complete checkpoint in {root}"
        raise CheckpointError(message, code=NO_CHECKPOINT, pointer=str(root))
    return found[-1].path


def open_manifest(path: Path) -> Manifest:
    """Of the checkpoint ``path``. Raises ``CheckpointError`` or ``OSError``."""
    file = path / MANIFEST
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        size = os.fstat(descriptor).st_size
        if size > _MOST_MANIFEST_BYTES:
            raise CheckpointError(f"{file} has {size} bytes", code="checkpoint_damaged", pointer=str(file))
        return read_manifest(stream.read(), str(file))


def see(path: Path) -> None:
    """Wait until this machine sees the folder that another rank made. Raises ``CheckpointError``."""
    until = time.monotonic() + _SEEN_WITHIN_SECONDS
    while not path.is_dir():
        if time.monotonic() > until:
            raise CheckpointError(
                f"{path} was made by rank 0 and is not here: all ranks need the same folder",
                code="not_shared",
                pointer=str(path),
            )
        time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def drafted(root: Path, *, known: frozenset[Digest]) -> Iterator[Path]:
    """An empty draft in ``root``, which is made; gone at the end unless it was published. ``root`` is locked meanwhile.

    ``known``: the checkpoints that this run wrote or continued from; the newest one must be among them.
    """
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
        require_own(root, known)
        for left in root.glob(f"{_DRAFT}*"):
            _remove(left)
        draft = root / f"{_DRAFT}{secrets.token_hex(6)}"
        draft.mkdir()
        try:
            yield draft
        finally:
            if draft.exists():  # not published
                _remove(draft)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process that holds it."""
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(root / _LOCK))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another job saves into {root} at this moment: give each job a folder of its own"
            raise CheckpointError(message, code="checkpoint_busy", pointer=str(root)) from None
        yield
    finally:
        os.close(descriptor)


def require_own(root: Path, known: frozenset[Digest]) -> None:
    """Raises ``CheckpointError`` where the newest checkpoint in ``root`` is of another run."""
    found = complete(root) if root.exists() else []
    if not found:
        return
    path = found[-1].path
    if open_manifest(path).digest not in known:
        raise CheckpointError(
            f"found {path}, which this run neither wrote nor continued from: "
            "load it (--resume), or save into another folder",
            code="checkpoint_of_another_run",
            pointer=str(path),
        )


def publish(draft: Path, manifest: bytes, *, steps: int, keep: int | None) -> Path:
    """The complete checkpoint that ``draft`` becomes; of all complete ones the newest ``keep`` stay."""
    with (draft / MANIFEST).open("xb") as file:
        file.write(manifest)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(draft)
    root = draft.parent
    before = complete(root)
    again = max((found.again + 1 for found in before if found.steps == steps), default=0)
    path = root / (f"step-{steps:08d}" + (f".{again}" if again else ""))
    os.rename(draft, path)
    sync_folder(root)
    if keep is not None:
        _drop(root, before[: max(0, len(before) + 1 - keep)])
    return path


def _drop(root: Path, old: list[Complete]) -> None:
    """First no longer a checkpoint, then gone. One that cannot go stays: the new one is complete all the same."""
    for found in old:
        left = root / f"{_DRAFT}{found.path.name}-{secrets.token_hex(4)}"
        try:
            os.rename(found.path, left)
        except OSError as error:
            _log.warning("cannot remove the old checkpoint %s: %s", found.path, error)
            continue
        _remove(left)


def _remove(left: Path) -> None:
    """What is no checkpoint any more; a rank of a dying job may still write into it, then the next save removes it."""
    try:
        shutil.rmtree(left)
    except OSError as error:
        _log.warning("cannot remove %s: %s", left, error)
