"""Which services live: each holds a lock on a file of its own beside the store, and the kernel lets go when it dies.

A lock says at once that a killed service is gone; the lease of a claim says it too, only later, and also of a service
that is stopped but not dead.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

__all__ = ["Owner"]


class Owner:
    """This service as the owner of claims; ``close`` gives the name up."""

    def __init__(self, store: Path) -> None:
        self._folder = store.with_name(store.name + ".owners")
        self._folder.mkdir(exist_ok=True)
        self.name = ""
        for path in self._folder.iterdir():
            self.lives(path.name)  # sweeps up after the dead
        while not self.name:
            self._take_a_name()

    def _take_a_name(self) -> None:
        """Make a file and lock it; another service's sweep may take it away in between."""
        name = secrets.token_hex(16)
        self._file = os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if os.fstat(self._file).st_nlink:
            self.name = name
        else:
            os.close(self._file)

    def lives(self, name: str) -> bool:
        """Whether the service that called itself ``name`` still runs; its file is removed where it does not."""
        if name == self.name:
            return True
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        path.unlink(missing_ok=True)
        return False

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._folder / self.name).unlink()
        os.close(self._file)
