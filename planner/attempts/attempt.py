"""Run a search in solver children: deadlines, the best plan so far, and what happens when a child dies.

A child is asked to stop (a ``stop`` line), then interrupted (SIGINT), then killed. Solvers overrun their limits, so
with a limit T the line is sent at T + 1 s and the kill falls at 1.25 T + 5 s. The parent keeps the last incumbent: when
a child dies after one, that is the answer, with limit ``killed``. A child that dies without one is started again with
the same seed and one worker.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.attempts.child import ChildEnd, SolverChild
from planner.errors import DocumentError, SolverError
from planner.plan.answer import Answer, ChildEvent, Failure, Progress
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.problem.request import Request
from planner.units import NS_PER_SECOND

__all__ = ["AttemptSettings", "Watch", "run_search"]

logger = logging.getLogger(__name__)

_TICK_S = 0.05
_GRACE_S = 2.0  # for a child to leave after its last event
_MEMORY_WORDS = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory", "Memory allocation")


@dataclass(frozen=True)
class AttemptSettings:
    """How solver children are started."""

    module: str = "planner.search.child"
    memory_limit_bytes: int = 2 * 2**30
    most_tries: int = 2  # children of one search, while none of them found a plan


def _ignore(progress: Progress) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Watch:
    """What the caller sees and says while a search runs; set ``stop`` from any thread to end it early."""

    on_progress: Callable[[Progress], None] = _ignore
    stop: threading.Event = field(default_factory=threading.Event)


def run_search(request: Request, settings: AttemptSettings, *, watch: Watch) -> Answer:
    """The answer to ``request``, whose documents stand inline. Blocks until it is there.

    After ``watch.stop`` the answer is the best plan so far. Raises ``SolverError`` (solver_crash, out_of_memory,
    no_plan_in_time, invalid, internal) where no child found anything.
    """
    tried = request
    for attempt in range(1, settings.most_tries + 1):
        try:
            return _run_child(tried, settings, watch)
        except SolverError as error:
            if error.code != "solver_crash" or attempt == settings.most_tries or watch.stop.is_set():
                raise
            logger.warning("try %d of %d lost: %s", attempt, settings.most_tries, error.message)
        tried = request.model_copy(update={"mode": "reproducible"})
    raise AssertionError("unreachable: the last try returns or raises")


@dataclass
class _Seen:
    """What a child has said so far."""

    incumbent: Plan | None = None
    last: Answer | Failure | None = None
    killed: bool = False  # by us, for its time


class _Stops(NamedTuple):
    """When the child is told to end: seconds since its start."""

    line_s: float
    interrupt_s: float
    kill_s: float

    def hurried(self, now_s: float) -> "_Stops":
        """From now on, in a few seconds."""
        return _Stops(now_s, min(now_s + 1.5, self.interrupt_s), min(now_s + 4.0, self.kill_s))


def _run_child(request: Request, settings: AttemptSettings, watch: Watch) -> Answer:
    seen = _Seen()
    child = SolverChild(settings.module, memory_limit_bytes=settings.memory_limit_bytes)
    lost: SolverError | None = None
    try:
        child.send(request.model_dump_json().encode())
        _listen(child, seen, limit_s=request.time_limit_ns / NS_PER_SECOND, watch=watch)
    except SolverError as error:
        lost = error
    finally:
        leaving = child.ended or seen.last is not None
        end = child.close(grace_s=_GRACE_S if leaving and lost is None else 0.0)
    return _answer(seen, end, lost)


def _listen(child: SolverChild, seen: _Seen, *, limit_s: float, watch: Watch) -> None:
    """Take events until the last one, the end of the output, or the kill."""
    stops = _Stops(limit_s + 1.0, 1.25 * limit_s + 2.5, 1.25 * limit_s + 5.0)
    start_s, asked, hurried = time.monotonic(), 0, False
    while not child.ended and seen.last is None:
        for line in child.lines(within_s=_TICK_S):
            _take(_event(line), seen, watch)
        now_s = time.monotonic() - start_s
        if watch.stop.is_set() and not hurried:
            stops, hurried = stops.hurried(now_s), True
        actions = (lambda: child.send(b"stop"), child.interrupt, child.kill)
        while asked < len(stops) and now_s >= stops[asked]:
            actions[asked]()
            asked += 1
    seen.killed = asked == len(stops)


def _event(line: bytes) -> ChildEvent:
    try:
        return read_document(line, ChildEvent)
    except DocumentError as error:
        raise SolverError(f"the child wrote a line that is no event: {error.message}", code="solver_crash") from None


def _take(event: ChildEvent, seen: _Seen, watch: Watch) -> None:
    if event.progress is not None:
        watch.on_progress(event.progress)
    if event.incumbent is not None:
        seen.incumbent = event.incumbent
    seen.last = event.answer or event.failure or seen.last


def _answer(seen: _Seen, end: ChildEnd, lost: SolverError | None) -> Answer:
    if isinstance(seen.last, Answer):
        return seen.last
    if seen.incumbent is not None:
        return Answer(status="succeeded", limit="killed", plan=seen.incumbent)
    if isinstance(seen.last, Failure):
        raise SolverError(seen.last.message, code=seen.last.code)
    if seen.killed:
        raise SolverError("no plan was found before the search was ended", code="no_plan_in_time")
    if any(word in end.log for word in _MEMORY_WORDS):
        message = f"the solver child ran out of memory (exit status {end.status})"
        raise SolverError(message, code="out_of_memory")
    logger.warning("solver child ended with status %d, log: %s", end.status, end.log)
    raise lost or SolverError(f"the solver child ended with status {end.status}", code="solver_crash")
