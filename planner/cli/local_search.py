"""A search on this machine, in a solver child, that Ctrl-C ends early without losing the best plan."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from planner.attempts.attempt import AttemptSettings, Watch, run_search
from planner.cli.live import LiveLine
from planner.cli.talk import say
from planner.errors import SolverError
from planner.plan.answer import Answer
from planner.problem.request import Request

__all__ = ["Found", "search_locally", "stop_on_interrupt"]


class Found(NamedTuple):
    """The answer, None where the search was interrupted before it had one."""

    answer: Answer | None
    interrupted: bool


def search_locally(request: Request, settings: AttemptSettings) -> Found:
    """Run ``request`` to its end. Raises ``SolverError`` where there is no plan and nobody interrupted."""
    line = LiveLine()
    watch = Watch(on_progress=line.show)
    with stop_on_interrupt(watch.stop):
        try:
            answer = run_search(request, settings, watch=watch)
        except SolverError:
            if not watch.stop.is_set():
                raise
            return Found(None, interrupted=True)
        finally:
            line.close()
    return Found(answer, interrupted=watch.stop.is_set())


@contextmanager
def stop_on_interrupt(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C asks the search for its best plan, the second ends this process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("interrupted: taking the best plan so far (Ctrl-C again to leave at once)")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
