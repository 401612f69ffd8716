"""Real service processes: killed at random moments, stopped politely, started again on the same store."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.helpers import service_documents as documents

ROOT = Path(__file__).parents[2]
PLANNER = Path(sys.executable).with_name("planner")
SEARCH_S = 5.0


class Host:
    """A machine with one store, on which services are started and killed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.starts = folder, folder / "starts"
        self.process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(timeout=30, trust_env=False)

    def start(self, behaviour: str, **settings: object) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        given = {f"PLANNER_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {
            **os.environ,
            **given,
            "PLANNER_PORT": str(port),
            "PYTHONPATH": str(ROOT),
            "STAND_IN": behaviour,
            "STAND_IN_STARTS": str(self.starts),
            "PLANNER_CHILD_MODULE": "tests.helpers.stand_in_child",
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "api"], cwd=self.folder, env=environment, stderr=log
            )
        self.client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        self.wait_until(self.is_ready)

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: signal.Signals) -> int:
        """Send a signal to the service; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def submit(self, seed: int) -> str:
        """The id of an accepted search."""
        answer = self.client.post("/v1/plans", json=documents.request(seed=seed, time_limit_ns=60 * 10**9))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def search(self, search_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/searches/{search_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def children(self) -> list[int]:
        """Solver children that are alive; one that only waits to be reaped is not."""
        pids = [int(line) for line in self.starts.read_text().split()] if self.starts.exists() else []
        return [pid for pid in pids if _lives(pid)]

    def wait_until(self, condition: Any, *, within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < until, "waited for too long"
            time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def hosts(tmp_path: Path) -> Any:
    made: list[Host] = []

    def make(name: str) -> Host:
        made.append(Host(tmp_path / name))
        return made[-1]

    yield make
    for host in made:
        host.client.close()
        if host.process is not None and host.process.poll() is None:
            host.process.kill()
            host.process.wait()


def kill_often(host: Host, *, seed: int, kills: int) -> list[str]:
    """Kill the service at random moments of a search that takes 5 s; returns the accepted searches."""
    draws, accepted = random.Random(seed), []
    for kill in range(kills):
        host.start(f"slow:{SEARCH_S}", most_attempts=3)
        accepted += [host.submit(seed * 1000 + 2 * kill + number) for number in range(2)]
        host.wait_until(lambda: len(host.children()) == 1)
        time.sleep(draws.uniform(0, SEARCH_S))
        assert host.end(signal.SIGKILL) == -signal.SIGKILL
        host.wait_until(lambda: not host.children(), within_s=2)
    return accepted


def finish(host: Host, accepted: list[str]) -> None:
    """Start once more: every accepted search is there, and ends with a plan or a reason."""
    host.start("answer")
    host.wait_until(lambda: all(host.search(one)["state"] in ("succeeded", "failed") for one in accepted))
    for search_id in accepted:
        found = host.search(search_id)
        if found["state"] == "succeeded":
            assert host.client.get(found["plan"]).status_code == 200
        else:
            assert (found["error"]["code"], found["attempt"]) == ("solver_crash", 3)
            assert found["error"]["message"]
    assert len({host.search(one)["request_digest"] for one in accepted}) == len(accepted)
    assert host.end(signal.SIGTERM) == 0


def test_20_kills_lose_no_search_and_leave_no_child(hosts: Any) -> None:
    # four services at the same time, five kills each
    with ThreadPoolExecutor(4) as pool:
        made = [hosts(f"host-{number}") for number in range(4)]
        accepted = list(pool.map(lambda one: kill_often(made[one], seed=one, kills=5), range(4)))
        list(pool.map(finish, made, accepted))
    assert [len(one) for one in accepted] == [10, 10, 10, 10]


@pytest.mark.soak
def test_100_kills_of_one_service(hosts: Any) -> None:
    host = hosts("host")
    finish(host, kill_often(host, seed=99, kills=100))


def test_a_stopped_service_queues_its_searches_again(hosts: Any) -> None:
    host = hosts("host")
    host.start("slow:60")
    running, waiting = host.submit(1), host.submit(2)
    host.wait_until(lambda: host.search(running)["phase"] is not None)
    begin = time.monotonic()
    assert host.end(signal.SIGTERM) == 0
    assert time.monotonic() - begin < 15
    assert host.children() == []
    host.start("answer", num_runners=0)
    assert [(host.search(one)["state"], host.search(one)["attempt"]) for one in (running, waiting)] == [
        ("queued", 0),
        ("queued", 0),
    ]
    host.end(signal.SIGTERM)
    host.start("answer")
    for search_id in (running, waiting):
        host.wait_until(lambda one=search_id: host.search(one)["state"] == "succeeded")
        assert host.search(search_id)["attempt"] == 1


def test_a_killed_child_costs_one_try(hosts: Any) -> None:
    host = hosts("host")
    host.start("slow:1.5")
    search_id = host.submit(1)
    host.wait_until(lambda: host.search(search_id)["phase"] is not None)
    (child,) = host.children()
    os.kill(child, signal.SIGKILL)
    host.wait_until(lambda: host.search(search_id)["state"] == "succeeded")
    assert len(host.starts.read_text().split()) == 2
    assert host.search(search_id)["attempt"] == 1


def test_everything_is_there_after_a_restart(hosts: Any) -> None:
    host = hosts("host")
    host.start("answer")
    answer = host.client.post("/v1/plans", json=documents.request(), headers={"Prefer": "wait=30"}).json()
    paths = [answer["plan"], *(f"/v1/{name}" for name in ("profiles", "clusters", "plans", "searches"))]
    before = [host.client.get(path).content for path in paths]
    host.end(signal.SIGKILL)
    host.start("crash")  # nothing is searched again
    assert [host.client.get(path).content for path in paths] == before
    assert host.client.post("/v1/plans", json=documents.request()).json() == answer


@pytest.mark.parametrize(
    "settings",
    [{"PLANNER_HOST": "0.0.0.0"}, {"PLANNER_PORT": "many"}, {"PLANNER_STORE": "/proc/nowhere/store.sqlite3"}],
)
def test_bad_settings_end_before_the_port_is_bound(tmp_path: Path, settings: dict[str, str]) -> None:
    done = subprocess.run(
        [PLANNER, "serve"], cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 78, done.stderr
    assert b"listening" not in done.stderr


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_a_connection_without_a_whole_request_is_closed(hosts: Any, sent: bytes) -> None:
    host = hosts("host")
    host.start("answer", header_deadline_ns=10**9)
    with socket.create_connection(("127.0.0.1", host.client.base_url.port or 0), timeout=30) as half:
        half.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert half.recv(1000) == b""  # closed before the 30 s of this socket are over
    assert host.is_ready()
