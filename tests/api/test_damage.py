"""Rows of the store that hold what the service never writes: each costs itself and nothing else.

Every column of every table is given every wrong kind of value, with another program's tools (``sqlite3``).
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.service import open_service
from api.settings import read_settings
from api.store.sqlite import SqliteStore
from api.store.store import Document, Finished, NewSearch, SearchFailure
from api.store.tables import metadata, searches
from planner.errors import SettingsError, StoreError
from tests.api.conftest import Running, Start
from tests.helpers import service_documents as documents

WRONG: dict[str, object] = {
    "null": None,
    "text": "nonsense",
    "empty": "",
    "bytes": b"\xff\xfe",
    "number": 2**62,
    "negative": -1,
    "fraction": 0.5,
    "odd-text": "CAST(x'ff41' AS TEXT)",  # not UTF-8
}
WAIT = {"Prefer": "wait=30"}


def damage(store: Path, table: str, column: str, kind: str, *, where: str = "1") -> bool:
    """Whether the database took it: columns that may not be NULL refuse that themselves."""
    value = WRONG[kind]
    with closing(sqlite3.connect(store)) as connection:
        try:
            if kind == "odd-text":
                connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")
            else:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
        except sqlite3.IntegrityError:
            return False
        connection.commit()
    return True


def end_of(running: Running, location: str) -> dict[str, Any]:
    until = time.monotonic() + 30
    while (found := running.client.get(location)).status_code == 200 and found.json()["state"] in ("queued", "running"):
        assert time.monotonic() < until, found.text
        time.sleep(0.05)
    return {"status": found.status_code, **found.json()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.mark.parametrize("kind", sorted(WRONG.keys() - {"null"}))
def test_a_damaged_waiting_search_does_not_stop_the_others(start: Start, path: Path, kind: str) -> None:
    """One waiting search for each column, each damaged there, and one that is whole."""
    columns = [column.name for column in searches.columns if not is_harmless(column.name, kind)]
    with start(num_runners=0) as running:
        names = {}
        for seed, column in enumerate(columns):
            names[column] = running.client.post("/v1/plans", json=documents.request(seed=seed)).json()["id"]
        whole = running.client.post("/v1/plans", json=documents.request(seed=99)).headers["location"]
    for column, name in names.items():
        damage(path, "searches", column, kind, where=f"id = '{name}'")
    with start() as running:
        assert end_of(running, whole)["state"] == "succeeded"
        listed = running.client.get("/v1/searches").json()
        assert len(listed["items"]) + len(listed["damaged"]) == len(columns) + 1
        for column, name in names.items():
            found = end_of(running, f"/v1/searches/{name}")
            if column == "id":
                assert found["code"] == "not_found"
            elif found["status"] == 500:
                assert found["code"] == "integrity"
                assert name in found["detail"]
                assert column in found["detail"]
                assert name in listed["damaged"]
            else:
                assert (found["state"], found["error"]["code"]) == ("failed", "integrity"), (column, found)
                assert column in found["error"]["message"]
        ready = running.client.get("/readyz")
        assert (ready.status_code, ready.json()["runner"]) == (200, "ok")
        assert (ready.json()["damaged"] > 0) == bool(columns)


def is_harmless(column: str, kind: str) -> bool:
    """What a waiting search may have in this column."""
    return (column, kind) in {("created_ns", "number"), ("updated_ns", "number")}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("state", ["running", "succeeded", "failed", "cancelled"])
def test_a_damaged_search_in_any_state_is_named(path: Path, state: str, kind: str) -> None:
    columns = [column.name for column in searches.columns]
    with closing(SqliteStore(path, lease_ns=30 * 10**9)) as store:
        names = {column: stored_search(store, state, seed=seed) for seed, column in enumerate(columns)}
        whole = stored_search(store, state, seed=99)
        for column, name in names.items():
            damage(path, "searches", column, kind, where=f"id = '{name}'")
        store.requeue_lost(most_attempts=3)
        listed = store.list_searches(after=None, size=50)
        shown = [search.id for search in listed.searches]
        assert whole in shown
        assert len(shown) + len(listed.damaged) == len(columns) + 1
        for column, name in names.items():
            if name in shown:
                assert store.search(name) is not None
            elif column == "id":
                assert store.search(name) is None
            else:
                with pytest.raises(StoreError, match=rf"{name} is damaged in: .*\b{column}\b"):
                    store.search(name)
                assert name in listed.damaged


def stored_search(store: SqliteStore, state: str, *, seed: int) -> str:
    """A search that went the normal way into ``state``."""
    digest = f"{seed:064x}"
    search = store.accept(NewSearch(digest, digest, (Document("request", digest, b"{}"),)), most_waiting=99).search
    assert search is not None
    if state == "cancelled":
        store.cancel(search.id)
        return search.id
    claim = store.claim()
    assert claim is not None
    if state == "succeeded":
        store.publish(claim, Finished(Document("answer", digest, b"{}"), None, reusable=True))
    if state == "failed":
        store.fail(claim, SearchFailure("internal", "a reason"))
    return search.id


@pytest.mark.parametrize(
    ("table", "column"),
    [(name, column.name) for name in ("documents", "answers") for column in metadata.tables[name].columns],
)
def test_damaged_documents_and_answers_are_integrity_errors_at_most(
    start: Start, path: Path, table: str, column: str
) -> None:
    with start() as running:
        running.client.post("/v1/plans", json=documents.request(), headers=WAIT)
        paths = [
            "/v1/searches",
            *(f"/v1/{kind}s/{one['id']}" for kind in ("profile", "cluster", "plan") for one in items(running, kind)),
        ]
        for number, kind in enumerate(WRONG):
            damage(path, table, column, kind, where=f"rowid = {number % 5 + 1}")
            for kind_of_list in ("profile", "cluster", "plan"):
                assert running.client.get(f"/v1/{kind_of_list}s").status_code == 200
            for one in paths:
                answer = running.client.get(one)
                assert answer.status_code in (200, 404) or answer.json()["code"] == "integrity", answer.text
            again = running.client.post("/v1/plans", json=documents.request(), headers=WAIT)
            assert again.status_code == 200 or again.json()["code"] == "integrity", again.text
        assert running.client.get("/readyz").status_code == 200


def items(running: Running, kind: str) -> Iterator[dict[str, Any]]:
    yield from running.client.get(f"/v1/{kind}s").json()["items"]


@pytest.mark.parametrize("kind", ["text", "empty", "bytes", "number"])
def test_a_damaged_secret_is_refused_at_the_start(path: Path, kind: str) -> None:
    open_service(read_settings(store=path)).close()
    damage(path, "secrets", "value", kind)
    with pytest.raises(SettingsError, match="the stored secret page_token is damaged"):
        open_service(read_settings(store=path))


@pytest.mark.parametrize("table", ["searches", "documents", "answers"])
def test_a_table_that_is_gone_is_an_integrity_error(start: Start, path: Path, table: str) -> None:
    with start() as running:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"DROP TABLE {table}")
            connection.commit()
        answers = [
            running.client.get("/v1/searches"),
            running.client.get("/v1/plans"),
            running.client.post("/v1/plans", json=documents.request()),
        ]
        assert all(one.status_code == 200 or one.json()["code"] == "integrity" for one in answers)
        assert any(one.status_code == 500 for one in answers)
        time.sleep(0.6)  # the runner's threads look again
        assert all(thread.is_alive() for thread in running.service.runner._threads)
