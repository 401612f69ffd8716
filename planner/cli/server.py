"""Talks to a running service over HTTP/1.1: requests in, documents or named errors out.

Only the standard library, no redirects, every wait with a deadline, every answer with a size limit.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, NamedTuple

from planner.errors import DocumentError, Fault, PlannerError, ServerError

__all__ = ["Reply", "Server"]

_LARGEST_REPLY_BYTES = 64 * 2**20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_INVALID_STATUSES = (400, 409, 413, 415, 422)  # our request is wrong, the server is well


class Reply(NamedTuple):
    """An accepted request: its status, headers, bytes and JSON value."""

    status: int
    headers: Message
    body: bytes
    value: object

    @property
    def document(self) -> Mapping[str, object]:
        """The value as an object. Raises ``ServerError`` where it is none."""
        if not isinstance(self.value, dict):
            raise ServerError("the server answered with JSON that is no object", code="server_reply")
        return self.value

    def text(self, field: str) -> str:
        """A field that must be text."""
        found = self.document.get(field)
        if not isinstance(found, str):
            raise ServerError(f"the server's answer lacks {field!r}", code="server_reply")
        return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """A redirect is an error: the user named the server."""


class Server:
    """One service, by its base URL, for example ``http://127.0.0.1:8000``."""

    def __init__(self, url: str, *, timeout_s: float = 30.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ServerError(f"found {url!r}, expected a URL like http://127.0.0.1:8000", code="usage")
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if parts.hostname in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str) -> Reply:
        """GET; raises the error that the server names, or ``ServerError``."""
        return self._send(urllib.request.Request(self._url + path, method="GET"))

    def post(self, path: str, body: bytes = b"{}", *, wait_s: int = 0) -> Reply:
        """POST of a JSON body; ``wait_s``: the server may take that long to answer (RFC 7240)."""
        request = urllib.request.Request(self._url + path, data=body, method="POST")
        request.add_header("Content-Type", "application/json")
        if wait_s:
            request.add_header("Prefer", f"wait={wait_s}")
        return self._send(request, extra_s=wait_s)

    def wait_ready(self, *, deadline_s: float) -> None:
        """Until ``/readyz`` says yes. Raises ``ServerError`` at the deadline."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                self.get("/readyz")
            except ServerError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return

    def _send(self, request: urllib.request.Request, *, extra_s: float = 0.0) -> Reply:
        request.add_header("Accept", "application/json, application/problem+json")
        try:
            with self._opener.open(request, timeout=self._timeout_s + extra_s) as answer:
                body = answer.read(_LARGEST_REPLY_BYTES + 1)
                return Reply(answer.status, answer.headers, body, _value(body, asked=request.full_url))
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(_LARGEST_REPLY_BYTES + 1), asked=request.full_url) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ServerError(f"{self._url} cannot be reached: {reason}", code="server_unreachable") from None


def _value(body: bytes, *, asked: str) -> object:
    if len(body) > _LARGEST_REPLY_BYTES:
        raise ServerError(f"the server's answer is larger than {_LARGEST_REPLY_BYTES} bytes", code="server_reply")
    try:
        return json.loads(body)
    except ValueError:
        message = f"{asked} answered with something that is not JSON, expected a service of planner"
        raise ServerError(message, code="server_reply") from None


def _refusal(status: int, body: bytes, *, asked: str) -> PlannerError:
    """An error document (RFC 9457) as the error that a local command would have raised."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    document = found if isinstance(found, dict) else {}
    code = document.get("code")
    if not isinstance(code, str):
        message = f"{asked} answered {status} without an error document, expected a service of planner"
        return ServerError(message, code="server_reply")
    detail = str(document.get("detail") or document.get("title") or "refused")
    if status not in _INVALID_STATUSES:
        return ServerError(f"the server answered {status}: {detail}", code=code)
    listed = document.get("errors")
    faults = tuple(
        Fault(str(entry.get("code", code)), str(entry.get("pointer", "")), str(entry.get("message", detail)))
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict)
    )
    return DocumentError(faults or (Fault(code, "", detail),))
