"""``planner serve``: one process with its runner, on a loopback address.

The store is opened, and refused if it must be, before the port is bound.
"""

import asyncio
import signal
import socket
from types import FrameType
from typing import Any

import structlog
import uvicorn

from api.app import create_app
from api.logs import configure_logs
from api.protocol import LARGEST_HEADER_BYTES, deadline_protocol
from api.service import Service, open_service
from api.settings import Settings
from planner.errors import SettingsError
from planner.units import NS_PER_SECOND

__all__ = ["serve"]

logger = structlog.get_logger(__name__)

_FINISH_S = 5  # for requests under way when the service stops


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``SettingsError`` before the port is bound."""
    configure_logs(settings.log_level)
    service = open_service(settings)
    config = uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        http=deadline_protocol(settings.header_deadline_ns / NS_PER_SECOND),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=LARGEST_HEADER_BYTES,
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
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal handler: it may interrupt who holds the lock of the log or of an event, so it takes none itself."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True  # and not uvicorn's way, which ends the process by the signal it caught
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._begin_drain, sig)

    def _begin_drain(self, sig: int) -> None:
        logger.info("stopping", signal=signal.Signals(sig).name)
        self._service.begin_drain()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            ports = [one.getsockname()[1] for server in self.servers for one in server.sockets]
            logger.info("listening", host=self.config.host, port=ports[0])
