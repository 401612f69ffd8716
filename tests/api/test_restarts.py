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

from planner.problem.options import SearchOptions
from tests.helpers import service_documents as documents
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_request, make_workload

ROOT = Path(__file__).parents[2]
PLANNER = Path(sys.executable).with_name("planner")
SEARCH_S = 5.0
pytestmark = pytest.mark.timeout(600)  # many processes: slow where others use the machine too
REAL = "real"  # the solver child that users have, instead of a stand-in


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
            "PLANNER_CHILD_MODULE": "planner.search.child" if behaviour == REAL else "tests.helpers.stand_in_child",
            "TEST_HOST": str(self.folder),  # children inherit it: that is how they are found
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

    def submit(self, request: dict[str, Any]) -> str:
        """The id of an accepted search."""
        answer = self.client.post("/v1/plans", json=request)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def search(self, search_id: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/searches/{search_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def children(self) -> list[psutil.Process]:
        """Every process that the host's services started and that lives."""
        service = self.process.pid if self.process is not None else 0
        return [one for one in psutil.process_iter() if one.pid != service and self.is_ours(one)]

    def is_ours(self, process: psutil.Process) -> bool:
        """By an environment variable that children inherit; a process that waits to be reaped lives no more."""
        try:
            return process.environ().get("TEST_HOST") == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def wait_until(self, condition: Any, *, within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < until, "waited for too long"
            time.sleep(0.1)


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


def simple(seed: int) -> dict[str, Any]:
    return documents.request(seed=seed, time_limit_ns=60 * 10**9)


def long_search(seed: int) -> dict[str, Any]:
    """48 layers on eight ranks of two kinds: the solver works on it for more than 5 s."""
    draws = random.Random(1)
    times = [draws.randrange(500_000, 1_500_000) for _ in range(48)]
    problem = make_problem(
        profiles=[
            make_profile(kind=kind, layer_forward_ns=[factor * time_ns for time_ns in times])
            for kind, factor in (("fast", 1), ("slow", 2))
        ],
        cluster=make_cluster(("fast", 1, 4), ("slow", 1, 4)),
        workload=make_workload(global_batch_size=32),
    )
    return make_request(problem, SearchOptions(time_limit_ns=20 * 10**9, seed=seed)).model_dump(mode="json")


def kill_often(host: Host, requests: list[list[dict[str, Any]]], *, behaviour: str, seed: int) -> list[str]:
    """For each list of requests: start, accept them, kill at a random moment. Returns the accepted searches."""
    draws, accepted = random.Random(seed), []
    for batch in requests:
        host.start(behaviour)
        accepted += [host.submit(request) for request in batch]
        host.wait_until(lambda: len(host.children()) == 1)
        time.sleep(draws.uniform(0, SEARCH_S))
        assert host.end(signal.SIGKILL) == -signal.SIGKILL
        left = host.children()
        host.wait_until(lambda: not any(host.is_ours(one) for one in left), within_s=2)  # noqa: B023 - used at once
    return accepted


def finish(host: Host, accepted: list[str], *, behaviour: str = "answer", within_s: float = 60) -> None:
    """Start once more: every accepted search is there, and ends with a plan or a reason."""
    host.start(behaviour, num_runners=2)
    ended = ("succeeded", "failed")
    host.wait_until(lambda: all(host.search(one)["state"] in ended for one in accepted), within_s=within_s)
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
    # four services at the same time, five kills each, two new searches before each kill
    def suffer(number: int) -> int:
        host = hosts(f"host-{number}")
        requests = [[simple(10 * kill), simple(10 * kill + 1)] for kill in range(5)]
        accepted = kill_often(host, requests, behaviour=f"slow:{SEARCH_S}", seed=number)
        finish(host, accepted)
        return len(accepted)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(suffer, range(4))) == [10, 10, 10, 10]


def test_a_kill_in_a_real_search(hosts: Any) -> None:
    host = hosts("host")
    accepted = kill_often(host, [[long_search(0)]], behaviour=REAL, seed=5)
    finish(host, accepted, behaviour=REAL)


@pytest.mark.soak
def test_20_kills_in_real_searches(hosts: Any) -> None:
    host = hosts("host")
    accepted = kill_often(host, [[long_search(kill)] for kill in range(20)], behaviour=REAL, seed=6)
    finish(host, accepted, behaviour=REAL, within_s=600)


@pytest.mark.soak
def test_100_kills_of_one_service(hosts: Any) -> None:
    host = hosts("host")
    requests = [[simple(kill)] for kill in range(100)]
    finish(host, kill_often(host, requests, behaviour=f"slow:{SEARCH_S}", seed=99))


def test_a_stopped_service_queues_its_searches_again(hosts: Any) -> None:
    host = hosts("host")
    host.start("slow:60")
    running, waiting = host.submit(simple(1)), host.submit(simple(2))
    host.wait_until(lambda: host.search(running)["phase"] is not None)
    with ThreadPoolExecutor(1) as pool:  # a client that waits is answered before the service ends
        waits = pool.submit(host.client.get, f"/v1/searches/{running}", headers={"Prefer": "wait=60"})
        time.sleep(0.5)
        assert host.end(signal.SIGTERM) == 0
        assert waits.result().json()["state"] in ("running", "queued")
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
    search_id = host.submit(simple(1))
    host.wait_until(lambda: host.search(search_id)["phase"] is not None)
    (child,) = host.children()
    child.kill()
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
