"""A signal may arrive while the process writes its log: the handler takes no lock, the loop does the rest."""

import asyncio
import signal
from typing import cast

import uvicorn

from api.serve import _Server
from api.service import Service


class Drained:
    """Stands for a service; counts how often it is told to drain."""

    def __init__(self) -> None:
        self.times = 0

    def begin_drain(self) -> None:
        self.times += 1


def test_a_signal_only_leaves_word_for_the_loop() -> None:
    async def stopped() -> list[tuple[bool, int]]:
        service = Drained()
        server = _Server(uvicorn.Config("api.app:create_app"), cast(Service, service))
        server._loop = asyncio.get_running_loop()
        server.handle_exit(signal.SIGTERM, None)
        seen = [(server.should_exit, service.times)]
        await asyncio.sleep(0)
        return [*seen, (server.should_exit, service.times)]

    assert asyncio.run(stopped()) == [(True, 0), (True, 1)]


def test_a_signal_before_the_loop_runs_ends_the_start() -> None:
    server = _Server(uvicorn.Config("api.app:create_app"), cast(Service, Drained()))
    server.handle_exit(signal.SIGTERM, None)
    assert (server.should_exit, server.force_exit) == (True, False)
    server.handle_exit(signal.SIGINT, None)
    assert server.force_exit
