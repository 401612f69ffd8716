"""Parts of a layer graph from a solver child: memory limit, hard kill, and the best so far whatever happens to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from planner.attempts.attempt import AttemptSettings
from planner.attempts.dialogue import Limits, converse, loss, read_event
from planner.errors import SolverError
from planner.plan.answer import Failure
from planner.plan.partition import Partition, PartitionEvent
from planner.problem.graph import GraphRequest
from planner.units import NS_PER_SECOND

__all__ = ["PARTITION_CHILD", "PartitionWatch", "run_partition"]

PARTITION_CHILD = AttemptSettings(module="planner.search.graphs.child")


def _ignore(partition: Partition) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class PartitionWatch:
    """What the caller sees, and says by setting ``stop`` from any thread."""

    on_partition: Callable[[Partition], None] = _ignore
    stop: Event = field(default_factory=Event)


def run_partition(
    request: GraphRequest, settings: AttemptSettings = PARTITION_CHILD, *, watch: PartitionWatch
) -> Partition:
    """The answer; ``limit`` killed where the child was lost after it had found parts.

    Raises ``SolverError`` (solver_crash, out_of_memory, no_plan_in_time, invalid, internal) where it found none.
    """
    best: Partition | None = None
    failure: Failure | None = None

    def take(line: bytes) -> bool:
        nonlocal best, failure
        event = read_event(line, PartitionEvent)
        if event.partition is not None:
            best = event.partition
            watch.on_partition(best)
        failure = event.failure
        return event.is_last

    limits = Limits(settings.memory_limit_bytes, request.time_limit_ns / NS_PER_SECOND)
    ended = converse(settings.module, request.model_dump_json().encode(), limits, take=take, stop=watch.stop)
    if best is not None and (best.limit is not None or best.parts):
        return best if best.limit is not None else best.model_copy(update={"limit": "killed"})
    if failure is not None:
        raise SolverError(failure.message, code=failure.code)
    raise loss(ended)
