"""A solver child: one request in, events out; ``python -P -m planner.search.child --memory-limit-bytes N``.

Protocol: ``planner.plan.answer``. Standard input: one line with a request whose documents stand inline, then ``stop``
lines; its end means that the parent is gone, and this process ends at once. Standard output: one event a line.
SIGINT is a soft stop too. Memory is limited by the kernel, because the solver does not keep its own limit.
"""

import argparse
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from planner.errors import PlannerError, SolverError
from planner.plan.answer import Answer, ChildEvent, Failure, Progress
from planner.plan.plan import Plan
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.request import Request

__all__ = ["Output", "answered", "limit_memory", "main", "serve"]

logger = logging.getLogger(__name__)

_STOP_LINE = b"stop"
_NO_ROOM = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
_LONGEST_MESSAGE = 1024
_FAILURES = ("solver_crash", "out_of_memory", "no_plan_in_time", "invalid")


def main() -> None:
    """Serve one search and leave."""
    serve("planner.search.child", _last_event)


def serve(program: str, last_event: Callable[[bytes, "Output", threading.Event], Contract]) -> None:
    """Serve one request and leave; ``last_event`` takes it, says events meanwhile, and never raises."""
    parser = argparse.ArgumentParser(prog=program, description="One search, started by the planner.")
    parser.add_argument("--memory-limit-bytes", type=int, required=True)
    limit_memory(parser.parse_args().memory_limit_bytes)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would take address space, and nothing here uses them
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_watch, args=(sys.stdin.buffer, stop), daemon=True).start()
    out = Output(sys.stdout.buffer)
    out.say(last_event(line, out, stop))
    sys.stdout.buffer.flush()
    os._exit(0)  # nothing of a solver's own threads may hold this process


def limit_memory(num_bytes: int) -> None:
    """The kernel refuses memory beyond ``num_bytes`` of address space: the solver then raises ``MemoryError``."""
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))


def _watch(lines: BinaryIO, stop: threading.Event) -> None:
    """Take ``stop`` lines; at the end of the input leave at once, whatever runs."""
    with contextlib.suppress(OSError):
        for line in lines:
            if line.strip() == _STOP_LINE:
                stop.set()
    os._exit(0)


class Output:
    """Events, one a line; a parent that is gone ends this process."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def say(self, event: Contract) -> None:
        try:
            self._stream.write(event.model_dump_json(exclude_none=True).encode() + b"\n")
            self._stream.flush()
        except OSError:
            os._exit(0)

    def progress(self, progress: Progress) -> None:
        self.say(ChildEvent(schema_version="child/1", progress=progress))

    def incumbent(self, plan: Plan) -> None:
        self.say(ChildEvent(schema_version="child/1", incumbent=plan))


def _last_event(line: bytes, out: Output, stop: threading.Event) -> ChildEvent:
    """The answer, or why there is none."""
    answer = answered(lambda: _answer(line, out, stop))
    if isinstance(answer, Failure):
        return ChildEvent(schema_version="child/1", failure=answer)
    return ChildEvent(schema_version="child/1", answer=answer)


_Found = TypeVar("_Found")


def answered(work: Callable[[], _Found]) -> _Found | Failure:
    """What ``work`` returns, or why it does not; no exception leaves this process by another way."""
    try:
        return work()
    except MemoryError:
        return Failure(code="out_of_memory", message="the search ran out of the memory that it may use")
    except ImportError as error:  # a library that does not fit under the limit cannot be mapped
        logger.exception("the solver cannot be loaded")
        code = "out_of_memory" if any(words in str(error) for words in _NO_ROOM) else "internal"
        return Failure(code=code, message="the solver cannot be loaded")  # type: ignore[arg-type]
    except SolverError as error:
        code = error.code if error.code in _FAILURES else "internal"
        return Failure(code=code, message=error.message[:_LONGEST_MESSAGE])  # type: ignore[arg-type]
    except PlannerError as error:
        return Failure(code="range" if error.code == "range" else "invalid", message=error.message[:_LONGEST_MESSAGE])
    except Exception as error:  # the border of a process: told to the parent, logged in full
        logger.exception("the search failed")
        return Failure(code="internal", message=f"{type(error).__name__} in the search"[:_LONGEST_MESSAGE])


def _answer(line: bytes, out: Output, stop: threading.Event) -> Answer:
    from planner.search.search import Listener, search  # loads the solver: after the memory limit, inside the handler

    request = read_document(line, Request)
    problem = _problem(request)
    listener = Listener(on_progress=out.progress, on_incumbent=out.incumbent, stop=stop.is_set)
    return search(problem, request.options, listener)


def _problem(request: Request) -> Problem:
    profiles = tuple(profile for profile in request.profiles if isinstance(profile, ModelProfile))
    if len(profiles) < len(request.profiles) or not isinstance(request.cluster, Cluster):
        raise SolverError("a solver child takes documents inline only", code="invalid")
    return Problem(profiles, request.cluster, request.workload)


if __name__ == "__main__":
    main()
