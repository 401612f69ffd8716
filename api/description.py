"""``/openapi.json``: FastAPI's description of the routes, with the schemas of our contracts put in."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.documents import (
    AnswerView,
    DocumentPage,
    ErrorDocument,
    RevalidationRequest,
    SearchPage,
    SearchView,
    Simulation,
    SimulationRequest,
    UploadView,
    Validated,
)
from api.routes.health import Health, Readiness, Version
from planner.explain.documents import Explanation, Revalidation
from planner.plan.plan import Plan
from planner.problem.cluster import Cluster
from planner.problem.profile import ModelProfile
from planner.problem.request import Request

__all__ = ["describe"]

_CONTRACTS = (
    AnswerView,
    Cluster,
    DocumentPage,
    ErrorDocument,
    Explanation,
    Health,
    ModelProfile,
    Plan,
    Readiness,
    Request,
    Revalidation,
    RevalidationRequest,
    SearchPage,
    SearchView,
    Simulation,
    SimulationRequest,
    UploadView,
    Validated,
    Version,
)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, made once."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, schemas = models_json_schema(
            [(contract, "validation") for contract in _CONTRACTS], ref_template="#/components/schemas/{model}"
        )
        components = found.setdefault("components", {}).setdefault("schemas", {})
        components.clear()
        components.update(schemas["$defs"])
        app.openapi_schema = found
    return app.openapi_schema
