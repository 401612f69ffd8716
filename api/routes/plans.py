"""``/v1/plans``: ask for a plan, list and read plans.

A stored answer is 200; else the request becomes a search, durable before the 202 leaves. ``Prefer: wait=N`` holds the
answer back for up to N seconds.
"""

import re
import time
from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from api.advice import request_warnings
from api.bodies import MOST_PLAN_BYTES, read_body
from api.documents import AnswerView, DocumentPage, SearchView, Validated
from api.errors import not_found
from api.problems import ResolvedRequest, resolve_request
from api.routes.common import DocumentId, PageSize, PageToken, Route, add_route, immutable, json_response
from api.routes.uploads import document_page
from api.service import Service
from api.store.store import Accepted, NewSearch, Search
from api.views import answer_bytes, search_link, search_view
from planner.plan.plan import Plan
from planner.problem.contract import Contract
from planner.problem.request import Request as PlanRequest

__all__ = ["MOST_WAIT_S", "add_plan_routes", "preferred_wait_s", "wait_until_done"]

MOST_WAIT_S = 60.0
_POLL_S = 1.0  # a search may be run by another service on the same store
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*([0-9]{1,6})\s*(?:$|[,;])", re.IGNORECASE)
_ERRORS = (408, 413, 415, 422, 429, 507)


def add_plan_routes(app: FastAPI, service: Service) -> None:
    async def find(request: Request) -> Response:
        return await _find(service, request)

    async def listing(page_size: PageSize = 50, page_token: PageToken = "") -> Response:
        page = await run_in_threadpool(document_page, service, "plan", "/v1/plans", token=page_token, size=page_size)
        return json_response(page)

    async def read(request: Request, document_id: DocumentId) -> Response:
        payload = service.store.get("plan", document_id)
        if payload is None:
            raise not_found("plan")
        return immutable(payload, tag=document_id, if_none_match=request.headers.get("if-none-match"))

    answers: dict[int, type[Contract] | None] = {200: AnswerView, 202: SearchView}
    add_route(app, Route("POST", "/v1/plans", "Find a plan", answers, _ERRORS, PlanRequest), find)
    add_route(app, Route("GET", "/v1/plans", "List plans", {200: DocumentPage}, (422,)), listing)
    one = Route("GET", "/v1/plans/{document_id}", "Read a plan", {200: Plan, 304: None}, (404, 422))
    add_route(app, one, read)


async def _find(service: Service, request: Request) -> Response:
    wait_s = preferred_wait_s(request)
    document = await read_body(request, PlanRequest, most_bytes=MOST_PLAN_BYTES)
    resolved = await run_in_threadpool(resolve_request, document, service.store)
    if document.validate_only:
        return json_response(_validated(resolved))
    service.check_accepting()
    accepted = await run_in_threadpool(_accept, service, resolved)
    search = accepted.search
    if search is None:
        return await run_in_threadpool(_answer, service, accepted.answer_id or "")
    service.runner.wake()
    if wait_s:
        search = await wait_until_done(service, search, within_s=wait_s)
    applied = {"Preference-Applied": f"wait={wait_s:.0f}"} if wait_s else {}
    if search.answer_id is not None:
        return await run_in_threadpool(_answer, service, search.answer_id, applied)
    headers = {"Location": search_link(search.id), "Retry-After": "1", **applied}
    view = await run_in_threadpool(search_view, search, service.store)
    return json_response(view, status=202, headers=headers)


def _validated(resolved: ResolvedRequest) -> Validated:
    return Validated(
        valid=True,
        request_digest=resolved.request_digest,
        problem=resolved.problem.digest,
        warnings=request_warnings(resolved.problem.profiles, resolved.problem.cluster),
    )


def _accept(service: Service, resolved: ResolvedRequest) -> Accepted:
    new = NewSearch(resolved.request_digest, resolved.request_id, resolved.documents)
    return service.store.accept(new, most_waiting=service.settings.most_waiting)


def _answer(service: Service, answer_id: str, headers: Mapping[str, str] | None = None) -> Response:
    payload, plan = answer_bytes(answer_id, service.store)
    location = {"Content-Location": plan} if plan else {}
    return Response(payload, media_type="application/json", headers={**location, **(headers or {})})


def preferred_wait_s(request: Request) -> float:
    """Seconds of ``Prefer: wait=N`` (RFC 7240), 0 without."""
    found = _WAIT.search(request.headers.get("prefer", "")[:256])
    return min(float(found.group(1)), MOST_WAIT_S) if found else 0.0


async def wait_until_done(service: Service, search: Search, *, within_s: float) -> Search:
    """The search when it is done, or as it is after ``within_s``."""
    until = time.monotonic() + within_s
    while not search.done and not service.draining and (left := until - time.monotonic()) > 0:
        await service.notices.wait(search.id, within_s=min(left, _POLL_S))
        found = service.store.search(search.id)
        if found is None:
            break
        search = found
    return search
