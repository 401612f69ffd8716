"""A request to stop, made by a signal: the ranks finish the step that runs, agree that it was the last, and leave.

``planner run`` takes SIGTERM so. A second SIGTERM ends the step at once, with the instruction's name on every rank.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planner.errors import ExecutorError

__all__ = ["ask_to_stop", "stop_asked", "stops_by_signal"]

_asked: list[int] = []  # signals that came


def ask_to_stop() -> None:
    """The step that runs, or the next one, shall be the last: on all ranks, whichever was asked."""
    _asked.append(signal.SIGTERM)


def stop_asked() -> bool:
    """Whether this rank was asked to stop."""
    return bool(_asked)


@contextmanager
def stops_by_signal() -> Iterator[None]:
    """Inside, SIGTERM asks to stop; the main thread alone may enter."""
    before = signal.signal(signal.SIGTERM, _on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _asked.clear()


def _on_signal(number: int, frame: FrameType | None) -> None:
    if stop_asked():
        raise ExecutorError("told to stop twice, so not at the end of the step", code="terminated")
    ask_to_stop()
