"""``/openapi.json`` describes every route, every status and every contract; docs/errors.md explains every code."""

import re
from pathlib import Path
from typing import Any

import pytest

from api.errors import STATUS_OF_CODE
from api.settings import Settings
from planner.problem.canonical import canonical_bytes
from tests.api.conftest import Running

ROOT = Path(__file__).parents[2]


@pytest.fixture
def described(idle: Running) -> dict[str, Any]:
    found: dict[str, Any] = idle.client.get("/openapi.json").json()
    return found


def operations(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_described(described: dict[str, Any]) -> None:
    assert set(operations(described)) == {
        "GET /healthz",
        "GET /readyz",
        "GET /version",
        "POST /v1/plans",
        "GET /v1/plans",
        "GET /v1/plans/{document_id}",
        "GET /v1/searches",
        "GET /v1/searches/{search_id}",
        "POST /v1/searches/{search_id}:cancel",
        "POST /v1/profiles",
        "GET /v1/profiles",
        "GET /v1/profiles/{document_id}",
        "PUT /v1/profiles/{document_id}",
        "POST /v1/clusters",
        "GET /v1/clusters",
        "GET /v1/clusters/{document_id}",
        "PUT /v1/clusters/{document_id}",
        "POST /v1/simulate",
        "GET /v1/plans/{document_id}/explanation",
        "POST /v1/plans/{document_id}/revalidate",
    }


def test_every_error_is_an_error_document(described: dict[str, Any]) -> None:
    for name, operation in operations(described).items():
        for status, response in operation["responses"].items():
            if int(status) >= 400 and (name, status) != ("GET /readyz", "503"):
                assert response["content"] == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ErrorDocument"}}
                }


def test_every_status_of_a_code_is_described_somewhere(described: dict[str, Any]) -> None:
    statuses = {int(status) for one in operations(described).values() for status in one["responses"]}
    assert set(STATUS_OF_CODE.values()) | {200, 201, 202, 304, 422} == statuses


def test_a_plan_request_has_its_schema(described: dict[str, Any]) -> None:
    operation = operations(described)["POST /v1/plans"]
    assert operation["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Request"}
    schema = described["components"]["schemas"]["Request"]
    assert {"schema", "profiles", "cluster", "workload"} == set(schema["required"])


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    text = canonical_bytes(described).decode()
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(described["components"]["schemas"])
    assert len(names) > 20


def test_every_code_of_the_service_is_explained() -> None:
    explained = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for code, status in STATUS_OF_CODE.items():
        assert re.search(rf"^\| {status} \|.*`{code}`", explained, re.MULTILINE), (code, status)


def test_the_page_for_people_names_every_route_and_setting(described: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    for path in described["paths"]:
        assert path.replace("{document_id}", "{id}").replace("{search_id}", "{id}").removesuffix("/{id}") in page, path
    for name in Settings.model_fields:
        assert f"`PLANNER_{name.upper()}`" in page, name
