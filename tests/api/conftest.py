"""Services for the tests: in this process with a stand-in for the solver child, each on a store of its own."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.service import Service, open_service
from api.settings import read_settings

ROOT = Path(__file__).parents[2]
BASE_URL = "http://127.0.0.1"


class Running:
    """A service and a client of it, which checks that each answer is one that ``/openapi.json`` describes."""

    def __init__(self, service: Service, client: TestClient) -> None:
        self.service, self.client = service, client
        paths = client.get("/openapi.json").json()["paths"]
        self._described = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), operations) for path, operations in paths.items()
        ]
        client.event_hooks = {"response": [self._check]}

    def _check(self, response: Any) -> None:
        method = response.request.method.lower().replace("head", "get")
        for path, operations in self._described:
            if path.fullmatch(response.request.url.path) and method in operations:
                described = operations[method]["responses"]
                assert str(response.status_code) in described, (method, path.pattern, response.status_code)
                return


Start = Callable[..., AbstractContextManager[Running]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts services on one store, one after the other; keywords are settings."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STAND_IN_STARTS", str(tmp_path / "starts"))

    @contextmanager
    def begin(**settings: object) -> Iterator[Running]:
        given = {"store": tmp_path / "store.sqlite3", "child_module": "tests.helpers.stand_in_child", **settings}
        service = open_service(read_settings(**given))
        with TestClient(create_app(service), base_url=BASE_URL, raise_server_exceptions=False) as client:
            yield Running(service, client)

    return begin


@pytest.fixture
def running(start: Start) -> Iterator[Running]:
    with ExitStack() as stack:
        yield stack.enter_context(start())


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of a whole module that runs no searches: what it accepts stays visible."""
    store = tmp_path_factory.mktemp("idle") / "store.sqlite3"
    service = open_service(read_settings(store=store, num_runners=0))
    with TestClient(create_app(service), base_url=BASE_URL, raise_server_exceptions=False) as client:
        yield Running(service, client)
