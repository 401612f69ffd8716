"""What clients see of a search, an answer or a document."""

from typing import NamedTuple

from api.documents import AnswerView, SearchError, SearchView, StoredAnswer
from api.problems import stored, stored_bytes
from api.store.store import Search, Store

__all__ = ["AnswerBytes", "answer_bytes", "plan_link", "search_link", "search_view"]


def plan_link(plan_id: str | None) -> str | None:
    return None if plan_id is None else f"/v1/plans/{plan_id}"


def search_link(search_id: str) -> str:
    return f"/v1/searches/{search_id}"


class AnswerBytes(NamedTuple):
    """An ``AnswerView`` as JSON, and the link of its plan."""

    payload: bytes
    plan: str | None


def answer_bytes(answer_id: str, store: Store) -> AnswerBytes:
    """The stored answer with its plan, whose bytes are put in as they are stored."""
    answer = stored("answer", answer_id, StoredAnswer, store=store)
    link = plan_link(answer.plan)
    view = AnswerView(
        status=answer.status,
        limit=answer.limit,
        plan=link,
        plan_document=None,
        reasons=answer.reasons,
        relaxations=answer.relaxations,
        warnings=answer.warnings,
    )
    plan = b"null" if answer.plan is None else stored_bytes("plan", answer.plan, store=store)
    head = view.model_dump_json(exclude={"plan_document"}).encode()
    return AnswerBytes(head.removesuffix(b"}") + b',"plan_document":' + plan + b"}", link)


def search_view(search: Search, store: Store) -> SearchView:
    answer = stored("answer", search.answer_id, StoredAnswer, store=store) if search.answer_id else None
    progress = search.progress if search.state == "running" else None
    return SearchView(
        id=search.id,
        state=search.state,
        attempt=search.attempt,
        request_digest=search.request_digest,
        created_ns=search.created_ns,
        updated_ns=search.updated_ns,
        phase=progress.phase if progress else None,
        incumbent_ns=progress.incumbent_ns if progress else None,
        bound_ns=progress.bound_ns if progress else None,
        gap=_gap(progress.incumbent_ns, progress.bound_ns) if progress else None,
        candidates_done=progress.candidates_done if progress else None,
        candidates_total=progress.candidates_total if progress else None,
        status=answer.status if answer else None,
        limit=answer.limit if answer else None,
        plan=plan_link(answer.plan) if answer else None,
        reasons=answer.reasons if answer else (),
        relaxations=answer.relaxations if answer else (),
        warnings=answer.warnings if answer else (),
        error=SearchError(code=search.failure.code, message=search.failure.message) if search.failure else None,
    )


def _gap(incumbent_ns: int | None, bound_ns: int | None) -> float | None:
    """(incumbent - bound) / bound."""
    return (incumbent_ns - bound_ns) / bound_ns if incumbent_ns is not None and bound_ns else None
