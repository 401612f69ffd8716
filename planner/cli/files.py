"""Input files -> checked documents. Reads are capped in size and never wait for a pipe or a device."""

import os
import re
import stat
import sys
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from planner.cli.exit_codes import InputFileError, RefusedFileError
from planner.errors import ContractError, DocumentError, Fault
from planner.plan.plan import Plan
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.faults import contract_faults
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.workload import Workload
from planner.simulate.run_record import RunRecord

__all__ = [
    "BROKEN",
    "LARGEST_FILE_BYTES",
    "make_contract",
    "read_bytes",
    "read_cluster",
    "read_contract",
    "read_plan",
    "read_profile",
    "read_run",
    "read_workload",
    "require_digest",
]

LARGEST_FILE_BYTES = 64 * 2**20
_DIGEST_NAME = re.compile(r"([0-9a-f]{64})(?:\..*)?")
# What says that the file is not the one that was written, rather than that somebody wrote a wrong value.
BROKEN = frozenset({"schema", "json_invalid", "json_depth", "encoding", "digest"})

_Document = TypeVar("_Document", bound=Contract)


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file, or of stdin for ``-``. Raises ``InputFileError``."""
    if str(path) == "-":
        return _capped(sys.stdin.buffer.read(LARGEST_FILE_BYTES + 1), path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist", code="file_missing") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file name"
        raise InputFileError(f"{path} cannot be opened: {reason}", code="file_unreadable") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputFileError(f"{path} is no regular file", code="not_a_file")
        with open(descriptor, "rb", closefd=False) as file:
            return _capped(file.read(LARGEST_FILE_BYTES + 1), path)
    finally:
        os.close(descriptor)


def _capped(data: bytes, path: Path) -> bytes:
    if len(data) > LARGEST_FILE_BYTES:
        raise InputFileError(f"{path} is larger than {LARGEST_FILE_BYTES} bytes", code="file_too_large")
    return data


def read_contract(path: Path, kind: type[_Document]) -> _Document:
    """A checked document of ``kind``; pointers of its faults are ``FILE#POINTER``."""
    try:
        return read_document(read_bytes(path), kind)
    except DocumentError as error:
        raise DocumentError(_placed(error, path)) from None


def make_contract(kind: type[_Document], **fields: object) -> _Document:
    """A document from what the user typed. Raises ``ContractError`` where pydantic would raise its own."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise ContractError(contract_faults(error)) from None


def read_cluster(path: Path) -> Cluster:
    return read_contract(path, Cluster)


def read_workload(path: Path) -> Workload:
    return read_contract(path, Workload)


def read_profile(path: Path) -> ModelProfile:
    """A profile; a file that is broken, of another schema or wrongly named is refused as a whole."""
    try:
        profile = read_contract(path, ModelProfile)
    except DocumentError as error:
        if error.code in BROKEN:
            raise RefusedFileError(error.faults) from None
        raise
    _check_name(path, profile.digest)
    return profile


def read_plan(path: Path) -> Plan:
    """A plan; whatever is wrong with its file, the file is refused."""
    plan = _read_or_refuse(path, Plan)
    _check_name(path, plan.digest)
    return plan


def read_run(path: Path) -> RunRecord:
    """What a run of a plan wrote; refused like a plan."""
    return _read_or_refuse(path, RunRecord)


def _read_or_refuse(path: Path, kind: type[_Document]) -> _Document:
    try:
        return read_contract(path, kind)
    except DocumentError as error:
        raise RefusedFileError(error.faults) from None


def _check_name(path: Path, digest: str) -> None:
    """A file that is named by a digest, as the service names them, holds the document of that digest."""
    match = _DIGEST_NAME.fullmatch(path.name)
    if match and match.group(1) != digest:
        raise _other_digest(path, expected=match.group(1), found=digest)


def require_digest(path: Path, plan: Plan, expected: str) -> None:
    """Raises ``RefusedFileError`` where the plan in ``path`` is another one than the user named."""
    if plan.digest != expected:
        raise _other_digest(path, expected=expected, found=plan.digest)


def _other_digest(path: Path, *, expected: str, found: str) -> RefusedFileError:
    message = f"the content has the digest {found[:12]}..., expected {expected[:12]}..."
    return RefusedFileError((Fault("digest", str(path), message),))


def _placed(error: DocumentError, path: Path) -> tuple[Fault, ...]:
    return tuple(
        Fault(fault.code, f"{path}#{fault.pointer}" if fault.pointer else str(path), fault.message)
        for fault in error.faults
    )
