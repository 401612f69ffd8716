"""Run a search in solver children: the best plan so far, and what happens when a child dies.

Deadlines: ``planner.attempts.dialogue``. The parent keeps the last incumbent: when a child dies after one, that is the
answer, with limit ``killed``. A child that dies without one is started again with
the same seed and one worker.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.attempts.dialogue import Ended, Limits, converse, loss, read_event
from planner.errors import SolverError
from planner.plan.answer import Answer, ChildEvent, Failure, Progress
from planner.plan.plan import Plan
from planner.problem.request import Request
from planner.units import NS_PER_SECOND

__all__ = ["AttemptSettings", "Watch", "run_search"]

logger = logging.getLogger(__name__)


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
    no_plan_in_time, invalid, range, internal) where no child found anything.
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


def _run_child(request: Request, settings: AttemptSettings, watch: Watch) -> Answer:
    seen = _Seen()

    def take(line: bytes) -> bool:
        _take(read_event(line, ChildEvent), seen, watch)
        return seen.last is not None

    ended = converse(
        settings.module,
        request.model_dump_json().encode(),
        Limits(settings.memory_limit_bytes, request.time_limit_ns / NS_PER_SECOND),
        take=take,
        stop=watch.stop,
    )
    return _answer(seen, ended)


def _take(event: ChildEvent, seen: _Seen, watch: Watch) -> None:
    if event.progress is not None:
        watch.on_progress(event.progress)
    if event.incumbent is not None:
        seen.incumbent = event.incumbent
    seen.last = event.answer or event.failure or seen.last


def _answer(seen: _Seen, ended: Ended) -> Answer:
    if isinstance(seen.last, Answer):
        return seen.last
    if seen.incumbent is not None:
        return Answer(status="succeeded", limit="killed", plan=seen.incumbent)
    if isinstance(seen.last, Failure):
        raise SolverError(seen.last.message, code=seen.last.code)
    raise loss(ended)
