"""Asking for plans: searches, stored answers, waiting, cancelling, conditional reads."""

import concurrent.futures
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from httpx import Response

from tests.api.conftest import Running, Start
from tests.helpers import service_documents as documents

WAIT = {"Prefer": "wait=30"}


def ask(running: Running, *, headers: dict[str, str] | None = None, **changes: object) -> Response:
    return running.client.post("/v1/plans", json=documents.request(**changes), headers=headers or {})


def search_of(running: Running, response: Response) -> dict[str, Any]:
    assert response.status_code == 202, response.text
    found: dict[str, Any] = running.client.get(response.headers["location"]).json()
    return found


def wait_until(running: Running, url: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + 60
    while True:
        found: dict[str, Any] = running.client.get(url).json()
        if done(found):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.02)


def is_done(search: dict[str, Any]) -> bool:
    return search["state"] in ("succeeded", "failed", "cancelled")


def num_starts(tmp_path: Path) -> int:
    path = tmp_path / "starts"
    return len(path.read_text().split()) if path.exists() else 0


def test_a_request_becomes_a_search_and_then_a_stored_answer(running: Running, tmp_path: Path) -> None:
    accepted = ask(running)
    assert accepted.status_code == 202
    assert accepted.headers["retry-after"] == "1"
    search = wait_until(running, accepted.headers["location"], is_done)
    assert (search["state"], search["status"], search["limit"], search["attempt"]) == (
        "succeeded",
        "succeeded",
        "optimal",
        1,
    )
    stored = ask(running)
    assert stored.status_code == 200
    assert stored.headers["content-location"] == search["plan"] == stored.json()["plan"]
    plan = running.client.get(search["plan"])
    assert plan.json() == stored.json()["plan_document"]
    assert plan.content in stored.content  # the stored bytes as they are
    assert num_starts(tmp_path) == 1


def test_prefer_wait_brings_the_answer(running: Running) -> None:
    answer = ask(running, headers=WAIT)
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=30"
    assert answer.json()["status"] == "succeeded"


def test_prefer_wait_ends_with_the_search_still_running(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "slow:60")
    accepted = ask(running, headers={"Prefer": "respond-async, wait=1"})
    assert accepted.status_code == 202
    assert accepted.json()["state"] in ("queued", "running")


def test_progress_of_a_running_search_is_seen(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "slow:60")
    url = ask(running).headers["location"]
    search = wait_until(running, url, lambda one: one["phase"] is not None)
    # (412 - 398) / 398
    assert (search["state"], search["incumbent_ns"], search["bound_ns"]) == ("running", 412, 398)
    assert search["gap"] == pytest.approx(0.0352, abs=1e-4)


def test_documents_may_be_given_by_digest(running: Running) -> None:
    profile = running.client.post("/v1/profiles", json=documents.profile()).json()["id"]
    cluster = running.client.post("/v1/clusters", json=documents.cluster()).json()["id"]
    by_digest = ask(running, headers=WAIT, profiles=[profile], cluster=cluster)
    inline = ask(running)
    assert (by_digest.status_code, inline.status_code) == (200, 200)
    assert by_digest.json() == inline.json()


def test_validating_starts_nothing(running: Running, tmp_path: Path) -> None:
    answer = ask(running, validate_only=True)
    assert answer.status_code == 200
    assert answer.json()["valid"] is True
    assert running.client.get("/v1/searches").json()["items"] == []
    assert running.client.get("/v1/profiles").json()["items"] == []
    search = search_of(running, ask(running))
    assert search["request_digest"] == answer.json()["request_digest"]


def test_another_time_limit_is_another_request(idle: Running) -> None:
    first, second = (search_of(idle, ask(idle, time_limit_ns=limit)) for limit in (10**9, 2 * 10**9))
    assert first["id"] != second["id"]


def test_100_equal_submissions_are_one_search_and_one_child(running: Running, tmp_path: Path) -> None:
    together = threading.Barrier(20)

    def submit(number: int) -> Response:
        if number < 20:
            together.wait(30)
        return ask(running, headers=WAIT)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(submit, range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["plan"] for answer in answers}) == 1
    assert len(running.client.get("/v1/searches").json()["items"]) == 1
    assert num_starts(tmp_path) == 1


def test_equal_submissions_share_a_live_search(idle: Running) -> None:
    searches = {search_of(idle, ask(idle, seed=77))["id"] for _ in range(5)}
    assert len(searches) == 1


def test_plans_are_read_conditionally(running: Running) -> None:
    link = ask(running, headers=WAIT).json()["plan"]
    plan = running.client.get(link)
    tag = plan.headers["etag"]
    assert tag == f'"{link.rpartition("/")[2]}"'
    for stated in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        unchanged = running.client.get(link, headers={"If-None-Match": stated})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    assert running.client.get(link, headers={"If-None-Match": '"other"'}).status_code == 200
    head = running.client.head(link)
    assert (head.status_code, head.headers["etag"]) == (200, tag)
    assert [one["url"] for one in running.client.get("/v1/plans").json()["items"]] == [link]


