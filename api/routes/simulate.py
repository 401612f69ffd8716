"""``POST /v1/simulate``: the predicted step of a plan on given profiles, cluster and workload; no search.

The conditions may differ from those that the plan was made for: only the model must be the same.
"""

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from api.advice import request_warnings
from api.bodies import MOST_PROFILE_BYTES, read_body
from api.documents import GroupSummary, Simulation, SimulationRequest
from api.problems import resolve_documents
from api.routes.common import Route, add_route, json_response
from api.service import Service
from planner.check.structure import check_plan
from planner.costs.price import price_plan
from planner.errors import PlanError, RequestError
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.problem.reading import read_document
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = ["add_simulate_routes"]


def add_simulate_routes(app: FastAPI, service: Service) -> None:
    async def predict(request: Request) -> Response:
        document = await read_body(request, SimulationRequest, most_bytes=MOST_PROFILE_BYTES)
        return json_response(await run_in_threadpool(_simulate, service, document))

    errors = (408, 413, 415, 422)
    add_route(
        app,
        Route("POST", "/v1/simulate", "Predict the step of a plan", {200: Simulation}, errors, SimulationRequest),
        predict,
    )


def _simulate(service: Service, document: SimulationRequest) -> Simulation:
    plan = document.plan if isinstance(document.plan, Plan) else _stored_plan(service, document.plan)
    profiles, cluster = resolve_documents(document.profiles, document.cluster, store=service.store)
    problem = Problem(profiles, cluster, document.workload)
    _check(plan, problem)
    prices = price_plan(plan, problem)
    timeline = simulate(plan, prices)
    return Simulation(
        plan=plan.digest,
        problem=problem.digest,
        prediction=plan.prediction,
        step_ns=timeline.step_ns,
        bubble=timeline.bubble,
        costs=prices.costs,
        groups=tuple(
            _summary(group, timeline, limit_bytes=prices.limit_bytes[group]) for group in range(len(plan.groups))
        ),
        warnings=request_warnings(profiles, cluster),
    )


def _stored_plan(service: Service, digest: str) -> Plan:
    payload = service.store.get("plan", digest)
    if payload is None:
        raise RequestError("no plan with this digest is stored", code="unknown_document", pointer="/plan")
    return read_document(payload, Plan)


def _check(plan: Plan, problem: Problem) -> None:
    """Raises ``PlanError`` for a plan that cannot run or is of another model."""
    verdict = check_plan(plan)
    if verdict.fault is not None:
        fault = verdict.fault
        raise PlanError(fault.message, code=fault.code, pointer=f"/plan{fault.pointer}")
    if plan.graph.model != problem.profiles[0].model.fingerprint:
        message = "the plan and the profiles are of different models"
        raise PlanError(message, code="model_mismatch", pointer="/plan/graph/model")


def _summary(group: int, timeline: Timeline, *, limit_bytes: int) -> GroupSummary:
    events, peak = timeline.events[group], timeline.peak_bytes
    peak_bytes = None if peak is None else peak[group]
    return GroupSummary(
        group=group,
        num_instructions=len(events),
        busy_ns=timeline.busy_ns[group],
        first_start_ns=events[0].start_ns,
        last_end_ns=events[-1].end_ns,
        peak_bytes=peak_bytes,
        memory_limit_bytes=limit_bytes,
        fits=peak_bytes is None or peak_bytes <= limit_bytes,
    )
