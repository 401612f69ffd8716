"""Errors as HTTP: the one place where a machine code becomes a status, and the RFC 9457 documents that carry it.

An error document never repeats the input: it holds codes, JSON pointers and sentences of ours. See docs/errors.md.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from planner.errors import DocumentError, Fault, PlannerError, RequestError
from planner.problem.faults import fault_of
from planner.problem.reading import MOST_FAULTS

__all__ = ["ERROR_MEDIA_TYPE", "STATUS_OF_CODE", "add_error_handlers", "error_response", "not_found", "status_of"]

ERROR_MEDIA_TYPE = "application/problem+json"
_LONGEST_MESSAGE = 1024

# these codes' own messages show what was read, for files on one's own machine; the service says it without
_WITHOUT_INPUT: Final[Mapping[str, str]] = {"stream_text": "a stream holds text that is no instruction"}

# machine code -> status; what is not listed is 422: well-formed JSON with the wrong content
STATUS_OF_CODE: Final[Mapping[str, int]] = {
    "json_invalid": 400,
    "json_depth": 400,
    "encoding": 400,
    "host": 400,
    "http": 400,
    "not_found": 404,
    "method": 405,
    "body_timeout": 408,
    "immutable": 409,
    "too_large_body": 413,
    "content_type": 415,
    "content_encoding": 415,
    "queue_full": 429,
    "too_large_header": 431,
    "internal": 500,
    "integrity": 500,
    "draining": 503,
    "store_busy": 503,
    "disk_full": 507,
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    429: {"Retry-After": "5"},
    503: {"Retry-After": "5"},
}


def status_of(error: PlannerError) -> int:
    return STATUS_OF_CODE.get(error.code, 422)


def error_response(
    faults: tuple[Fault, ...], *, request_id: str, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """An error document; the first fault gives the code."""
    faults = tuple(fault._replace(message=_WITHOUT_INPUT.get(fault.code, fault.message)) for fault in faults)
    first = faults[0]
    document = {
        "type": f"/errors/{first.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": first.message[:_LONGEST_MESSAGE],
        "instance": f"urn:request:{request_id}",
        "code": first.code,
        "errors": [
            {"code": fault.code, "pointer": fault.pointer, "message": fault.message[:_LONGEST_MESSAGE]}
            for fault in faults[:MOST_FAULTS]
        ],
        "error_count": len(faults),
    }
    return Response(
        json.dumps(document, separators=(",", ":")),
        status_code=status,
        media_type=ERROR_MEDIA_TYPE,
        headers={**_HEADERS.get(status, {}), **(headers or {})},
    )


def add_error_handlers(app: FastAPI) -> None:
    """Every error of ``app`` leaves as an error document."""
    app.add_exception_handler(PlannerError, _planner_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)


async def _planner_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PlannerError)
    faults = error.faults if isinstance(error, DocumentError) else (Fault(error.code, error.pointer, error.message),)
    return error_response(faults, request_id=_request_id(request), status=status_of(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    """Of parameters in path and query: bodies are read by ``planner.problem.reading``."""
    assert isinstance(error, RequestValidationError)
    faults = tuple(fault_of(detail) for detail in error.errors())
    return error_response(faults, request_id=_request_id(request), status=422)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    request_id = _request_id(request)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        fault = Fault("method", "", f"this resource knows the methods {allowed}")
        return error_response((fault,), request_id=request_id, status=405, headers={"Allow": allowed})
    if error.status_code == 404:
        return error_response((Fault("not_found", "", "no such resource"),), request_id=request_id, status=404)
    fault = Fault("http", "", "not an acceptable HTTP request")
    return error_response((fault,), request_id=request_id, status=error.status_code)


def _methods(request: Request) -> list[str]:
    """Every method of the request's path, over all routes of the service."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    """A defect of ours; the traceback goes to the log, nothing of it to the client."""
    fault = Fault("internal", "", "the service failed on this request; its log says why")
    return error_response((fault,), request_id=_request_id(request), status=500)


def _request_id(request: Request) -> str:
    found = request.scope.get("state", {}).get("request_id", "unknown")
    return str(found)


def not_found(what: str) -> RequestError:
    """The named thing is not there."""
    return RequestError(f"no such {what}", code="not_found")
