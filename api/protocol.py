"""uvicorn's HTTP/1.1 protocol with a deadline for request headers, and with error documents for what is no HTTP.

h11 because it limits the header block; a connection that does not finish its header within the deadline is closed:
uvicorn has no deadline of its own.
"""

import asyncio
import sys
import uuid
from http import HTTPStatus
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.errors import error_response
from planner.errors import Fault

__all__ = ["LARGEST_HEADER_BYTES", "deadline_protocol"]

logger = structlog.get_logger(__name__)

LARGEST_HEADER_BYTES = 64 * 2**10
_LINGER_S = 2.0  # for a refused client to read the answer
_TOO_LARGE = Fault("too_large_header", "", f"the request header is larger than {LARGEST_HEADER_BYTES} bytes")
_NO_HTTP = Fault("http", "", "not an acceptable HTTP/1.1 request")


def deadline_protocol(deadline_s: float) -> type[H11Protocol]:
    """The protocol class with this deadline."""

    class DeadlineProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._deadline = self.loop.call_later(deadline_s, transport.close)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            if not self._busy() and self._deadline is None:
                self._deadline = self.loop.call_later(deadline_s, self.transport.close)
            super().data_received(data)
            if self._busy():
                self._stop_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_deadline()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            """uvicorn calls this for bytes that h11 refuses, inside the handler of h11's error."""
            self._refused = True
            refuse(self.conn, self.transport, sys.exception())
            self._stop_deadline()
            self._deadline = self.loop.call_later(_LINGER_S, self.transport.close)

        def _busy(self) -> bool:
            """Between a complete request header and the end of its answer."""
            cycle: Any = self.cycle  # None before the first request
            return cycle is not None and not cycle.response_complete

        def _stop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return DeadlineProtocol


def refuse(connection: h11.Connection, transport: asyncio.Transport, error: BaseException | None) -> None:
    """Answer with an error document where an answer is still possible, and say that it was the last one.

    The other side's bytes are still taken for a moment: closing at once would reset the connection, and the answer with
    it would be lost.
    """
    if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
        too_large = getattr(error, "error_status_hint", 400) == 431
        fault, status = (_TOO_LARGE, HTTPStatus(431)) if too_large else (_NO_HTTP, HTTPStatus.BAD_REQUEST)
        request_id = uuid.uuid4().hex
        logger.info("request refused", request_id=request_id, code=fault.code, status=int(status))
        answer = error_response((fault,), request_id=request_id, status=status)
        headers = [*answer.raw_headers, (b"connection", b"close"), (b"x-request-id", request_id.encode("ascii"))]
        head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode("ascii"))
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            transport.write(connection.send(event) or b"")
    transport.write_eof()
