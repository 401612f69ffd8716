"""What several resources share: ids, pages, entity tags, and how a route is described for ``/openapi.json``."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Path, Query, Response
from pydantic import BaseModel

from planner.problem.contract import Contract

__all__ = [
    "DocumentId",
    "PageSize",
    "PageToken",
    "Route",
    "SearchId",
    "add_route",
    "immutable",
    "json_response",
    "matches",
]

DocumentId = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="digest of the document")]
SearchId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="id of the search")]
PageSize = Annotated[int, Query(ge=1, le=200, description="entries on a page")]
PageToken = Annotated[str, Query(max_length=256, description="next_page_token of the page before")]

_Handler = Callable[..., Coroutine[Any, Any, Response]]


class Route(NamedTuple):
    """One operation: what it takes, and what it may answer."""

    method: str
    path: str
    summary: str
    answers: Mapping[int, type[Contract] | None]  # statuses of success
    errors: tuple[int, ...] = ()
    body: type[Contract] | None = None


def add_route(app: FastAPI, route: Route, handler: _Handler) -> None:
    """A GET route answers HEAD as well."""
    extra: dict[str, Any] = {}
    if route.body is not None:
        content = {"application/json": {"schema": _reference(route.body)}}
        extra["requestBody"] = {"required": True, "content": content}
    success = min(route.answers)
    app.add_api_route(
        route.path,
        handler,
        methods=[route.method],
        summary=route.summary,
        status_code=success,
        response_model=None,
        response_class=Response,
        responses=_responses(route),
        openapi_extra=extra or None,
    )
    if route.method == "GET":
        app.add_api_route(route.path, handler, methods=["HEAD"], response_model=None, include_in_schema=False)


def _responses(route: Route) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {}
    for status, answer in route.answers.items():
        found[status] = {"description": _DESCRIPTIONS[status]}
        if answer is not None:
            found[status]["content"] = {"application/json": {"schema": _reference(answer)}}
    for status in sorted({400, 405, 431, 500, 503, *route.errors} - found.keys()):
        schema = {"$ref": "#/components/schemas/ErrorDocument"}
        found[status] = {
            "description": _DESCRIPTIONS[status],
            "content": {"application/problem+json": {"schema": schema}},
        }
    return found


def _reference(contract: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{contract.__name__}"}


_DESCRIPTIONS = {
    200: "Done",
    201: "Created",
    202: "Accepted: the search is durable",
    304: "Not modified",
    400: "Not one UTF-8 JSON value, or a foreign Host",
    404: "Unknown id",
    405: "Method not known; Allow says which are",
    408: "The body did not arrive in time",
    409: "An id names other bytes",
    413: "The body is too large",
    415: "Not application/json in UTF-8 without Content-Encoding",
    422: "Well-formed JSON with wrong content",
    429: "Too many searches wait",
    431: "The header is too large",
    500: "Stored bytes are damaged, or a defect of the service",
    503: "The service is stopping or its store is locked",
    507: "The disk is full",
}


def json_response(view: Contract, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(view.model_dump_json(), status_code=status, media_type="application/json", headers=headers)


def immutable(payload: bytes, *, tag: str, if_none_match: str | None) -> Response:
    """Stored bytes as they are, or 304 where the client has them."""
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, immutable, max-age=31536000"}
    if if_none_match is not None and matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(payload, media_type="application/json", headers=headers)


def matches(if_none_match: str, tag: str) -> bool:
    """Weak comparison (RFC 9110 section 13.1.2)."""
    stated = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in stated or f'"{tag}"' in stated
