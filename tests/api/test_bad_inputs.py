"""Every bad input is refused with its status and machine code, quickly, briefly, and leaves nothing behind."""

import pytest
from httpx import Response

from tests.api.conftest import Running
from tests.helpers import service_documents as documents
from tests.helpers.bad_inputs import BAD_DOCUMENTS, BAD_JSON, MARKER, BadInput

PATHS = {"profile": "/v1/profiles", "cluster": "/v1/clusters", "request": "/v1/plans"}
JSON = {"Content-Type": "application/json"}


def nothing_is_stored(running: Running) -> bool:
    paths = ("/v1/profiles", "/v1/clusters", "/v1/plans", "/v1/searches")
    return all(running.client.get(path).json()["items"] == [] for path in paths)


def check_error(response: Response, *, status: int, code: str) -> None:
    """One error document of ours."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert (found["code"], found["status"]) == (code, status)
    assert 1 <= len(found["errors"]) <= 20
    assert found["error_count"] >= len(found["errors"])
    assert response.text.isascii()
    assert len(response.content) < 16_384


@pytest.mark.parametrize("bad", BAD_JSON + BAD_DOCUMENTS, ids=lambda bad: bad.id)
def test_a_bad_input_is_refused(idle: Running, bad: BadInput) -> None:
    response = idle.client.post(PATHS[bad.document], content=bad.make(), headers=JSON)
    check_error(response, status=bad.status, code=bad.code)
    for text in bad.also:
        assert text in response.text
    assert MARKER not in response.text
    assert nothing_is_stored(idle)


@pytest.mark.parametrize("bad", [bad for bad in BAD_JSON if bad.document == "request"], ids=lambda bad: bad.id)
def test_a_bad_simulation_is_refused(idle: Running, bad: BadInput) -> None:
    response = idle.client.post("/v1/simulate", content=bad.make(), headers=JSON)
    # the bytes are a plan request: where they are one JSON document it is the schema that is wrong first
    code = "schema" if bad.code == "type" else bad.code
    check_error(response, status=bad.status, code=code)


def test_a_long_name_is_answered_briefly(idle: Running) -> None:
    rows = [bad for bad in BAD_DOCUMENTS if bad.row == 25]
    assert len(rows) == 3
    for bad in rows:
        response = idle.client.post(PATHS[bad.document], content=bad.make(), headers=JSON)
        assert len(response.content) < 2_048


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", None])
@pytest.mark.parametrize("document", PATHS)
def test_another_media_type_is_refused(idle: Running, document: str, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = idle.client.post(PATHS[document], content=b"{}", headers=headers)
    check_error(response, status=415, code="content_type")


def test_another_charset_is_refused(idle: Running) -> None:
    response = idle.client.post(
        "/v1/plans", content=b"{}", headers={"Content-Type": "application/json; charset=utf-16"}
    )
    check_error(response, status=415, code="content_type")


def test_a_compressed_body_is_refused(idle: Running) -> None:
    response = idle.client.post("/v1/plans", content=b"\x1f\x8b", headers={**JSON, "Content-Encoding": "gzip"})
    check_error(response, status=415, code="content_encoding")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/plans", "GET, HEAD, POST"),
        ("/v1/profiles", "GET, HEAD, POST"),
        ("/v1/clusters/" + "a" * 64, "GET, HEAD, PUT"),
        ("/v1/plans/" + "a" * 64, "GET, HEAD"),
        ("/v1/searches/" + "a" * 32, "GET, HEAD"),
        ("/v1/simulate", "POST"),
        ("/healthz", "GET, HEAD"),
    ],
)
def test_a_wrong_method_names_the_right_ones(idle: Running, path: str, allowed: str) -> None:
    response = idle.client.delete(path)
    check_error(response, status=405, code="method")
    assert response.headers["allow"] == allowed


def test_too_large_bodies_are_refused_before_parsing(idle: Running) -> None:
    declared = idle.client.post("/v1/plans", content=b"[" * (8 * 2**20 + 1), headers=JSON)
    check_error(declared, status=413, code="too_large_body")
    assert declared.headers["connection"] == "close"
    parts = (b"[" * 2**20 for _ in range(9))
    check_error(idle.client.post("/v1/plans", content=parts, headers=JSON), status=413, code="too_large_body")
    just = b" " * (8 * 2**20)
    check_error(idle.client.post("/v1/plans", content=just, headers=JSON), status=400, code="json_invalid")


def test_every_row_of_the_table_is_tested() -> None:
    asked = {1, 2, 3, *range(8, 32), *range(37, 48), 53, 54, 55, 57, 60, 61, *range(64, 77), 78, 79, 84, 86, 88}
    # requests that are not one document (30, 31), legal ones (64, 70, 72: test_uploads; 78, 79, 86: test_real_searches)
    elsewhere = {30, 31, 64, 70, 72, 78, 79, 86}
    tabled = {bad.row for bad in BAD_JSON + BAD_DOCUMENTS}
    assert tabled | elsewhere == asked - {77}
    assert len({bad.id for bad in BAD_JSON + BAD_DOCUMENTS}) == len(BAD_JSON + BAD_DOCUMENTS)


def test_a_defect_of_ours_tells_nothing(idle: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(search_id: str) -> None:
        raise RuntimeError(f"secret {MARKER}")

    monkeypatch.setattr(idle.service.store, "search", broken)
    response = idle.client.get("/v1/searches/" + "a" * 32)
    check_error(response, status=500, code="internal")
    assert MARKER not in response.text


def test_a_list_of_faults_is_cut_and_counted(idle: Running) -> None:
    request = documents.request()
    request.update({f"unknown_{number}": MARKER for number in range(100)})
    response = idle.client.post("/v1/plans", json=request)
    check_error(response, status=422, code="unknown_field")
    assert (len(response.json()["errors"]), response.json()["error_count"]) == (20, 100)
    assert MARKER not in response.text


@pytest.mark.parametrize(
    "path", ["/v1/plans/../../etc/passwd", "/v1/plans/%2e%2e%2fetc", "/v1/plans/ABC", "/v1/plans/1"]
)
def test_an_id_that_is_no_digest_is_refused(idle: Running, path: str) -> None:
    response = idle.client.get(path)
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"
    assert "passwd" not in response.text


def test_an_unknown_id_is_not_found(idle: Running) -> None:
    for path in ("/v1/plans/", "/v1/profiles/", "/v1/clusters/"):
        check_error(idle.client.get(path + "a" * 64), status=404, code="not_found")
    check_error(idle.client.get("/v1/searches/" + "a" * 32), status=404, code="not_found")
    check_error(idle.client.post("/v1/searches/" + "a" * 32 + ":cancel"), status=404, code="not_found")
    check_error(idle.client.get("/v2/anything"), status=404, code="not_found")


def test_a_digest_that_was_not_uploaded_is_named(idle: Running) -> None:
    response = idle.client.post("/v1/plans", json=documents.request(cluster="a" * 64))
    check_error(response, status=422, code="unknown_document")
    assert response.json()["errors"][0]["pointer"] == "/cluster"


def test_a_foreign_host_is_refused(idle: Running) -> None:
    for host in ("attacker.example", "127.0.0.1.attacker.example", "127.0.0.1:80:80", ""):
        check_error(idle.client.get("/healthz", headers={"Host": host}), status=400, code="host")
    for host in ("localhost:8000", "[::1]:8000", "127.0.0.1"):
        assert idle.client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("page_size=0", "range"),
        ("page_size=201", "range"),
        ("page_size=many", "type"),
        ("page_token=AAAA", "page_token"),
        ("page_token=%00%ff", "page_token"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/plans", "/v1/profiles", "/v1/searches"])
def test_a_bad_page_is_refused(idle: Running, path: str, query: str, code: str) -> None:
    check_error(idle.client.get(f"{path}?{query}"), status=422, code=code)
