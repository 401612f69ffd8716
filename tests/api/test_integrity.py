"""What a damaged store does: 500 integrity, and never another plan. A restart loses nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.conftest import Start
from tests.helpers import service_documents as documents

WAIT = {"Prefer": "wait=30"}


def flip(tmp_path: Path, kind: str) -> None:
    with closing(sqlite3.connect(tmp_path / "store.sqlite3")) as connection:
        ((payload,),) = connection.execute("SELECT payload FROM documents WHERE kind = ?", (kind,)).fetchall()
        damaged = bytearray(payload)
        damaged[len(damaged) // 2] ^= 1
        connection.execute("UPDATE documents SET payload = ? WHERE kind = ?", (bytes(damaged), kind))
        connection.commit()


@pytest.mark.parametrize("kind", ["profile", "cluster", "plan", "answer"])
def test_a_flipped_bit_is_an_integrity_error(start: Start, tmp_path: Path, kind: str) -> None:
    with start() as running:
        plan = running.client.post("/v1/plans", json=documents.request(), headers=WAIT).json()["plan"]
        (search,) = running.client.get("/v1/searches").json()["items"]
        names = {name: running.client.get(f"/v1/{name}s").json()["items"][0]["id"] for name in ("profile", "cluster")}
        flip(tmp_path, kind)
        by_digest = documents.request(profiles=[names["profile"]], cluster=names["cluster"], seed=9)
        touched = {
            "profile": [running.client.get(f"/v1/profiles/{names['profile']}")],
            "cluster": [running.client.get(f"/v1/clusters/{names['cluster']}")],
            "plan": [running.client.get(plan)],
            "answer": [running.client.get(f"/v1/searches/{search['id']}")],
        }[kind]
        if kind in names:
            touched.append(running.client.post("/v1/plans", json=by_digest))
        else:
            touched.append(running.client.post("/v1/plans", json=documents.request()))
        for response in touched:
            assert (response.status_code, response.json()["code"]) == (500, "integrity"), response.text
        assert running.client.get("/healthz").status_code == 200


def test_a_search_whose_request_is_damaged_fails_with_a_reason(start: Start, tmp_path: Path) -> None:
    with start(num_runners=0) as running:
        location = running.client.post("/v1/plans", json=documents.request()).headers["location"]
    flip(tmp_path, "request")
    with start() as running:
        found = running.client.get(location, headers=WAIT).json()
        assert (found["state"], found["error"]["code"]) == ("failed", "internal")
        other = running.client.post("/v1/plans", json=documents.request(seed=1), headers=WAIT)
        assert other.status_code == 200
