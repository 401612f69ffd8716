"""Profiles and clusters: named by their bytes, never changed, legal but odd ones are accepted with a warning."""

import hashlib
import json
from typing import Any

import pytest

from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from tests.api.conftest import Running, Start
from tests.helpers import service_documents as documents


def upload(running: Running, path: str, document: dict[str, Any]) -> dict[str, Any]:
    response = running.client.post(path, json=document)
    assert response.status_code in (200, 201), response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_id_is_the_hash_of_what_is_read_back(running: Running) -> None:
    created = running.client.post("/v1/profiles", json=documents.profile())
    assert created.status_code == 201
    url = created.json()["url"]
    assert created.headers["location"] == url
    read = running.client.get(url)
    assert hashlib.sha256(read.content).hexdigest() == created.json()["id"]
    assert read.headers["etag"] == f'"{created.json()["id"]}"'
    assert "immutable" in read.headers["cache-control"]
    assert read_document(read.content, ModelProfile).digest == created.json()["id"]


def test_the_same_document_twice_is_one(running: Running) -> None:
    # other order of keys, other spaces: the same document
    first = running.client.post("/v1/clusters", json=documents.cluster())
    text = json.dumps(documents.cluster(), sort_keys=True, indent=3)
    again = running.client.post("/v1/clusters", content=text, headers={"Content-Type": "application/json"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert len(running.client.get("/v1/clusters").json()["items"]) == 1


@pytest.mark.parametrize(
    ("path", "document", "other"),
    [
        ("/v1/profiles", documents.profile(), documents.profile(time_ns=999_999)),
        ("/v1/clusters", documents.cluster(), documents.cluster(1)),
    ],
)
def test_an_id_never_names_other_bytes(
    running: Running, path: str, document: dict[str, Any], other: dict[str, Any]
) -> None:
    made = upload(running, path, document)
    before = running.client.get(made["url"]).content
    assert running.client.put(made["url"], json=document).status_code == 200
    refused = running.client.put(made["url"], json=other)
    assert (refused.status_code, refused.json()["code"]) == (409, "immutable")
    assert running.client.get(made["url"]).content == before
    assert len(running.client.get(path).json()["items"]) == 1


def test_minus_zero_in_a_float_field_is_zero(running: Running) -> None:
    text = json.dumps(documents.cluster(1)).replace('"usable_bytes"', '"price_per_hour": -0.0, "usable_bytes"')
    headers = {"Content-Type": "application/json"}
    made = running.client.post("/v1/clusters", content=text.encode(), headers=headers)
    assert made.status_code == 201
    assert b'"price_per_hour":0,' in running.client.get(made.json()["url"]).content


def test_links_may_differ_by_direction(running: Running) -> None:
    cluster = documents.mixed_cluster("cpu-small", "cpu-slow")
    back = {**cluster["links"][0], "source": "slow", "target": "fast", "latency_ns": 77_000}
    made = upload(running, "/v1/clusters", {**cluster, "links": [cluster["links"][0], back]})
    stored = running.client.get(made["url"]).json()
    assert [link["latency_ns"] for link in stored["links"]] == [10_000, 77_000]


@pytest.mark.parametrize(
    ("bytes_per_s", "codes"),
    [(200 * 10**9, []), (200 * 10**9 + 1, ["implausible_bandwidth"])],  # twice 800 Gb/s = 100 GB/s
)
def test_bits_typed_for_bytes_are_warned_about(running: Running, bytes_per_s: int, codes: list[str]) -> None:
    cluster = documents.mixed_cluster("cpu-small", "cpu-slow")
    cluster["links"][0]["bandwidth_bytes_per_s"] = bytes_per_s
    assert [warning["code"] for warning in upload(running, "/v1/clusters", cluster)["warnings"]] == codes


def test_a_noisy_profile_is_warned_about_everywhere(running: Running) -> None:
    profile = documents.profile()
    # p90 - p10 = 2.0 ms - 0.5 ms above the median of 1 ms
    profile["measurements"][0]["points"][0]["forward"].update(min_ns=400_000, p10_ns=500_000, p90_ns=2_000_000)
    assert [one["code"] for one in upload(running, "/v1/profiles", profile)["warnings"]] == ["noisy_profile"]
    request = documents.request(profiles=[profile])
    checked = running.client.post("/v1/plans", json={**request, "validate_only": True}).json()
    assert [one["code"] for one in checked["warnings"]] == ["noisy_profile"]
    answer = running.client.post("/v1/plans", json=request, headers={"Prefer": "wait=30"}).json()
    assert [one["code"] for one in answer["warnings"]] == ["noisy_profile"]


def test_lists_go_from_new_to_old_in_pages(start: Start) -> None:
    with start() as running:
        made = [upload(running, "/v1/profiles", documents.profile(time_ns=10**6 + number))["id"] for number in range(5)]
    with start() as running:  # tokens and order survive a restart
        seen: list[str] = []
        token = ""
        while True:
            page = running.client.get("/v1/profiles", params={"page_size": 2, "page_token": token}).json()
            seen += [one["id"] for one in page["items"]]
            token = page["next_page_token"]
            if not token:
                break
            foreign = running.client.get("/v1/clusters", params={"page_token": token})
            assert (foreign.status_code, foreign.json()["code"]) == (422, "page_token")
        assert seen == made[::-1]


def test_a_document_may_be_large_but_not_larger(running: Running) -> None:
    text = json.dumps(documents.profile()).encode()
    padded = text + b" " * (9 * 2**20 - len(text))  # a profile may be larger than a plan request
    headers = {"Content-Type": "application/json"}
    assert running.client.post("/v1/profiles", content=padded, headers=headers).status_code == 201
    assert running.client.post("/v1/clusters", content=padded, headers=headers).status_code == 413