def test_nothing_fits_is_an_answer(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "infeasible")
    answer = ask(running, headers=WAIT)
    assert answer.status_code == 200
    found = answer.json()
    assert (found["status"], found["plan"], found["plan_document"]) == ("infeasible", None, None)
    assert (found["reasons"][0]["need_bytes"], found["reasons"][0]["have_bytes"]) == (2, 1)
    (search,) = running.client.get("/v1/searches").json()["items"]
    assert (search["state"], search["status"], search["error"]) == ("succeeded", "infeasible", None)


@pytest.mark.parametrize(
    ("behaviour", "code", "starts"),
    [("crash", "solver_crash", 2), ("memory", "out_of_memory", 1), ("failure:no_plan_in_time", "no_plan_in_time", 1)],
)
def test_a_search_fails_with_its_reason(
    running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, behaviour: str, code: str, starts: int
) -> None:
    monkeypatch.setenv("STAND_IN", behaviour)
    response = ask(running, headers=WAIT)
    assert (response.status_code, response.json()["state"]) == (202, "failed")
    assert response.json()["error"]["code"] == code
    assert num_starts(tmp_path) == starts
    assert running.client.get("/healthz").status_code == 200
    monkeypatch.setenv("STAND_IN", "answer")
    assert ask(running, headers=WAIT).status_code == 200  # a failure is not stored: the request may come again


def test_the_plan_of_a_killed_child_is_good_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "crash-after-incumbent")
    assert ask(running, headers=WAIT).json()["limit"] == "killed"
    monkeypatch.setenv("STAND_IN", "answer")
    assert ask(running, headers=WAIT).json()["limit"] == "optimal"


def test_a_waiting_search_is_cancelled(idle: Running) -> None:
    search = search_of(idle, ask(idle, seed=5))
    cancel = f"/v1/searches/{search['id']}:cancel"
    first, again = idle.client.post(cancel), idle.client.post(cancel)
    assert (first.status_code, first.json()["state"]) == (200, "cancelled")
    assert first.json() == again.json()
    assert search_of(idle, ask(idle, seed=5))["id"] != search["id"]


def test_a_running_search_is_cancelled_and_its_child_ends(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "slow:60")
    url = ask(running).headers["location"]
    wait_until(running, url, lambda one: one["phase"] is not None)
    assert running.client.post(url + ":cancel").json()["state"] == "cancelled"
    monkeypatch.setenv("STAND_IN", "answer")
    # the only runner is free again for another search; the cancelled one publishes nothing
    assert ask(running, headers=WAIT, seed=1).status_code == 200
    assert running.client.get(url).json()["state"] == "cancelled"
    assert running.client.get("/readyz").json()["running"] == 0


def test_a_done_search_is_not_cancelled(running: Running) -> None:
    ask(running, headers=WAIT)
    (search,) = running.client.get("/v1/searches").json()["items"]
    after = running.client.post(f"/v1/searches/{search['id']}:cancel").json()
    assert after == search


def test_a_full_queue_says_when_to_come_back(start: Start) -> None:
    with start(num_runners=0, most_waiting=2) as running:
        assert [ask(running, seed=seed).status_code for seed in (0, 1)] == [202, 202]
        refused = ask(running, seed=2)
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        assert ask(running, seed=0).status_code == 202  # a live search is joined all the same
        assert len(running.client.get("/v1/searches").json()["items"]) == 2


def test_two_runners_run_two_children(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STAND_IN", "slow:600")
    with start(num_runners=2) as running:
        urls = [ask(running, seed=seed).headers["location"] for seed in range(3)]
        for url in urls[:2]:
            wait_until(running, url, lambda one: one["phase"] is not None)
        assert running.client.get(urls[2]).json()["state"] == "queued"
        assert num_starts(tmp_path) == 2


def test_searches_are_listed_in_pages(idle: Running) -> None:
    for seed in range(100, 103):
        ask(idle, seed=seed)
    first = idle.client.get("/v1/searches", params={"page_size": 2}).json()
    second = idle.client.get("/v1/searches", params={"page_size": 1, "page_token": first["next_page_token"]}).json()
    created = [one["created_ns"] for one in first["items"] + second["items"]]
    assert created == sorted(created, reverse=True)
    assert len({one["id"] for one in first["items"] + second["items"]}) == 3


def test_the_service_says_what_it_is(running: Running) -> None:
    assert running.client.get("/healthz").json() == {"status": "ok"}
    ready = running.client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"], ready.json()["runner"]) == (200, True, "ok")
    version = running.client.get("/version").json()
    assert version["solver"].startswith("ortools ")
    assert version["limits"]["plan_request_bytes"] == 8 * 2**20


def test_a_draining_service_accepts_no_search(running: Running) -> None:
    running.service.begin_drain()
    refused = ask(running)
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert "retry-after" in refused.headers
    assert running.client.get("/readyz").status_code == 503
    assert running.client.get("/healthz").status_code == 200


def test_two_services_on_one_store_run_each_search_once(start: Start, tmp_path: Path) -> None:
    with start() as one, start() as other:
        urls = [ask(running, seed=seed).headers["location"] for seed in range(4) for running in (one, other)]
        assert len(set(urls)) == 4  # equal requests share a search, wherever they arrive
        for url in urls:
            found = wait_until(other, url, is_done)
            assert (found["state"], found["attempt"]) == ("succeeded", 1)
        assert num_starts(tmp_path) == 4
        assert one.client.get("/v1/plans").content == other.client.get("/v1/plans").content
