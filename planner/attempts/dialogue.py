"""One conversation with a solver child: a line in, events out, deadlines, and how it ended.

A child is asked to stop (a ``stop`` line), then interrupted (SIGINT), then killed. Solvers overrun their limits, so
with a limit T the line is sent at T + 1 s and the kill falls at 1.25 T + 5 s.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from planner.attempts.child import ChildEnd, SolverChild
from planner.errors import DocumentError, SolverError
from planner.problem.contract import Contract
from planner.problem.reading import read_document

__all__ = ["Ended", "Limits", "converse", "loss", "read_event"]

logger = logging.getLogger(__name__)

_TICK_S = 0.05
_GRACE_S = 2.0  # for a child to leave after its last event
_MEMORY_WORDS = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory", "Memory allocation")
_Event = TypeVar("_Event", bound=Contract)


class Limits(NamedTuple):
    """Of one child."""

    memory_limit_bytes: int
    time_limit_s: float


class Ended(NamedTuple):
    """``killed``: by us, for its time. ``lost``: what it said that is no event."""

    end: ChildEnd
    killed: bool
    lost: SolverError | None


class _Stops(NamedTuple):
    """When the child is told to end: seconds since its start."""

    line_s: float
    interrupt_s: float
    kill_s: float

    def hurried(self, now_s: float) -> "_Stops":
        """From now on, in a few seconds."""
        return _Stops(now_s, min(now_s + 1.5, self.interrupt_s), min(now_s + 4.0, self.kill_s))


def converse(
    module: str, request: bytes, limits: Limits, *, take: Callable[[bytes], bool], stop: threading.Event
) -> Ended:
    """Start a child, hand it the request, and take its lines until ``take`` says that one was the last."""
    child = SolverChild(module, memory_limit_bytes=limits.memory_limit_bytes)
    lost: SolverError | None = None
    done = killed = False
    try:
        child.send(request)
        done, killed = _listen(child, limits.time_limit_s, take, stop)
    except SolverError as error:
        lost = error
    finally:
        leaving = child.ended or done
        end = child.close(grace_s=_GRACE_S if leaving and lost is None else 0.0)
    return Ended(end, killed, lost)


def _listen(
    child: SolverChild, limit_s: float, take: Callable[[bytes], bool], stop: threading.Event
) -> tuple[bool, bool]:
    """Take events until the last one, the end of the output, or the kill; whether the last came, whether killed."""
    stops = _Stops(limit_s + 1.0, 1.25 * limit_s + 2.5, 1.25 * limit_s + 5.0)
    start_s, asked, hurried, done = time.monotonic(), 0, False, False
    while not child.ended and not done:
        for line in child.lines(within_s=_TICK_S):
            done = take(line)
        now_s = time.monotonic() - start_s
        if stop.is_set() and not hurried:
            stops, hurried = stops.hurried(now_s), True
        actions = (lambda: child.send(b"stop"), child.interrupt, child.kill)
        while asked < len(stops) and now_s >= stops[asked]:
            actions[asked]()
            asked += 1
    return done, asked == len(stops)


def read_event(line: bytes, kind: type[_Event]) -> _Event:
    """Raises ``SolverError`` (solver_crash) for a line that is none."""
    try:
        return read_document(line, kind)
    except DocumentError as error:
        raise SolverError(f"the child wrote a line that is no event: {error.message}", code="solver_crash") from None


def loss(ended: Ended) -> SolverError:
    """Why a child that found nothing has ended."""
    if ended.killed:
        return SolverError("no plan was found before the search was ended", code="no_plan_in_time")
    status = ended.end.status
    if any(word in ended.end.log for word in _MEMORY_WORDS):
        return SolverError(f"the solver child ran out of memory (exit status {status})", code="out_of_memory")
    logger.warning("solver child ended with status %d, log: %s", status, ended.end.log)
    return ended.lost or SolverError(f"the solver child ended with status {status}", code="solver_crash")
