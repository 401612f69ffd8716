"""What a plan must obey on its own: the rules that it checks when it is made, its order of messages, and no deadlock.

No solver and no schedule family is trusted: the streams are lowered and the lists replayed in three message models.
"""

from collections import Counter

from planner.check.queues import MESSAGE_MODELS
from planner.check.replay import replay
from planner.check.verdict import Facts, Verdict
from planner.errors import DocumentError, Fault, PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.pieces import staleness
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.lower import Compute, LoweredPlan, Receive, Send, Sum, lower
from planner.units import counted

__all__ = ["check_document", "check_lowered", "check_plan", "require_legal"]


def check_document(data: bytes) -> Verdict:
    """Bytes that should be a plan."""
    try:
        plan = read_document(data, Plan)
    except DocumentError as error:
        return Verdict(error.faults[0])
    return check_plan(plan)


def check_plan(plan: Plan) -> Verdict:
    """A plan that has passed its own rules: matching and order of messages, deadlock in three message models."""
    try:
        lowered = lower(plan)
    except PlanError as error:
        return Verdict(error.faults[0])
    facts = _facts(plan, lowered)
    return Verdict(check_lowered(plan, lowered), facts, warnings=tuple(_stale(facts)))


def require_legal(plan: Plan) -> None:
    """Raises ``PlanError`` with the first fault."""
    found = check_plan(plan).fault
    if found is not None:
        raise PlanError(found.message, code=found.code, pointer=found.pointer)


def check_lowered(plan: Plan, lowered: LoweredPlan) -> Fault | None:
    """The first fault of the lists of all ranks."""
    found = _unmatched(lowered)
    for model in MESSAGE_MODELS:
        found = found or replay(plan, lowered, model)
    return found


def _unmatched(lowered: LoweredPlan) -> Fault | None:
    """Each send has one receive, and no message stands twice: tags are unique for an ordered pair of ranks."""
    sends, receives = Counter[object](), Counter[object]()
    for entries in lowered.lists:
        sends.update(entry.message for entry in entries if isinstance(entry, Send))
        receives.update(entry.message for entry in entries if isinstance(entry, Receive))
    odd = [message for message, count in (sends | receives).items() if sends[message] != 1 or receives[message] != 1]
    if not odd:
        return None
    found = odd[0]
    return Fault("unmatched", "", f"found {sends[found]} sends and {receives[found]} receives of {found}, expected 1")


def _stale(facts: Facts) -> list[Fault]:
    most = max(facts.staleness)
    if most == 0:
        return []
    message = (
        f"stage {facts.staleness.index(most)} works with weights up to {counted(most, 'update')} old: results change"
    )
    return [Fault("staleness", f"/stages/{facts.staleness.index(most)}", message)]


def _facts(plan: Plan, lowered: LoweredPlan) -> Facts:
    return Facts(
        digest=plan.digest,
        num_ranks=plan.num_ranks,
        num_groups=len(plan.groups),
        num_stages=len(plan.stages),
        num_routes=len(plan.routes),
        num_micro_batches=len(plan.micro_batches),
        num_samples=sum(batch.samples for batch in plan.micro_batches),
        num_instructions=sum(len(stream) for stream in plan.instructions),
        num_messages=lowered.num_messages,
        num_sums=len({entry for entries in lowered.lists for entry in entries if isinstance(entry, Sum)}),
        num_updates=Dependencies(plan).num_updates,
        most_posted=max(_most_posted(lowered, rank) for rank in range(plan.num_ranks)),
        staleness=staleness(plan),
    )


def _most_posted(lowered: LoweredPlan, rank: int) -> int:
    """Receives that a rank has posted and not yet read, at most."""
    unread: Counter[Instruction] = Counter()
    waiting, most = 0, 0
    for entry in lowered.lists[rank]:
        if isinstance(entry, Receive):
            unread[lowered.readers[entry.message.tag]] += 1
            waiting += 1
            most = max(most, waiting)
        elif isinstance(entry, Compute):
            waiting -= unread.pop(entry.instruction, 0)
    return most
