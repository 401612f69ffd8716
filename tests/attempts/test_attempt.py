"""One search in solver children: answers, deadlines, crashes, and that nothing stays behind."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from planner.attempts.attempt import AttemptSettings, Watch, run_search
from planner.attempts.child import SolverChild
from planner.errors import SolverError
from planner.plan.answer import Answer, Progress
from planner.problem.reading import read_document
from planner.problem.request import Request
from tests.helpers import service_documents as documents

ROOT = Path(__file__).parents[2]
SETTINGS = AttemptSettings(module="tests.helpers.stand_in_child")


class Starts:
    """The children that a test started."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pids(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []

    def alive(self) -> list[int]:
        return [pid for pid in self.pids() if psutil.pid_exists(pid)]


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STAND_IN_STARTS", str(tmp_path / "starts"))
    return Starts(tmp_path / "starts")


def request(**changes: object) -> Request:
    return read_document(json.dumps(documents.request(**changes)).encode(), Request)


def run(monkeypatch: pytest.MonkeyPatch, behaviour: str, *, watch: Watch | None = None) -> Answer:
    monkeypatch.setenv("STAND_IN", behaviour)
    return run_search(request(), SETTINGS, watch=watch or Watch())


def failure(monkeypatch: pytest.MonkeyPatch, behaviour: str) -> SolverError:
    with pytest.raises(SolverError) as caught:
        run(monkeypatch, behaviour)
    return caught.value


def test_the_answer_of_a_child_comes_back(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run(monkeypatch, "answer")
    assert (answer.status, answer.limit) == ("succeeded", "optimal")
    assert answer.plan is not None
    assert answer.plan.num_ranks == 2
    assert (len(starts.pids()), starts.alive()) == (1, [])


def test_nothing_fits_is_an_answer(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run(monkeypatch, "infeasible")
    assert answer.status == "infeasible"
    assert [reason.code for reason in answer.reasons] == ["memory"]


def test_progress_is_passed_on(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    run(monkeypatch, "slow:0.3", watch=Watch(on_progress=seen.append))
    assert len(seen) >= 2
    assert (seen[0].phase, seen[0].bound_ns) == ("partition", 398)


@pytest.mark.parametrize(
    ("behaviour", "code", "num_starts"),
    [
        ("crash", "solver_crash", 2),
        ("silent-exit", "solver_crash", 2),
        ("nonsense", "solver_crash", 2),
        ("memory", "out_of_memory", 1),
        ("failure:no_plan_in_time", "no_plan_in_time", 1),
        ("failure:out_of_memory", "out_of_memory", 1),
        ("failure:internal", "internal", 1),
    ],
)
def test_a_lost_child_is_a_named_error(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, behaviour: str, code: str, num_starts: int
) -> None:
    assert failure(monkeypatch, behaviour).code == code
    assert (len(starts.pids()), starts.alive()) == (num_starts, [])


def test_a_second_try_follows_a_crash(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "crash-once").status == "succeeded"
    assert len(starts.pids()) == 2


def test_the_second_try_has_one_worker_and_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Request] = []

    def lose(request: Request, settings: AttemptSettings, watch: Watch) -> Answer:
        tried.append(request)
        raise SolverError("lost", code="solver_crash")

    monkeypatch.setattr("planner.attempts.attempt._run_child", lose)
    with pytest.raises(SolverError):
        run_search(request(mode="fast", seed=7), SETTINGS, watch=Watch())
    assert [(one.mode, one.seed) for one in tried] == [("fast", 7), ("reproducible", 7)]


def test_the_last_incumbent_survives_its_child(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run(monkeypatch, "crash-after-incumbent")
    assert (answer.status, answer.limit) == ("succeeded", "killed")
    assert answer.plan is not None
    assert len(starts.pids()) == 1


def stop_soon(stop: threading.Event, when: Callable[[], bool]) -> threading.Thread:
    def wait() -> None:
        until = time.monotonic() + 60
        while not when() and time.monotonic() < until:
            time.sleep(0.02)
        stop.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_soft_stop_brings_the_best_so_far(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    watch = Watch(on_progress=seen.append)
    thread = stop_soon(watch.stop, lambda: bool(seen))
    answer = run(monkeypatch, "slow:60", watch=watch)
    thread.join()
    assert (answer.status, answer.limit) == ("succeeded", "wall")


def test_a_child_that_ignores_everything_is_killed(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    thread = stop_soon(watch.stop, lambda: bool(starts.pids()))
    monkeypatch.setenv("STAND_IN", "deaf:60")
    with pytest.raises(SolverError) as caught:
        run_search(request(), SETTINGS, watch=watch)
    thread.join()
    assert caught.value.code == "no_plan_in_time"
    assert starts.alive() == []


def test_a_child_beyond_its_limit_is_killed(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    # limit 1 s: the kill falls at 1.25 x 1 + 5 = 6.25 s, long before the 60 s of the child
    assert failure(monkeypatch, "deaf:60").code == "no_plan_in_time"
    assert starts.alive() == []


def test_a_child_that_does_not_read_blocks_nobody() -> None:
    child = SolverChild("this_module_does_not_exist", memory_limit_bytes=2**30)
    for _ in range(100):
        child.send(b"x" * 100_000)
    while not child.ended:
        assert child.lines(within_s=0.05) == []
    end = child.close(grace_s=5.0)
    assert end.status == 1
    assert "this_module_does_not_exist" in end.log


def test_children_die_with_a_parent_that_is_killed(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "slow:60")
    source = (
        "from tests.attempts.test_attempt import SETTINGS, Watch, request, run_search\n"
        "run_search(request(), SETTINGS, watch=Watch())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, env=dict(os.environ))
    until = time.monotonic() + 60
    while not starts.pids() and time.monotonic() < until:
        time.sleep(0.05)
    assert len(starts.alive()) == 1
    parent.kill()
    parent.wait()
    until = time.monotonic() + 10
    while starts.alive() and time.monotonic() < until:
        time.sleep(0.05)
    assert starts.alive() == []
