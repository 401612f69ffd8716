"""What the service asks of its store, and the types that go in and out.

Documents are bytes under (kind, id), written once. Searches move ``queued -> running -> succeeded | failed |
cancelled``; who runs one holds a claim with a random token, and without that token nothing can be published.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from planner.plan.answer import Progress

__all__ = [
    "Accepted",
    "Claim",
    "Document",
    "DocumentKind",
    "DocumentList",
    "Entry",
    "Finished",
    "NewSearch",
    "Position",
    "QueueCounts",
    "Search",
    "SearchFailure",
    "SearchList",
    "SearchState",
    "Store",
]

DocumentKind = Literal["profile", "cluster", "plan", "request", "answer", "problem"]
SearchState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Document(NamedTuple):
    """Bytes that never change."""

    kind: DocumentKind
    id: str
    payload: bytes


class Position(NamedTuple):
    """A place in a list that runs from new to old."""

    created_ns: int
    id: str


class Entry(NamedTuple):
    """One line of a list of documents."""

    id: str
    created_ns: int
    size_bytes: int

    @property
    def position(self) -> Position:
        return Position(self.created_ns, self.id)


class SearchFailure(NamedTuple):
    """Why a search has no answer."""

    code: str
    message: str


@dataclass(frozen=True)
class Search:
    """One accepted request to find a plan."""

    id: str
    request_digest: str
    state: SearchState
    attempt: int
    progress: Progress | None
    answer_id: str | None
    failure: SearchFailure | None
    created_ns: int
    updated_ns: int

    @property
    def position(self) -> Position:
        return Position(self.created_ns, self.id)

    @property
    def done(self) -> bool:
        return self.state in ("succeeded", "failed", "cancelled")


class NewSearch(NamedTuple):
    """A search to accept, with the documents that it needs."""

    request_digest: str
    request_id: str
    documents: tuple[Document, ...]


class Accepted(NamedTuple):
    """The live search of a request, or the id of its stored answer; exactly one of them."""

    search: Search | None
    answer_id: str | None


class Claim(NamedTuple):
    """The right to run one attempt of a search."""

    search_id: str
    token: str
    attempt: int
    request_id: str


class Finished(NamedTuple):
    """What a successful attempt publishes. ``reusable``: an equal request gets this answer without a search."""

    answer: Document
    plan: Document | None
    reusable: bool


class QueueCounts(NamedTuple):
    """Searches that are not done, and those whose rows are damaged as far as is known."""

    waiting: int
    running: int
    damaged: int


class SearchList(NamedTuple):
    """A part of the list of searches; ``next_after``: where the next part begins, None at the end."""

    searches: tuple[Search, ...]
    damaged: tuple[str, ...]  # rows that hold what the service did not write
    next_after: Position | None


class DocumentList(NamedTuple):
    """A part of a list of documents; ``next_after``: where the next part begins, None at the end."""

    entries: tuple[Entry, ...]
    damaged: tuple[str, ...]
    next_after: Position | None


class Store(Protocol):
    """Raises ``StoreError``: integrity, store_busy, disk_full."""

    def put(self, document: Document) -> bool:
        """Keep a document; False where the id was there already: the bytes stored first stay."""

    def get(self, kind: DocumentKind, document_id: str) -> bytes | None:
        """The bytes that were put, checked against their hash."""

    def list_documents(self, kind: DocumentKind, *, after: Position | None, size: int) -> DocumentList:
        """At most ``size`` entries, new to old, that follow ``after``."""

    def accept(self, new: NewSearch, *, most_waiting: int) -> Accepted:
        """Find the stored answer or the live search of a request, else queue one; durable when it returns.

        Raises ``RequestError`` (queue_full).
        """

    def search(self, search_id: str) -> Search | None: ...

    def list_searches(self, *, after: Position | None, size: int) -> SearchList: ...

    def cancel(self, search_id: str) -> Search | None:
        """A search that is done stays as it is."""

    def claim(self) -> Claim | None:
        """The oldest waiting search, now running under a new token."""

    def beat(self, claim: Claim) -> bool:
        """Extend the lease; False where the claim is lost: cancelled or given to another."""

    def report(self, claim: Claim, progress: Progress) -> None: ...

    def publish(self, claim: Claim, finished: Finished) -> bool:
        """Store answer and plan and end the search; False, and nothing stored, where the claim is lost."""

    def fail(self, claim: Claim, failure: SearchFailure) -> bool: ...

    def release(self, claim: Claim) -> None:
        """Back to the queue; the attempt does not count."""

    def requeue_lost(self, *, most_attempts: int) -> int:
        """Searches whose runner is dead or silent go back to the queue, or fail after the last attempt."""

    def counts(self) -> QueueCounts: ...

    def secret(self, name: str) -> bytes:
        """32 random bytes under a name, made when first asked for."""

    def close(self) -> None: ...
