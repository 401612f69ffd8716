"""The solver child as its parent sees it: a request in, events out, stops, limits, and a parent that dies."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from planner.plan.answer import ChildEvent
from planner.problem.options import Constraints, SearchOptions
from planner.problem.reading import read_document
from planner.problem.request import Request
from tests.helpers.documents import digest_of, make_cluster, make_problem, make_profile, make_request, make_workload

GENEROUS_S = 120.0
LIMIT_BYTES = 2 * 2**30


def start(limit_bytes: int = LIMIT_BYTES) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "planner.search.child", "--memory-limit-bytes", str(limit_bytes)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    process = start()
    yield process
    finish(process)


def finish(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def send(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def next_event(process: "subprocess.Popen[bytes]") -> ChildEvent:
    assert process.stdout is not None
    return read_document(process.stdout.readline(), ChildEvent)


def last_event(process: "subprocess.Popen[bytes]") -> ChildEvent:
    """The answer or failure; what comes before is read too."""
    while True:
        event = next_event(process)
        if event.answer is not None or event.failure is not None:
            return event


def long_request() -> bytes:
    """A search that takes a minute: many layers and devices of two kinds."""
    times = [1_000_000 + 1_000 * number for number in range(48)]
    profiles = [
        make_profile(layer_forward_ns=times),
        make_profile(kind="cpu-b", layer_forward_ns=[2 * time for time in times]),
    ]
    cluster = make_cluster(("cpu-a", 2, 8), ("cpu-b", 2, 8))
    workload = make_workload(global_batch_size=256)
    problem = make_problem(profiles=profiles, cluster=cluster, workload=workload)
    return make_request(problem, SearchOptions(time_limit_ns=600 * 10**9)).model_dump_json().encode()


def test_answers_and_leaves(child: "subprocess.Popen[bytes]") -> None:
    send(child, make_request().model_dump_json().encode())
    answer = last_event(child).answer
    assert answer is not None
    assert (answer.status, answer.limit) == ("succeeded", "optimal")
    assert answer.plan is not None
    assert answer.plan.problem == make_problem().digest
    assert child.wait(GENEROUS_S) == 0


@pytest.mark.parametrize("how", ["line", "signal"])
def test_soft_stop_gives_the_best_so_far(child: "subprocess.Popen[bytes]", how: str) -> None:
    send(child, long_request())
    event = next_event(child)
    while event.incumbent is None:
        event = next_event(child)
    if how == "line":
        send(child, b"stop")
    else:
        child.send_signal(signal.SIGINT)
    answer = last_event(child).answer
    assert answer is not None
    assert answer.limit == "wall"
    assert answer.plan is not None
    assert answer.plan.prediction is not None
    assert event.incumbent.prediction is not None
    assert answer.plan.prediction.step_ns <= event.incumbent.prediction.step_ns
    assert child.wait(GENEROUS_S) == 0


def test_ends_when_its_parent_is_gone(child: "subprocess.Popen[bytes]") -> None:
    send(child, long_request())
    event = next_event(child)
    assert event.answer is None
    assert child.stdin is not None
    child.stdin.close()
    child.stdin = None
    assert child.wait(GENEROUS_S) == 0


def failure_code(process: "subprocess.Popen[bytes]", line: bytes) -> str:
    send(process, line)
    failure = last_event(process).failure
    assert failure is not None
    assert process.wait(GENEROUS_S) == 0
    return failure.code


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{}",
        make_request().model_copy(update={"cluster": digest_of("another")}).model_dump_json().encode(),
        make_request(options=SearchOptions(constraints=Constraints(num_stages=99))).model_dump_json().encode(),
    ],
    ids=["no JSON", "no request", "by digest", "too many stages"],
)
def test_bad_requests_are_invalid(child: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert failure_code(child, line) == "invalid"


def test_problems_of_two_models_are_invalid(child: "subprocess.Popen[bytes]") -> None:
    request = json.loads(make_request().model_dump_json())
    request["profiles"].append({**request["profiles"][0], "model": {**request["profiles"][0]["model"]}})
    assert failure_code(child, json.dumps(request).encode()) == "invalid"


def test_memory_limit_is_kept() -> None:
    """So little that the solver cannot be loaded: told as out of memory, or a death that the parent sees."""
    process = start(limit_bytes=180 * 2**20)
    try:
        send(process, make_request().model_dump_json().encode())
        assert process.stdout is not None
        events = [read_document(line, ChildEvent) for line in process.stdout.readlines()]
        assert all(event.answer is None for event in events)
        if process.wait(GENEROUS_S) == 0:
            assert events[-1].failure is not None
            assert events[-1].failure.code == "out_of_memory"
    finally:
        finish(process)


def test_nothing_fits_is_an_answer(child: "subprocess.Popen[bytes]") -> None:
    problem = make_problem(cluster=make_cluster(usable_bytes=10_000))
    send(child, make_request(problem).model_dump_json().encode())
    answer = last_event(child).answer
    assert answer is not None
    assert answer.status == "infeasible"
    assert answer.reasons[0].need_bytes is not None


def test_requests_survive_the_pipe() -> None:
    line = make_request().model_dump_json().encode()
    assert read_document(line, Request) == make_request()
