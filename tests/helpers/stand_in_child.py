"""A solver child that obeys the protocol of ``planner.plan.answer`` and does what a test asks for.

The environment says what: ``STAND_IN`` = answer (default), slow:SECONDS, deaf:SECONDS (ignores stop and SIGINT), crash,
crash-once, crash-after-incumbent, memory, failure:CODE, infeasible, nonsense, silent-exit. ``STAND_IN_STARTS`` = a file
that gets one line with the process id for each start.
"""

import os
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import NoReturn

from planner.plan.answer import Answer, ChildEvent, Failure, Progress, Reason
from planner.problem.problem import Problem
from planner.problem.reading import read_document
from planner.problem.request import Request
from tests.helpers.service_documents import simple_plan

__all__ = ["main"]

_asked_to_stop = threading.Event()


def main() -> NoReturn:
    starts = os.environ.get("STAND_IN_STARTS")
    if starts:
        with Path(starts).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
    behaviour, _, argument = os.environ.get("STAND_IN", "answer").partition(":")
    signal.signal(signal.SIGINT, lambda *_: _asked_to_stop.set())
    request = read_document(sys.stdin.buffer.readline(), Request)
    threading.Thread(target=_watch_input, daemon=True).start()
    _BEHAVIOURS[behaviour](request, argument)
    _leave(0)


def _watch_input() -> None:
    for line in sys.stdin.buffer:
        if line.strip() == b"stop":
            _asked_to_stop.set()
    os._exit(3)  # the parent is gone


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    os._exit(status)


def _say(**members: object) -> None:
    event = ChildEvent(schema="child/1", **members)  # type: ignore[arg-type]
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()


def _problem(request: Request) -> Problem:
    return Problem(request.profiles, request.cluster, request.workload)  # type: ignore[arg-type]


def _answer(request: Request, argument: str = "") -> None:
    limit = argument or "optimal"
    _say(answer=Answer(status="succeeded", limit=limit, plan=simple_plan(_problem(request))))  # type: ignore[arg-type]


def _slow(request: Request, argument: str) -> None:
    """Works for so many seconds, says how far it is, twice however slow the machine, and stops when asked to."""
    until = time.monotonic() + float(argument)
    for said in count(1):
        _say(progress=Progress(phase="partition", incumbent_ns=412, bound_ns=398, candidates_done=1))
        if said > 1 and (time.monotonic() >= until or _asked_to_stop.is_set()):
            break
        time.sleep(0.1)
    _answer(request, "wall" if _asked_to_stop.is_set() else "")


def _deaf(request: Request, argument: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(float(argument))
    _answer(request)


def _crash(request: Request, argument: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _crash_once(request: Request, argument: str) -> None:
    if len(Path(os.environ["STAND_IN_STARTS"]).read_text(encoding="utf-8").split()) == 1:
        _crash(request, argument)
    _answer(request)


def _crash_after_incumbent(request: Request, argument: str) -> None:
    _say(incumbent=simple_plan(_problem(request)))
    time.sleep(0.2)
    _crash(request, argument)


def _memory(request: Request, argument: str) -> None:
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGABRT)


def _failure(request: Request, argument: str) -> None:
    _say(failure=Failure(code=argument, message="as the test asked"))  # type: ignore[arg-type]


def _infeasible(request: Request, argument: str) -> None:
    reason = Reason(code="memory", message="layer 0 needs more", layer=0, need_bytes=2, have_bytes=1)
    _say(answer=Answer(status="infeasible", limit="optimal", reasons=(reason,)))


def _nonsense(request: Request, argument: str) -> None:
    sys.stdout.write("this is no event\n")
    sys.stdout.flush()
    time.sleep(60)


def _silent_exit(request: Request, argument: str) -> None:
    _leave(5)


_BEHAVIOURS = {
    "answer": _answer,
    "slow": _slow,
    "deaf": _deaf,
    "crash": _crash,
    "crash-once": _crash_once,
    "crash-after-incumbent": _crash_after_incumbent,
    "memory": _memory,
    "failure": _failure,
    "infeasible": _infeasible,
    "nonsense": _nonsense,
    "silent-exit": _silent_exit,
}

if __name__ == "__main__":
    main()
