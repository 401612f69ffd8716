"""The application: routes, error documents, start and stop. Loads neither torch nor a solver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.types import ASGIApp

from api.description import describe
from api.errors import add_error_handlers
from api.gate import Gate
from api.routes.explain import add_explain_routes
from api.routes.health import add_health_routes
from api.routes.plans import add_plan_routes
from api.routes.searches import add_search_routes
from api.routes.simulate import add_simulate_routes
from api.routes.uploads import add_upload_routes
from api.service import Service
from planner import __version__

__all__ = ["create_app"]


def create_app(service: Service) -> ASGIApp:
    """The application of an open service; it starts the runner and closes the service when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.notices.open()
        service.runner.start()
        try:
            yield
        finally:
            service.notices.close()
            service.close()

    app = FastAPI(
        title="parallel-planner",
        version=__version__,
        description="Finds parallel plans for training: a problem goes in, a plan comes out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_error_handlers(app)
    for add_routes in (
        add_health_routes,
        add_plan_routes,
        add_search_routes,
        add_upload_routes,
        add_simulate_routes,
        add_explain_routes,
    ):
        add_routes(app, service)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return Gate(app, allowed_hosts=service.settings.allowed_hosts)
