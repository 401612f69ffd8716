"""``POST /v1/simulate``: the predicted step of a plan, without a search."""

import json
from typing import Any

from planner.costs.price import price_plan
from planner.problem.cluster import Cluster
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.workload import Workload
from planner.simulate.simulate import simulate
from tests.api.conftest import Running
from tests.helpers import service_documents as documents
from tests.helpers.bad_inputs import MARKER


def problem() -> Problem:
    def read(value: object, kind: type[Any]) -> Any:
        return read_document(json.dumps(value).encode(), kind)

    profile = read(documents.profile(), ModelProfile)
    return Problem((profile,), read(documents.cluster(), Cluster), read(documents.workload(), Workload))


def body(plan: object, **changes: object) -> dict[str, Any]:
    found: dict[str, Any] = {
        "schema": "simulate/1",
        "plan": plan,
        "profiles": [documents.profile()],
        "cluster": documents.cluster(),
        "workload": documents.workload(),
    }
    return {**found, **changes}


def test_the_prediction_is_the_simulators(running: Running) -> None:
    plan = documents.simple_plan(problem())
    found = running.client.post("/v1/simulate", json=body(documents.plan_for(problem()))).json()
    timeline = simulate(plan, price_plan(plan, problem()))
    assert (found["plan"], found["step_ns"]) == (plan.digest, timeline.step_ns)
    assert found["groups"][0]["busy_ns"] == timeline.busy_ns[0]
    # 3 layers x 4 samples a rank x (1 + 2) ms, and the overheads
    assert 36_000_000 <= found["step_ns"] < 37_000_000
    assert running.client.get("/v1/plans").json()["items"] == []


def test_conditions_may_differ_from_those_of_the_plan(running: Running) -> None:
    slower = documents.profile(time_ns=2_000_000)
    slow = running.client.post("/v1/simulate", json=body(documents.plan_for(problem()), profiles=[slower])).json()
    fast = running.client.post("/v1/simulate", json=body(documents.plan_for(problem()))).json()
    assert slow["step_ns"] > 1.9 * fast["step_ns"]


def test_a_stored_plan_is_simulated_by_its_digest(running: Running) -> None:
    link = running.client.post("/v1/plans", json=documents.request(), headers={"Prefer": "wait=30"}).json()["plan"]
    found = running.client.post("/v1/simulate", json=body(link.rpartition("/")[2]))
    assert found.status_code == 200
    assert found.json()["prediction"]["step_ns"] == 30_000_000


def test_what_cannot_be_simulated_is_named(running: Running) -> None:
    plan = documents.plan_for(problem())
    cases = [
        (body("a" * 64), "unknown_document", "/plan"),
        (body({**plan, "streams": ["0F0 0B0 0G0"]}), "updates", "/plan"),
        (body({**plan, "streams": [f"0F0 {MARKER}"]}), "stream_text", "/plan"),
        (body({**plan, "graph": {**plan["graph"], "model": "e" * 64}}), "model_mismatch", "/plan/graph/model"),
        (body(plan, cluster=documents.cluster(1, kind="cpu-other")), "no_profile_for_device", ""),
        (body(plan, workload={**documents.workload(), "precision": "bf16"}), "precision_mismatch", ""),
    ]
    for document, code, pointer in cases:
        response = running.client.post("/v1/simulate", json=document)
        found = response.json()
        assert response.status_code == 422, response.text
        assert found["code"] == code, response.text
        assert found["errors"][0]["pointer"].startswith(pointer)
        assert MARKER not in response.text
