"""The machine that measures: memory that one rank may use, and the lock that keeps profilers apart."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from planner.errors import DeviceError

__all__ = ["cpu_memory_bytes", "device_lock", "usable_cpu_bytes"]

_RESERVE_SHARE = 0.1  # of the machine's memory, for the system and other programs


def cpu_memory_bytes() -> int:
    """Memory of the machine, or of the control group that we are confined to where that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def usable_cpu_bytes(num_ranks: int, held_bytes: int) -> int:
    """What one of ``num_ranks`` processes may use for training beside the ``held_bytes`` that it holds when started."""
    share = int(cpu_memory_bytes() * (1 - _RESERVE_SHARE)) // num_ranks
    if share <= held_bytes:
        raise DeviceError(
            f"{num_ranks} ranks have {share} bytes each, the runtime alone holds {held_bytes}",
            code="no_memory",
        )
    return share - held_bytes


@contextlib.contextmanager
def device_lock(folder: Path | None = None) -> Iterator[None]:
    """Held while this machine's devices are measured. Raises ``DeviceError`` while another profiler holds it.

    The kernel frees the lock when its holder ends, however it ends.
    """
    path = (folder or Path(tempfile.gettempdir())) / "parallel-planner-profiler.lock"
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise DeviceError(f"cannot open the lock {path}: {error.strerror}", code="lock_failed") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another profiler measures on this machine (lock {path}), expected none: both would be wrong"
            raise DeviceError(message, code="device_busy") from None
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """For reading, which is enough to lock; a file of another user may be opened but not created."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
