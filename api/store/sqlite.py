"""The default store: one SQLite file on a local disk, behind ``api.store.store.Store``."""

from pathlib import Path

from api.store import documents, searches
from api.store.database import Database
from api.store.owners import Owner
from api.store.store import (
    Accepted,
    Claim,
    Document,
    DocumentKind,
    DocumentList,
    Finished,
    NewSearch,
    Position,
    QueueCounts,
    Search,
    SearchFailure,
    SearchList,
)
from planner.plan.answer import Progress

__all__ = ["SqliteStore"]


class SqliteStore:
    """One service's view of the store; several services may share one file."""

    def __init__(self, path: Path, *, lease_ns: int) -> None:
        self._database = Database(path)
        self._owner = Owner(path)
        self._lease_ns = lease_ns

    def put(self, document: Document) -> bool:
        with self._database.writing_durably() as connection:
            return documents.put(connection, document)

    def get(self, kind: DocumentKind, document_id: str) -> bytes | None:
        with self._database.reading() as connection:
            return documents.get(connection, kind, document_id)

    def list_documents(self, kind: DocumentKind, *, after: Position | None, size: int) -> DocumentList:
        with self._database.reading() as connection:
            return documents.listed(connection, kind, after=after, size=size)

    def accept(self, new: NewSearch, *, most_waiting: int) -> Accepted:
        with self._database.writing_durably() as connection:
            return searches.accept(connection, new, most_waiting=most_waiting)

    def search(self, search_id: str) -> Search | None:
        with self._database.reading() as connection:
            return searches.find(connection, search_id)

    def list_searches(self, *, after: Position | None, size: int) -> SearchList:
        with self._database.reading() as connection:
            return searches.listed(connection, after=after, size=size)

    def cancel(self, search_id: str) -> Search | None:
        with self._database.writing_durably() as connection:
            return searches.cancel(connection, search_id)

    def claim(self) -> Claim | None:
        if not self.counts().waiting:  # a look that takes no lock
            return None
        with self._database.writing() as connection:
            return searches.claim(connection, self._owner.name, lease_ns=self._lease_ns)

    def beat(self, claim: Claim) -> bool:
        with self._database.writing() as connection:
            return searches.beat(connection, claim, lease_ns=self._lease_ns)

    def report(self, claim: Claim, progress: Progress) -> None:
        with self._database.writing() as connection:
            searches.report(connection, claim, progress)

    def publish(self, claim: Claim, finished: Finished) -> bool:
        with self._database.writing_durably() as connection:
            return searches.publish(connection, claim, finished)

    def fail(self, claim: Claim, failure: SearchFailure) -> bool:
        with self._database.writing_durably() as connection:
            return searches.end(connection, claim, failure)

    def release(self, claim: Claim) -> None:
        with self._database.writing_durably() as connection:
            searches.release(connection, claim)

    def requeue_lost(self, *, most_attempts: int) -> int:
        if not self.counts().running:
            return 0
        with self._database.writing_durably() as connection:
            held = searches.running(connection)
            lost = [one.claim for one in held if one.lease_over or not self._owner.lives(one.owner)]
            for claim in lost:
                searches.take_back(connection, claim, most_attempts=most_attempts)
        return len(lost)

    def counts(self) -> QueueCounts:
        with self._database.reading() as connection:
            return searches.counts(connection)

    def secret(self, name: str) -> bytes:
        with self._database.writing_durably() as connection:
            return documents.secret(connection, name)

    def close(self) -> None:
        self._database.close()
        self._owner.close()
