"""``/v1/plans/{id}/explanation`` and ``/v1/plans/{id}/revalidate``: why a plan is as it is, and whether to keep it.

Both compute from stored documents; neither starts a search.
"""

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from api.bodies import MOST_PROFILE_BYTES, read_body
from api.documents import RevalidationRequest
from api.errors import not_found
from api.problems import resolve_documents, stored_problem
from api.routes.common import DocumentId, Route, add_route, json_response
from api.service import Service
from planner.errors import RequestError
from planner.explain.documents import Explanation, Revalidation
from planner.explain.explain import explain
from planner.explain.revalidate import Thresholds, revalidate
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.problem.reading import read_document

__all__ = ["add_explain_routes"]


def add_explain_routes(app: FastAPI, service: Service) -> None:
    async def explanation(document_id: DocumentId) -> Response:
        return json_response(await run_in_threadpool(_explained, service, document_id))

    async def revalidation(request: Request, document_id: DocumentId) -> Response:
        document = await read_body(request, RevalidationRequest, most_bytes=MOST_PROFILE_BYTES)
        return json_response(await run_in_threadpool(_revalidated, service, document_id, document))

    path = "/v1/plans/{document_id}/explanation"
    add_route(app, Route("GET", path, "What binds a plan", {200: Explanation}, (404, 422)), explanation)
    route = Route(
        "POST",
        "/v1/plans/{document_id}/revalidate",
        "Keep a plan or not",
        {200: Revalidation},
        (404, 408, 413, 415, 422),
        RevalidationRequest,
    )
    add_route(app, route, revalidation)


def _explained(service: Service, document_id: str) -> Explanation:
    plan = _plan(service, document_id)
    return explain(plan, stored_problem(plan.problem, service.store))


def _revalidated(service: Service, document_id: str, document: RevalidationRequest) -> Revalidation:
    plan = _plan(service, document_id)
    others = tuple(_other(service, one, number) for number, one in enumerate(document.plans))
    thresholds = Thresholds(document.smallest_gain, document.steps_left)
    return revalidate(plan, _problem(service, plan, document), found=others, thresholds=thresholds)


def _problem(service: Service, plan: Plan, document: RevalidationRequest) -> Problem:
    """The problem of the plan with what the request replaces; a whole new one needs no stored one."""
    profiles, cluster, workload = document.profiles, document.cluster, document.workload
    if profiles is None or cluster is None or workload is None:
        stored = stored_problem(plan.problem, service.store)
        profiles = stored.profiles if profiles is None else profiles
        cluster = stored.cluster if cluster is None else cluster
        workload = stored.workload if workload is None else workload
    found_profiles, found_cluster = resolve_documents(profiles, cluster, store=service.store)
    return Problem(found_profiles, found_cluster, workload)


def _plan(service: Service, document_id: str) -> Plan:
    payload = service.store.get("plan", document_id)
    if payload is None:
        raise not_found("plan")
    return read_document(payload, Plan)


def _other(service: Service, document_id: str, number: int) -> Plan:
    payload = service.store.get("plan", document_id)
    if payload is None:
        message = "no plan with this digest is stored"
        raise RequestError(message, code="unknown_document", pointer=f"/plans/{number}")
    return read_document(payload, Plan)
