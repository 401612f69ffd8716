"""planner search, here and at a service, with a stand-in for the solver child."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.attempts.attempt import AttemptSettings
from planner.cli.server import Server
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from tests.helpers import service_documents as documents
from tests.helpers.command import planner, write_problem
from tests.helpers.documents import make_problem, make_profile

ROOT = Path(__file__).parents[2]
PLANNER = Path(sys.executable).with_name("planner")
CHILD = "tests.helpers.stand_in_child"


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Searches of this process are answered by the stand-in, which behaves as it is told."""
    monkeypatch.setattr("planner.attempts.attempt.AttemptSettings", lambda: AttemptSettings(module=CHILD))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STAND_IN_STARTS", str(tmp_path / "starts"))
    return lambda text: monkeypatch.setenv("STAND_IN", text)


def problem_options(folder: Path) -> list[str]:
    options: list[str] = []
    for name, document in (
        ("profile", documents.profile()),
        ("cluster", documents.cluster()),
        ("workload", documents.workload()),
    ):
        (folder / f"{name}.json").write_text(json.dumps(document))
        options += [f"--{name}", str(folder / f"{name}.json")]
    return options


def plan_in(path: Path) -> Plan:
    return read_document(path.read_bytes(), Plan)


def test_the_plan_is_data_and_goes_to_stdout(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("answer")
    done = planner("search", *problem_options(tmp_path))
    assert done.code == 0, done.err
    plan = read_document(done.out.encode(), Plan)
    assert f"found plan {plan.digest[:12]}" in done.err


def test_the_plan_is_written_and_summed_up(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("answer")
    done = planner("search", *problem_options(tmp_path), "-o", tmp_path / "plan.json")
    assert done.code == 0, done.err
    assert plan_in(tmp_path / "plan.json").digest in done.out
    as_json = planner("search", *problem_options(tmp_path), "-o", tmp_path / "plan.json", "--force", "--json")
    assert isinstance(as_json.json, dict)
    assert (as_json.json["status"], as_json.json["limit"]) == ("succeeded", "optimal")
    assert as_json.json["plan"] == plan_in(tmp_path / "plan.json").digest


def test_a_request_file_is_searched_like_its_parts(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("answer")
    (tmp_path / "request.json").write_text(json.dumps(documents.request()))
    done = planner("search", "--request", tmp_path / "request.json", "-o", tmp_path / "plan.json")
    assert done.code == 0, done.err
    both = planner("search", "--request", tmp_path / "request.json", *problem_options(tmp_path))
    assert both.code == 2
    assert planner("search").code == 2


def test_a_request_by_digest_needs_a_service(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(documents.request(cluster="a" * 64)))
    done = planner("search", "--request", tmp_path / "request.json")
    assert done.code == 2
    assert "error[unknown_document]" in done.err


def test_progress_is_said_when_it_changes(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("slow:0.5")
    done = planner("search", *problem_options(tmp_path), "-o", tmp_path / "plan.json")
    assert done.code == 0
    assert done.err.count("partition, best step 412 ns, bound 398 ns, gap 3.5%\n") == 1


@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [
        ("infeasible", 3, "error[memory] at /layers/0: layer 0 needs more"),
        ("failure:no_plan_in_time", 5, "error[no_plan_in_time]"),
        ("failure:out_of_memory", 1, "error[out_of_memory]"),
        ("crash", 1, "error[solver_crash]"),
    ],
)
def test_a_search_without_a_plan_says_why(
    tmp_path: Path, behave: Callable[[str], None], behaviour: str, code: int, message: str
) -> None:
    behave(behaviour)
    done = planner("search", *problem_options(tmp_path), "-o", tmp_path / "plan.json")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert not (tmp_path / "plan.json").exists()


def test_infeasible_as_json(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("infeasible")
    done = planner("search", *problem_options(tmp_path), "--json")
    assert done.code == 3
    assert isinstance(done.json, dict)
    assert done.json["status"] == "infeasible"
    assert done.json["reasons"][0]["need_bytes"] == 2


def test_ctrl_c_writes_the_best_plan_and_exits_130(tmp_path: Path, behave: Callable[[str], None]) -> None:
    behave("slow:60")

    def interrupt_a_running_child() -> None:
        while not (tmp_path / "starts").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_a_running_child).start()
    before = signal.getsignal(signal.SIGINT)
    done = planner("search", *problem_options(tmp_path), "-o", tmp_path / "plan.json")
    assert done.code == 130, done.err
    assert plan_in(tmp_path / "plan.json").num_ranks >= 1
    assert "interrupted" in done.err
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "0.5s", "2h", "1000000000s", "ten"])
def test_a_wrong_time_limit_is_a_range_error(tmp_path: Path, limit: str) -> None:
    done = planner("search", *problem_options(tmp_path), f"--time-limit={limit}")
    assert done.code == 2
    assert done.err.startswith("error[range] at /time_limit_ns:")


def test_constraints_are_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "constraints.json").write_text('{"num_stages": 99}')
    done = planner("search", *problem_options(tmp_path), "--constraints", tmp_path / "constraints.json")
    assert done.code == 2
    assert done.err.startswith("error[stages_gt_layers] at /constraints/num_stages")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts ``planner serve`` whose searches end as the stand-in is told; gives its URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(behaviour: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {"PYTHONPATH": str(ROOT), "STAND_IN": behaviour, "PLANNER_CHILD_MODULE": CHILD}
        with open(tmp_path / "serve.log", "wb") as log:
            command = [PLANNER, "serve", "--port", str(port), "--store", str(tmp_path / "store.sqlite3")]
            started.append(subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log))
        url = f"http://127.0.0.1:{port}"
        Server(url).wait_ready(deadline_s=60)
        return url

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_a_service_is_asked_and_its_answer_kept(tmp_path: Path, serve: Callable[[str], str]) -> None:
    url = serve("slow:0.5")
    arguments = ["search", "--server", url, *problem_options(tmp_path)]
    first = planner(*arguments, "-o", tmp_path / "first.json")
    assert first.code == 0, first.err
    again = planner(*arguments, "-o", tmp_path / "again.json", "--json")
    assert again.code == 0, again.err
    assert plan_in(tmp_path / "first.json") == plan_in(tmp_path / "again.json")
    assert isinstance(again.json, dict)
    assert again.json["plan"] == plan_in(tmp_path / "first.json").digest


