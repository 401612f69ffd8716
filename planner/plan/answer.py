"""What a search says while it runs and when it is done: the lines that a solver child writes, ``child/1``.

A child reads one line, a request with its documents inline, then ``stop`` lines; the end of its input means that its
parent is gone. It writes one event a line. The last event is an answer or an error.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.plan.plan import Plan
from planner.problem.contract import Bytes, Contract, Index, Many, Name, Nanoseconds, fault

__all__ = ["Answer", "ChildEvent", "Failure", "Limit", "Progress", "Reason", "Relaxation"]

Limit = Literal["optimal", "deterministic", "wall", "killed"]
_Message = Annotated[str, Field(max_length=1024)]


class Reason(Contract):
    """One member of the smallest set of demands that cannot be met together."""

    code: Name  # memory, devices, divisibility, constraint ...
    message: _Message
    layer: Index | None = None
    device_kind: Name | None = None
    need_bytes: Bytes | None = None
    have_bytes: Bytes | None = None


class Relaxation(Contract):
    """One change of the problem or of the constraints that was tried and gives a plan."""

    code: Literal["constraint", "memory", "nodes"]
    message: _Message
    pointer: Annotated[str, Field(max_length=256)]  # what changes, in the request
    device_kind: Name | None = None
    more_bytes: Bytes | None = None  # on every device


class Progress(Contract):
    """How far a search is; at most 4 a second."""

    phase: Name
    incumbent_ns: Nanoseconds | None = None  # predicted step of the best plan so far
    bound_ns: Nanoseconds | None = None
    candidates_done: Index = 0
    candidates_total: Index = 0


class Answer(Contract):
    """The result of a search that ended by itself; nothing fits is a result, not an error."""

    status: Literal["succeeded", "infeasible"]
    limit: Limit  # what ended the search; only optimal and deterministic may be called reproducible
    plan: Plan | None = None
    reasons: Many[Reason] = ()
    relaxations: Many[Relaxation] = ()  # of an infeasible problem; the first is the one to try first
    warnings: Many[Reason] = ()

    @model_validator(mode="after")
    def _whole(self) -> "Answer":
        if (self.status == "succeeded") != (self.plan is not None):
            raise fault("answer", f"status {self.status} {'without a' if self.plan is None else 'with a'} plan")
        if (self.status == "infeasible") != bool(self.reasons):
            raise fault("answer", f"status {self.status} with {len(self.reasons)} reasons")
        return self


class Failure(Contract):
    """Why a search has no answer."""

    code: Literal["solver_crash", "out_of_memory", "no_plan_in_time", "invalid", "range", "internal"]
    message: _Message


class ChildEvent(Contract):
    """One line of a solver child; exactly one of the members is set."""

    schema_version: Literal["child/1"] = Field(alias="schema")
    progress: Progress | None = None
    incumbent: Plan | None = None  # the best plan so far, kept by the parent whatever happens to the child
    answer: Answer | None = None
    failure: Failure | None = None

    @model_validator(mode="after")
    def _one_member(self) -> "ChildEvent":
        members = {
            "progress": self.progress,
            "incumbent": self.incumbent,
            "answer": self.answer,
            "failure": self.failure,
        }
        stated = [name for name, member in members.items() if member is not None]
        if len(stated) != 1:
            raise fault("event", f"found {stated}, expected exactly one of {list(members)}")
        return self
