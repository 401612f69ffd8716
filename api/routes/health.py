"""Whether the process lives, whether it can work, what it is."""

from typing import Literal

from fastapi import FastAPI, Response
from starlette.concurrency import run_in_threadpool

from api.bodies import MOST_PLAN_BYTES, MOST_PROFILE_BYTES
from api.problems import solver_version
from api.routes.common import Route, add_route, json_response
from api.routes.plans import MOST_WAIT_S
from api.service import Service
from planner import __version__
from planner.problem.cluster import MOST_RANKS
from planner.problem.contract import Contract, Count, Index
from planner.problem.reading import MOST_DEPTH, MOST_KEYS
from planner.units import NS_PER_SECOND

__all__ = ["Health", "Limits", "Readiness", "Version", "add_health_routes"]


class Health(Contract):
    """The process lives."""

    status: Literal["ok"]


class Readiness(Contract):
    """Whether searches are accepted and run."""

    ready: bool
    draining: bool
    runner: Literal["ok", "stopped"]
    waiting: Index
    running: Index
    damaged: Index  # searches whose stored rows cannot be trusted; the others go on


class Limits(Contract):
    """What the service refuses beyond."""

    plan_request_bytes: Count
    profile_bytes: Count
    json_depth: Count
    keys_of_an_object: Count
    layers: Count
    ranks: Count
    smallest_time_limit_ns: Count
    largest_time_limit_ns: Count
    waiting_searches: Count
    wait_ns: Count


class Version(Contract):
    """What answers."""

    planner: str
    solver: str
    schemas: tuple[str, ...]
    limits: Limits


def add_health_routes(app: FastAPI, service: Service) -> None:
    async def alive() -> Response:
        return json_response(Health(status="ok"))

    async def ready() -> Response:
        found = await run_in_threadpool(_readiness, service)
        return json_response(
            found, status=200 if found.ready else 503, headers={} if found.ready else {"Retry-After": "5"}
        )

    async def version() -> Response:
        return json_response(_version(service))

    add_route(app, Route("GET", "/healthz", "The process lives", {200: Health}), alive)
    add_route(app, Route("GET", "/readyz", "Searches are accepted and run", {200: Readiness, 503: Readiness}), ready)
    add_route(app, Route("GET", "/version", "Versions, schemas and limits", {200: Version}), version)


def _readiness(service: Service) -> Readiness:
    counts, healthy = service.store.counts(), service.runner.healthy
    return Readiness(
        ready=healthy and not service.draining,
        draining=service.draining,
        runner="ok" if healthy else "stopped",
        waiting=counts.waiting,
        running=counts.running,
        damaged=counts.damaged,
    )


def _version(service: Service) -> Version:
    limits = Limits(
        plan_request_bytes=MOST_PLAN_BYTES,
        profile_bytes=MOST_PROFILE_BYTES,
        json_depth=MOST_DEPTH,
        keys_of_an_object=MOST_KEYS,
        layers=4096,
        ranks=MOST_RANKS,
        smallest_time_limit_ns=NS_PER_SECOND,
        largest_time_limit_ns=3_600 * NS_PER_SECOND,
        waiting_searches=service.settings.most_waiting,
        wait_ns=int(MOST_WAIT_S) * NS_PER_SECOND,
    )
    schemas = ("profile/1", "cluster/1", "workload/1", "request/1", "plan/1", "simulate/1", "revalidate/1")
    return Version(planner=__version__, solver=solver_version(), schemas=schemas, limits=limits)
