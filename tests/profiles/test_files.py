"""Documents on disk: whole or not at all."""

from pathlib import Path

import pytest

from planner.errors import ContractError, OutputError
from planner.problem.cluster import Cluster
from planner.problem.profile import ModelProfile
from profiles.files import read_file, write_file
from tests.helpers.documents import make_cluster, make_profile


def test_a_profile_comes_back_with_its_digest(tmp_path: Path) -> None:
    profile, path = make_profile(), tmp_path / "profile.json"
    write_file(path, profile)
    assert read_file(path, ModelProfile).digest == profile.digest
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


def test_writing_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    write_file(path, make_cluster(("a", 1, 2)))
    write_file(path, make_cluster(("b", 1, 2)))
    assert read_file(path, Cluster).device_kinds == ("b",)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError) as caught:
        write_file(tmp_path / "taken", make_cluster())
    assert caught.value.code == "write_failed"
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(OutputError):
        write_file(tmp_path / "nothing" / "profile.json", make_profile())


def test_another_kind_of_document_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    write_file(path, make_cluster())
    with pytest.raises(ContractError):
        read_file(path, ModelProfile)