@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [("infeasible", 3, "error[memory]"), ("failure:no_plan_in_time", 5, "error[no_plan_in_time]")],
)
def test_a_service_without_a_plan_says_why(
    tmp_path: Path, serve: Callable[[str], str], behaviour: str, code: int, message: str
) -> None:
    done = planner("search", "--server", serve(behaviour), *problem_options(tmp_path), "-o", tmp_path / "plan.json")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert not (tmp_path / "plan.json").exists()


def test_ctrl_c_cancels_the_search_of_a_service(tmp_path: Path, serve: Callable[[str], str]) -> None:
    url = serve("slow:60")
    process = subprocess.Popen(
        [PLANNER, "search", "--server", url, *problem_options(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    server = Server(url)
    until = time.monotonic() + 60
    while not states(server) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert states(server) == ["cancelled"]


def states(server: Server) -> list[str]:
    listed = server.get("/v1/searches").document["items"]
    assert isinstance(listed, list)
    return [str(item["state"]) for item in listed]


def test_no_service_exits_9(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    done = planner("search", "--server", url, *problem_options(tmp_path))
    assert done.code == 9
    assert "error[server_unreachable]" in done.err


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--port", "99999"], ["--runners", "-1"]])
def test_wrong_settings_of_a_service_exit_78(tmp_path: Path, arguments: list[str]) -> None:
    done = planner("serve", "--store", tmp_path / "store.sqlite3", *arguments)
    assert done.code == 78
    assert "error[settings]" in done.err
    assert not (tmp_path / "store.sqlite3").exists()


def test_a_step_out_of_range_is_bad_input(tmp_path: Path) -> None:
    """10^15 ns is the longest duration of a document; F and B take that each."""
    long = make_problem(profiles=[make_profile(per_instruction_ns=10**15)])
    done = planner("search", *write_problem(tmp_path, long), "--time-limit", "1s")
    assert done.code == 2, done.err
    assert "error[range]" in done.err
    assert "expected at most 1000000000000000 ns" in done.err
