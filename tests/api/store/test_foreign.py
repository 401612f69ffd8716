"""A database of another program is refused and stays as it is, byte by byte."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from api.store.sqlite import SqliteStore
from planner.errors import SettingsError

LEASE_NS = 30 * 10**9


def make(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE users (name TEXT)", "INSERT INTO users VALUES ('a')"], "users"),
        (["CREATE TABLE alembic_version (version_num TEXT)"], "only alembic_version"),
        (["CREATE TABLE documents (kind TEXT)"], "only documents"),
        ([f"CREATE TABLE t{number} (a)" for number in range(5)], "t0, t1, t2 and 2 more"),
        (["CREATE TABLE searches (id)", "CREATE TABLE cookies (id)"], "cookies"),
    ],
)
def test_a_foreign_database_is_not_touched(tmp_path: Path, statements: list[str], said: str, journal: str) -> None:
    path = tmp_path / "theirs.sqlite3"
    make(path, f"PRAGMA journal_mode = {journal}", *statements)
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="a database of another program") as caught:
        SqliteStore(path, lease_ns=LEASE_NS)
    assert caught.value.code == "foreign_store"
    assert said in caught.value.message
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_no_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(SettingsError, match="file is not a database"):
        SqliteStore(path, lease_ns=LEASE_NS)
    assert path.read_text() == "these are my notes\n" * 100
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_an_empty_file_and_our_own_store_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "odd name?#%.sqlite3"
    path.touch()
    for _ in range(2):
        SqliteStore(path, lease_ns=LEASE_NS).close()


def test_a_store_with_a_view_of_somebody_is_still_ours(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    SqliteStore(path, lease_ns=LEASE_NS).close()
    make(path, "CREATE VIEW waiting AS SELECT id FROM searches WHERE state = 'queued'")
    SqliteStore(path, lease_ns=LEASE_NS).close()
