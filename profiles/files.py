"""Profiles and clusters on disk: canonical JSON, written whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TypeVar

from planner.errors import OutputError
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document

__all__ = ["read_file", "write_file"]

_Document = TypeVar("_Document", bound=Contract)


def read_file(path: Path, kind: type[_Document]) -> _Document:
    """A checked document. Raises ``OSError``, ``JsonError`` or ``ContractError``."""
    return read_document(path.read_bytes(), kind)


def write_file(path: Path, document: Contract) -> None:
    """Write beside ``path``, then rename: readers see the old file or the whole new one. Raises ``OutputError``."""
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(document_bytes(document) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"cannot write {str(path)!r}: {error.strerror}", code="write_failed", pointer=str(path)
        ) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
