"""``planner serve``: one process with its runner, on a loopback address.

h11 because it limits the header block; a connection that does not finish its header within a deadline is closed, since
uvicorn has none. The store is opened, and refused if it must be, before the port is bound.
"""

import asyncio
import signal
import socket
from types import FrameType
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.app import create_app
from api.logs import configure_logs
from api.service import Service, open_service
from api.settings import Settings
from planner.errors import SettingsError
from planner.units import NS_PER_SECOND

__all__ = ["serve"]

logger = structlog.get_logger(__name__)

_LARGEST_HEADER_BYTES = 64 * 2**10
_FINISH_S = 5  # for requests under way when the service stops


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``SettingsError`` before the port is bound."""
    configure_logs(settings.log_level)
    service = open_service(settings)
    config = uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=_protocol(settings.header_deadline_ns / NS_PER_SECOND),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_LARGEST_HEADER_BYTES,
        timeout_graceful_shutdown=_FINISH_S,
    )
    _require_free_port(settings)
    _Server(config, service).run()


def _require_free_port(settings: Settings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            message = f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
            raise SettingsError(message, code="port", pointer="/port") from None


class _Server(uvicorn.Server):
    """Starts to drain at the first signal, before uvicorn waits for requests under way."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        logger.info("stopping", signal=signal.Signals(sig).name)
        self._service.begin_drain()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True  # and not uvicorn's way, which ends the process by the signal it caught

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            ports = [one.getsockname()[1] for server in self.servers for one in server.sockets]
            logger.info("listening", host=self.config.host, port=ports[0])


def _protocol(deadline_s: float) -> type[H11Protocol]:
    """uvicorn's protocol, which closes a connection whose request header does not arrive in time."""

    class DeadlineProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._deadline = self.loop.call_later(deadline_s, transport.close)

        def data_received(self, data: bytes) -> None:
            if not self._busy() and self._deadline is None:
                self._deadline = self.loop.call_later(deadline_s, self.transport.close)
            super().data_received(data)
            if self._busy():
                self._stop_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_deadline()
            super().connection_lost(exc)

        def _busy(self) -> bool:
            """Between a complete request header and the end of its answer."""
            cycle: Any = self.cycle  # None before the first request
            return cycle is not None and not cycle.response_complete

        def _stop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return DeadlineProtocol
