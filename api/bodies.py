"""Bodies of requests: type and size are judged before a byte is parsed, the parsing is not FastAPI's."""

import asyncio
from typing import TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from planner.errors import RequestError
from planner.problem.contract import Contract
from planner.problem.reading import read_document

__all__ = ["MOST_PLAN_BYTES", "MOST_PROFILE_BYTES", "read_body"]

MOST_PLAN_BYTES = 8 * 2**20
MOST_PROFILE_BYTES = 64 * 2**20
_DEADLINE_S = 60.0

_Document = TypeVar("_Document", bound=Contract)


async def read_body(request: Request, kind: type[_Document], *, most_bytes: int) -> _Document:
    """The document that a request carries. Raises ``RequestError`` or ``DocumentError``."""
    _check_headers(request, most_bytes)
    try:
        async with asyncio.timeout(_DEADLINE_S):
            data = await _bytes(request, most_bytes)
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {_DEADLINE_S:.0f} s", code="body_timeout") from None
    except ClientDisconnect:
        raise RequestError("the connection ended before the body did", code="http") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:4]:
        raise RequestError("the body is UTF-16 or UTF-32, expected UTF-8", code="content_type")
    return await run_in_threadpool(read_document, data, kind)


def _check_headers(request: Request, most_bytes: int) -> None:
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise RequestError("expected Content-Type: application/json in UTF-8", code="content_type")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError("expected a body without Content-Encoding", code="content_encoding")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > most_bytes:
        raise _too_large(most_bytes)


async def _bytes(request: Request, most_bytes: int) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most_bytes:
            raise _too_large(most_bytes)
    return bytes(data)


def _too_large(most_bytes: int) -> RequestError:
    return RequestError(f"the body is larger than {most_bytes} bytes", code="too_large_body")
