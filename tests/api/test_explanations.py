"""``GET /v1/plans/{id}/explanation`` and ``POST /v1/plans/{id}/revalidate``."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from planner.explain.documents import Explanation
from planner.explain.explain import explain
from planner.problem.reading import read_document
from tests.api.conftest import Running, Start
from tests.api.test_simulate import problem
from tests.helpers import service_documents as documents

WAIT = {"Prefer": "wait=30"}


@pytest.fixture
def plan_path(running: Running) -> str:
    """A stored plan, found by a search of this service."""
    answer = running.client.post("/v1/plans", json=documents.request(), headers=WAIT)
    return str(answer.json()["plan"])


def revalidate(running: Running, plan: str, **changes: object) -> Any:
    return running.client.post(f"{plan}/revalidate", json={"schema": "revalidate/1", **changes})


def test_an_explanation_is_that_of_the_stored_problem(running: Running, plan_path: str) -> None:
    answer = running.client.get(f"{plan_path}/explanation")
    assert answer.status_code == 200, answer.text
    found = read_document(answer.content, Explanation)
    assert found == explain(documents.simple_plan(problem()), problem())
    assert sum(share.time_ns for share in found.critical_path) == found.step_ns
    assert running.client.head(f"{plan_path}/explanation").status_code == 200


def test_the_same_facts_keep_the_plan(running: Running, plan_path: str) -> None:
    found = revalidate(running, plan_path, smallest_gain=1.0).json()
    assert found["verdict"] in ("keep", "replan")
    assert found["problem"] == problem().digest
    assert found["step_ns"] == explain(documents.simple_plan(problem()), problem()).step_ns
    assert found["stated_step_ns"] == 30_000_000


def test_slower_layers_are_worth_a_search(running: Running, plan_path: str) -> None:
    slower = documents.profile(time_ns=2_000_000)
    found = revalidate(running, plan_path, profiles=[slower], smallest_gain=1.0).json()
    assert (found["verdict"], found["code"]) == ("replan", "slower")
    uploaded = running.client.post("/v1/profiles", json=slower).json()["id"]
    assert revalidate(running, plan_path, profiles=[uploaded], smallest_gain=1.0).json() == found


def test_a_smaller_cluster_ends_the_plan(running: Running, plan_path: str) -> None:
    found = revalidate(running, plan_path, cluster=documents.cluster(1)).json()
    assert (found["verdict"], found["code"], found["step_ns"]) == ("replan", "missing_nodes", None)


def test_other_work_is_refused(running: Running, plan_path: str) -> None:
    other = documents.workload()
    other["global_batch_size"] *= 2
    answer = revalidate(running, plan_path, workload=other)
    assert (answer.status_code, answer.json()["code"]) == (422, "global_batch"), answer.text


def test_errors_name_what_is_missing(running: Running, plan_path: str) -> None:
    for answer, status, code in (
        (running.client.get(f"/v1/plans/{'a' * 64}/explanation"), 404, "not_found"),
        (revalidate(running, f"/v1/plans/{'a' * 64}"), 404, "not_found"),
        (revalidate(running, plan_path, plans=["a" * 64]), 422, "unknown_document"),
        (revalidate(running, plan_path, profiles=["a" * 64]), 422, "unknown_document"),
        (revalidate(running, plan_path, steps_left=-1), 422, "range"),
        (revalidate(running, plan_path, surprise=1), 422, "unknown_field"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_plan_without_its_problem_can_be_revalidated_with_a_whole_one(start: Start, tmp_path: Path) -> None:
    """A store that was written before problems were kept."""
    with start() as running:
        plan = running.client.post("/v1/plans", json=documents.request(), headers=WAIT).json()["plan"]
        with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
            connection.execute("DELETE FROM documents WHERE kind = 'problem'")
            connection.commit()
        for answer in (running.client.get(f"{plan}/explanation"), revalidate(running, plan)):
            assert (answer.status_code, answer.json()["code"]) == (422, "unknown_problem")
        whole = {"profiles": [documents.profile()], "cluster": documents.cluster(), "workload": documents.workload()}
        assert revalidate(running, plan, **whole).status_code == 200


def test_the_problem_is_kept_under_its_own_digest(running: Running, plan_path: str) -> None:
    plan = running.client.get(plan_path).json()
    payload = running.service.store.get("problem", plan["problem"])
    assert payload is not None
    assert json.loads(payload)["cluster"] == problem().cluster.digest
