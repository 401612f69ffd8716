"""The documents that the service itself defines: answers, states of searches, pages, simulations."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from planner.explain.revalidate import SMALLEST_GAIN, STEPS_LEFT
from planner.plan.answer import Limit, Reason, Relaxation
from planner.plan.plan import Plan, Prediction
from planner.problem.cluster import Cluster
from planner.problem.contract import Bytes, Contract, Count, Digest, FiniteFloat, Index, Name, Nanoseconds
from planner.problem.profile import ModelProfile
from planner.problem.workload import Workload

__all__ = [
    "AnswerView",
    "DocumentPage",
    "DocumentView",
    "ErrorDocument",
    "ErrorItem",
    "GroupSummary",
    "RevalidationRequest",
    "SearchError",
    "SearchPage",
    "SearchView",
    "Simulation",
    "SimulationRequest",
    "StoredAnswer",
    "UploadView",
    "Validated",
]


def _tag(value: object) -> str:
    return "<digest>" if isinstance(value, str) else "<document>"


_AsDigest = Annotated[Digest, Tag("<digest>")]
_PlanOrDigest = Annotated[_AsDigest | Annotated[Plan, Tag("<document>")], Discriminator(_tag)]
_ProfileOrDigest = Annotated[_AsDigest | Annotated[ModelProfile, Tag("<document>")], Discriminator(_tag)]
_ClusterOrDigest = Annotated[_AsDigest | Annotated[Cluster, Tag("<document>")], Discriminator(_tag)]


class StoredAnswer(Contract):
    """What a search found, as it is kept: the plan by its digest."""

    schema_version: Literal["answer/1"] = Field(alias="schema")
    status: Literal["succeeded", "infeasible"]
    limit: Limit
    plan: Digest | None
    reasons: tuple[Reason, ...]
    relaxations: tuple[Relaxation, ...] = ()
    warnings: tuple[Reason, ...]


class AnswerView(Contract):
    """The answer to a plan request: nothing fits is an answer too, with its reasons."""

    status: Literal["succeeded", "infeasible"]
    limit: Limit
    plan: str | None  # link
    plan_document: Plan | None
    reasons: tuple[Reason, ...]
    relaxations: tuple[Relaxation, ...] = ()
    warnings: tuple[Reason, ...]


class SearchError(Contract):
    """Why a search has no answer."""

    code: str
    message: str


class SearchView(Contract):
    """A search and how far it is; ``status`` and what follows are set when it is done."""

    id: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    attempt: Index
    request_digest: Digest
    created_ns: int
    updated_ns: int
    phase: Name | None = None
    incumbent_ns: Nanoseconds | None = None
    bound_ns: Nanoseconds | None = None
    gap: FiniteFloat | None = None
    candidates_done: Index | None = None
    candidates_total: Index | None = None
    status: Literal["succeeded", "infeasible"] | None = None
    limit: Limit | None = None
    plan: str | None = None  # link
    reasons: tuple[Reason, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()
    warnings: tuple[Reason, ...] = ()
    error: SearchError | None = None


class Validated(Contract):
    """The request is legal; no search was started."""

    valid: Literal[True]
    request_digest: Digest
    problem: Digest
    warnings: tuple[Reason, ...]


class UploadView(Contract):
    """An uploaded document and its id."""

    id: Digest
    url: str
    warnings: tuple[Reason, ...]


class DocumentView(Contract):
    """One document in a list."""

    id: Digest
    url: str
    created_ns: int
    size_bytes: Bytes


class DocumentPage(Contract):
    """New to old; ``next_page_token`` is empty on the last page, ``damaged`` names rows that cannot be shown."""

    items: tuple[DocumentView, ...]
    next_page_token: str
    damaged: tuple[str, ...] = ()


class SearchPage(Contract):
    """New to old; ``next_page_token`` is empty on the last page, ``damaged`` names rows that cannot be shown."""

    items: tuple[SearchView, ...]
    next_page_token: str
    damaged: tuple[str, ...] = ()


class SimulationRequest(Contract):
    """Predict the step of a plan on these profiles, cluster and workload, without a search."""

    schema_version: Literal["simulate/1"] = Field(alias="schema")
    plan: _PlanOrDigest
    profiles: Annotated[tuple[_ProfileOrDigest, ...], Field(min_length=1, max_length=64)]
    cluster: _ClusterOrDigest
    workload: Workload


class GroupSummary(Contract):
    """What one group does in the step."""

    group: Index
    num_instructions: Count
    busy_ns: Nanoseconds
    first_start_ns: Nanoseconds
    last_end_ns: Nanoseconds
    peak_bytes: Bytes | None
    memory_limit_bytes: Bytes
    fits: bool


class Simulation(Contract):
    """The predicted step of a plan."""

    plan: Digest
    problem: Digest
    prediction: Prediction | None  # as the plan states it
    step_ns: Nanoseconds
    bubble: FiniteFloat
    costs: str  # worst provenance of the parts
    groups: tuple[GroupSummary, ...]
    warnings: tuple[Reason, ...]


class RevalidationRequest(Contract):
    """New facts for a stored plan; what is left out is as it was when the plan was found."""

    schema_version: Literal["revalidate/1"] = Field(alias="schema")
    profiles: Annotated[tuple[_ProfileOrDigest, ...], Field(min_length=1, max_length=64)] | None = None
    cluster: _ClusterOrDigest | None = None
    workload: Workload | None = None
    plans: Annotated[tuple[Digest, ...], Field(max_length=16)] = ()  # stored plans to compare with
    smallest_gain: Annotated[FiniteFloat, Field(ge=0, le=1)] = SMALLEST_GAIN
    steps_left: Index = STEPS_LEFT


class ErrorItem(Contract):
    """One thing that is wrong."""

    code: str
    pointer: str
    message: str


class ErrorDocument(Contract):
    """RFC 9457: what is wrong, for machines and people; at most 20 of ``error_count`` errors are listed."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: Annotated[tuple[ErrorItem, ...], Field(max_length=20)]
    error_count: Count
