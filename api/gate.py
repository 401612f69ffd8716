"""The outermost layer of the service: names each request, refuses foreign hosts, logs, adds headers.

The Host header is checked because the service has no keys: a page in a browser could otherwise reach it under a name
of its own (DNS rebinding).
"""

import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import error_response
from planner.errors import Fault

__all__ = ["Gate"]

logger = structlog.get_logger(__name__)

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: tuple[str, ...]) -> None:
        self._app = app
        self._hosts = _LOOPBACK | frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request_id, begin_ns, status = uuid.uuid4().hex, time.monotonic_ns(), 0
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        if self._host_is_ours(scope):
            await self._app(scope, receive, answer)
        else:
            fault = Fault("host", "", "the Host header names another machine")
            await error_response((fault,), request_id=request_id, status=400)(scope, receive, answer)
        _log(scope, status=status, duration_ns=time.monotonic_ns() - begin_ns)

    def _host_is_ours(self, scope: Scope) -> bool:
        host = Headers(scope=scope).get("host", "").lower()
        name, colon, port = host.rpartition(":")
        return host in self._hosts or (bool(colon) and port.isdecimal() and name in self._hosts)


def _log(scope: Scope, *, status: int, duration_ns: int) -> None:
    """The route's template, never what a client wrote."""
    route = getattr(scope.get("route"), "path", "none")
    logger.info(
        "request",
        request_id=scope["state"]["request_id"],
        method=scope["method"] if scope["method"].isalpha() else "other",
        route=route,
        status=status,
        duration_ns=duration_ns,
    )
