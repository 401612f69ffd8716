"""The solver child of graph partition: ``python -P -m planner.search.graphs.child --memory-limit-bytes N``.

The protocol is that of ``planner.search.child`` with other documents: a ``graph-request/1`` in, ``partition-child/1``
events out. The effort ends a search, or before it the time limit or a stop (``wall``). ``fast``: several threads.
"""

import threading
import time
from collections.abc import Callable, Iterator

from planner.errors import InfeasibleError
from planner.plan.answer import Failure, Reason
from planner.plan.partition import Partition, PartitionEvent, PartitionPart
from planner.problem.graph import GraphRequest
from planner.problem.reading import read_document
from planner.search.child import Output, answered, serve
from planner.units import NS_PER_SECOND

__all__ = ["main"]

_FAST_WORKERS = 8
_LONGEST_MESSAGE = 1024


def main() -> None:
    """Serve one request and leave."""
    serve("planner.search.graphs.child", _last_event)


def _last_event(line: bytes, out: Output, stop: threading.Event) -> PartitionEvent:
    found = answered(lambda: _last(line, out, stop))
    if isinstance(found, Failure):
        return PartitionEvent(schema_version="partition-child/1", failure=found)
    return PartitionEvent(schema_version="partition-child/1", partition=found)


def _last(line: bytes, out: Output, stop: threading.Event) -> Partition:
    request = read_document(line, GraphRequest)
    until_s = time.monotonic() + request.time_limit_ns / NS_PER_SECOND
    try:
        for partition in _partitions(request, lambda: stop.is_set() or time.monotonic() > until_s):
            if partition.limit is not None:
                return partition
            out.say(PartitionEvent(schema_version="partition-child/1", partition=partition))
    except InfeasibleError as error:
        reasons = tuple(Reason(code=one.code, message=one.message[:_LONGEST_MESSAGE]) for one in error.reasons)
        return Partition(schema_version="partition/1", limit="optimal", reasons=reasons)
    raise AssertionError("the last answer has a limit")


def _partitions(request: GraphRequest, stop: Callable[[], bool]) -> Iterator[Partition]:
    from planner.search.graphs.anywhere import AnywhereEffort, anywhere_answers  # after the memory limit
    from planner.search.graphs.contiguous import contiguous_answers
    from planner.search.graphs.documents import problem_of

    problem = problem_of(request.graph)
    workers = 1 if request.mode == "reproducible" else _FAST_WORKERS
    effort = AnywhereEffort(workers=workers, seed=request.seed)
    if request.parts == "contiguous":
        answers = contiguous_answers(problem, stop=stop)
    else:
        answers = anywhere_answers(problem, effort=effort, stop=stop)
    for answer in answers:
        parts = () if answer.plan is None else answer.plan.parts
        yield Partition(
            schema_version="partition/1",
            parts=tuple(PartitionPart(**part._asdict()) for part in parts),
            value_ns=None if answer.plan is None else answer.plan.value_ns,
            bound_ns=answer.bound_ns,
            limit=answer.limit,
        )


if __name__ == "__main__":
    main()
