"""Where data goes: stdout, or a file that is written whole or not at all."""

import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, RenderableType

from planner.errors import OutputError
from planner.problem.canonical import document_bytes

if TYPE_CHECKING:
    from planner.problem.cluster import Cluster
    from planner.problem.profile import ModelProfile

__all__ = [
    "STDOUT",
    "Destination",
    "check_destination",
    "emit",
    "emit_document",
    "emit_json",
    "json_text",
    "require_different",
    "show_tables",
    "terminal_columns",
    "write_file",
]

_WIDTH_OFF_A_TERMINAL = 120
_NARROWEST = 60


class Destination(NamedTuple):
    """An output file; ``overwrite``: an existing one may be replaced. Path None or ``-``: stdout."""

    path: Path | None = None
    overwrite: bool = False

    @property
    def is_stdout(self) -> bool:
        return self.path is None or str(self.path) == "-"


STDOUT = Destination()


def emit(data: bytes, destination: Destination) -> None:
    """Data to stdout, or atomically to the file that the user named."""
    if destination.path is not None and not destination.is_stdout:
        write_file(destination.path, data, overwrite=destination.overwrite)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
    sys.stdout.buffer.flush()


def emit_json(value: object, destination: Destination = STDOUT) -> None:
    """A JSON value for a program to read."""
    emit(json_text(value).encode(), destination)


def emit_document(
    document: "ModelProfile | Cluster",
    destination: Destination,
    *,
    tables: Sequence[RenderableType],
    json_output: bool,
) -> None:
    """The document to the file or stdout; where it goes to a file, its digest or ``tables`` to stdout."""
    emit(document_bytes(document), destination)
    if destination.is_stdout:
        return
    if json_output:
        emit_json({"digest": document.digest, "file": str(destination.path)})
    else:
        show_tables(*tables)


def json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def terminal_columns() -> int:
    """How wide tables and drawings are: the terminal's width, a fixed one off a terminal."""
    if not sys.stdout.isatty():
        return _WIDTH_OFF_A_TERMINAL
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def show_tables(*tables: RenderableType) -> None:
    """Tables and text for a person, on stdout; no colour off a terminal."""
    console = Console(file=sys.stdout, width=terminal_columns(), markup=False, highlight=False, emoji=False)
    for table in tables:
        console.print(table)


def check_destination(destination: Destination, *, inputs: Sequence[Path | None] = ()) -> None:
    """Refuse early, before hours of work, what ``emit`` would refuse at the end. Raises ``OutputError``.

    ``inputs``: files that the command reads. None of them may be the output, whatever path leads there.
    """
    if destination.path is None or destination.is_stdout:
        return
    path = destination.path
    for source in inputs:
        if source is not None and _is_same_file(source, path):
            raise OutputError(f"{path} is the input {source}, expected another file", code="output_is_input")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        _check_folder(path)
        return
    except OSError as error:
        raise _failure(path, error) from None
    if stat.S_ISLNK(mode):
        raise OutputError(f"{path} is a symbolic link, expected a file or nothing", code="output_symlink")
    if not stat.S_ISREG(mode):
        raise OutputError(f"{path} is no regular file", code="output_not_a_file")
    if not destination.overwrite:
        raise OutputError(f"{path} exists; --force replaces it", code="output_exists")
    _check_folder(path)


def require_different(one: Destination, other: Destination) -> None:
    """Raises ``OutputError`` where two outputs of a command would be one file."""
    if one.path is None or other.path is None:
        return
    if (one.is_stdout and other.is_stdout) or os.path.realpath(one.path) == os.path.realpath(other.path):
        raise OutputError(f"{one.path} is given for two outputs, expected two files", code="output_twice")


def _is_same_file(one: Path, other: Path) -> bool:
    """Through links, ``./`` and the like; files that cannot be looked at are reported by those who open them."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def _check_folder(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"the folder {folder} does not exist", code="output_failed")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"the folder {folder} is not writable", code="output_failed")


def write_file(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Temporary file, fsync, rename, fsync of the folder: the old file or the new one, never a part."""
    check_destination(Destination(path, overwrite))
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.tmp")
    try:
        try:
            _write_new(temporary, data)
            if overwrite:
                temporary.replace(path)
            else:
                os.link(temporary, path)  # refuses a file that appeared meanwhile
            _sync_folder(path.absolute().parent)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise OutputError(f"{path} exists; --force replaces it", code="output_exists") from None
    except OSError as error:
        raise _failure(path, error) from None


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failure(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written: {error.strerror}", code="output_failed")
