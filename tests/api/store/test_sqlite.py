"""The SQLite store: documents with their hashes, claims with tokens, leases, restarts, damage."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from api.store.sqlite import SqliteStore
from api.store.store import Claim, Document, Finished, NewSearch, SearchFailure
from planner.errors import RequestError, SettingsError, StoreError
from planner.plan.answer import Progress

ROOT = Path(__file__).parents[3]
LEASE_NS = 30 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path, lease_ns=LEASE_NS)) as found:
        yield found


def digest(number: int) -> str:
    return f"{number:064x}"


def new(number: int) -> NewSearch:
    return NewSearch(digest(number), digest(number), (Document("request", digest(number), b"{}"),))


def queue(store: SqliteStore, number: int = 1) -> str:
    search = store.accept(new(number), most_waiting=100).search
    assert search is not None
    return search.id


def claim(store: SqliteStore) -> Claim:
    found = store.claim()
    assert found is not None
    return found


def answer(number: int = 1, *, reusable: bool = True) -> Finished:
    plan = Document("plan", digest(1000 + number), b'{"plan":1}')
    return Finished(Document("answer", digest(2000 + number), b'{"answer":1}'), plan, reusable)


def state(store: SqliteStore, search_id: str) -> tuple[str, int]:
    found = store.search(search_id)
    assert found is not None
    return found.state, found.attempt


def test_the_bytes_stored_first_stay(store: SqliteStore) -> None:
    assert store.put(Document("plan", digest(1), b"first"))
    assert not store.put(Document("plan", digest(1), b"second"))
    assert store.get("plan", digest(1)) == b"first"
    assert store.get("profile", digest(1)) is None


def test_every_flipped_bit_of_a_payload_is_found(store: SqliteStore, path: Path) -> None:
    payload = bytes(range(40))
    store.put(Document("plan", digest(1), payload))
    with closing(sqlite3.connect(path)) as connection:
        for bit in range(8 * len(payload)):
            damaged = bytearray(payload)
            damaged[bit // 8] ^= 1 << bit % 8
            connection.execute("UPDATE documents SET payload = ?", (bytes(damaged),))
            connection.commit()
            with pytest.raises(StoreError) as caught:
                store.get("plan", digest(1))
            assert caught.value.code == "integrity"
        connection.execute("UPDATE documents SET payload = ?", (payload,))
        connection.commit()
    assert store.get("plan", digest(1)) == payload


def test_bits_flipped_in_the_file_never_give_other_bytes(path: Path) -> None:
    payload = random.Random(1).randbytes(3_000)
    with closing(SqliteStore(path, lease_ns=LEASE_NS)) as store:
        store.put(Document("plan", digest(1), payload))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    first = whole.index(payload[:64])
    draws = random.Random(2)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[first + draws.randrange(64)] ^= 1 << draws.randrange(8)
        path.write_bytes(bytes(damaged))
        with closing(SqliteStore(path, lease_ns=LEASE_NS)) as store, pytest.raises(StoreError) as caught:
            store.get("plan", digest(1))
        assert caught.value.code == "integrity"


def test_one_live_search_a_request(store: SqliteStore) -> None:
    first = queue(store)
    assert queue(store) == first
    assert queue(store, 2) != first
    held = claim(store)
    assert queue(store) == first == held.search_id
    store.fail(held, SearchFailure("solver_crash", "lost"))
    assert queue(store) != first


def test_the_oldest_search_is_claimed_once(store: SqliteStore) -> None:
    ids = [queue(store, number) for number in range(3)]
    assert [claim(store).search_id for _ in ids] == ids
    assert store.claim() is None
    assert store.counts() == (0, 3, 0)


def test_a_published_answer_is_found_by_its_request(store: SqliteStore) -> None:
    search_id = queue(store)
    assert store.publish(claim(store), answer())
    assert store.accept(new(1), most_waiting=100) == (None, digest(2001))
    assert store.get("plan", digest(1001)) == b'{"plan":1}'
    assert state(store, search_id) == ("succeeded", 1)


def test_an_answer_that_is_not_reusable_is_not_found_again(store: SqliteStore) -> None:
    search_id = queue(store)
    assert store.publish(claim(store), answer(reusable=False))
    assert queue(store) != search_id


def test_a_lost_claim_changes_nothing(store: SqliteStore) -> None:
    search_id = queue(store)
    held = claim(store)
    store.cancel(search_id)
    assert not store.beat(held)
    assert not store.publish(held, answer())
    assert not store.fail(held, SearchFailure("internal", "late"))
    store.release(held)
    store.report(held, Progress(phase="late"))
    assert state(store, search_id) == ("cancelled", 1)
    assert store.get("plan", digest(1001)) is None
    assert store.get("answer", digest(2001)) is None


def test_a_released_search_has_lost_no_attempt(store: SqliteStore) -> None:
    search_id = queue(store)
    store.release(claim(store))
    assert state(store, search_id) == ("queued", 0)


def test_a_full_queue_refuses(store: SqliteStore) -> None:
    queue(store, 1)
    with pytest.raises(RequestError) as caught:
        store.accept(new(2), most_waiting=1)
    assert caught.value.code == "queue_full"
    assert store.get("request", digest(2)) is None


def test_a_living_owner_keeps_its_claims(store: SqliteStore, path: Path) -> None:
    search_id = queue(store)
    claim(store)
    with closing(SqliteStore(path, lease_ns=LEASE_NS)) as other:
        assert other.requeue_lost(most_attempts=3) == 0
        assert state(other, search_id) == ("running", 1)


def test_the_searches_of_a_dead_owner_are_run_again_three_times(store: SqliteStore, path: Path) -> None:
    search_id = queue(store)
    source = (
        "import os, sys; from pathlib import Path; from api.store.sqlite import SqliteStore\n"
        "store = SqliteStore(Path(sys.argv[1]), lease_ns=10**12)\n"
        "assert store.claim()\n"
        "os._exit(9)\n"
    )
    for attempt in (1, 2, 3):
        done = subprocess.run([sys.executable, "-c", source, str(path)], cwd=ROOT, timeout=60, check=False)
        assert done.returncode == 9
        assert state(store, search_id) == ("running", attempt)
        assert store.requeue_lost(most_attempts=3) == 1
        assert state(store, search_id) == ("failed" if attempt == 3 else "queued", attempt)
    found = store.search(search_id)
    assert found is not None
    assert found.failure is not None
    assert found.failure.code == "solver_crash"
    assert "attempt 3 of 3" in found.failure.message


def test_a_silent_owner_loses_its_claims(path: Path, store: SqliteStore) -> None:
    search_id = queue(store)
    with closing(SqliteStore(path, lease_ns=1)) as silent:
        held = claim(silent)
        assert store.requeue_lost(most_attempts=3) == 1
        again = claim(store)
        assert not silent.publish(held, answer())
        assert store.publish(again, answer())
    assert state(store, search_id) == ("succeeded", 2)


def test_a_lease_of_another_boot_is_over(store: SqliteStore, path: Path) -> None:
    queue(store)
    claim(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE searches SET lease_boot = 'another', lease_end_ns = 9000000000000000000")
        connection.commit()
    assert store.requeue_lost(most_attempts=3) == 1


def test_many_claimers_take_each_search_once(path: Path) -> None:
    stores = [SqliteStore(path, lease_ns=LEASE_NS) for _ in range(4)]
    wanted = {queue(stores[0], number) for number in range(80)}

    def work(store: SqliteStore) -> list[str]:
        taken = []
        while (held := store.claim()) is not None:
            taken.append(held.search_id)
            assert store.publish(held, answer(len(taken)))
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [search_id for part in pool.map(work, stores) for search_id in part]
    assert len(taken) == len(wanted)
    assert set(taken) == wanted
    for store in stores:
        store.close()


def test_a_secret_stays_the_same(store: SqliteStore, path: Path) -> None:
    with closing(SqliteStore(path, lease_ns=LEASE_NS)) as other:
        assert store.secret("page_token") == other.secret("page_token")
    assert len(store.secret("page_token")) == 32
    assert store.secret("other") != store.secret("page_token")


def test_a_locked_store_is_busy(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.store.database._BUSY_TIMEOUT_MS", 50)
    with closing(SqliteStore(path, lease_ns=LEASE_NS)) as other, closing(sqlite3.connect(path)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            other.put(Document("plan", digest(1), b"x"))
        assert caught.value.code == "store_busy"
        assert other.get("plan", digest(1)) is None  # reading goes on


def test_a_full_disk_leaves_what_was_there(store: SqliteStore, path: Path) -> None:
    store.put(Document("plan", digest(1), b"x"))
    database = store._database
    with database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    with database._engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.rollback()
    with pytest.raises(StoreError) as caught:
        store.put(Document("plan", digest(2), bytes(10**6)))
    assert caught.value.code == "disk_full"
    assert store.get("plan", digest(1)) == b"x"
    assert store.get("plan", digest(2)) is None


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, None])
def test_what_is_no_store_is_refused(path: Path, content: bytes | None) -> None:
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        SqliteStore(path, lease_ns=LEASE_NS)
    assert caught.value.code == "store"


def test_a_store_of_a_newer_service_is_refused(path: Path) -> None:
    SqliteStore(path, lease_ns=LEASE_NS).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(SettingsError, match="9999"):
        SqliteStore(path, lease_ns=LEASE_NS)


def test_the_migrations_make_the_tables_that_the_code_uses(store: SqliteStore, path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from api.store.tables import metadata

    with store._database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
