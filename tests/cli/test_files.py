import os
import time
from pathlib import Path

import pytest

from planner.cli.exit_codes import InputFileError, RefusedFileError
from planner.cli.files import LARGEST_FILE_BYTES, read_bytes, read_cluster, read_plan, read_profile
from planner.errors import DocumentError
from planner.problem.canonical import document_bytes
from tests.helpers.command import two_stage_plan
from tests.helpers.documents import make_cluster, make_profile


def special_file(folder: Path, kind: str) -> Path:
    if kind == "folder":
        return folder
    if kind == "fifo":
        os.mkfifo(folder / "fifo")
        return folder / "fifo"
    return Path(kind)


@pytest.mark.parametrize("kind", ["folder", "fifo", "/dev/zero", "/dev/null"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    before_s = time.process_time()
    with pytest.raises(InputFileError) as found:
        read_bytes(special_file(tmp_path, kind))
    assert found.value.code == "not_a_file"
    assert time.process_time() - before_s < 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"nothing\.json does not exist") as found:
        read_bytes(tmp_path / "nothing.json")
    assert found.value.code == "file_missing"


def test_a_name_with_a_nul_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as found:
        read_bytes(Path(f"{tmp_path}/a\0b"))
    assert found.value.code == "file_unreadable"


def test_a_file_above_the_cap_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(LARGEST_FILE_BYTES + 1)
    with pytest.raises(InputFileError) as found:
        read_bytes(tmp_path / "large")
    assert found.value.code == "file_too_large"


def test_a_fault_names_file_and_pointer(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(document_bytes(make_cluster()).replace(b'"num_nodes":1', b'"num_nodes":0'))
    with pytest.raises(DocumentError) as found:
        read_cluster(path)
    assert found.value.faults[0].pointer == f"{path}#/node_groups/0/num_nodes"
    assert found.value.code == "range"


@pytest.mark.parametrize("reader", [read_plan, read_profile])
def test_a_truncated_file_is_refused(tmp_path: Path, reader: object) -> None:
    whole = document_bytes(two_stage_plan() if reader is read_plan else make_profile())
    (tmp_path / "file.json").write_bytes(whole[:-10])
    with pytest.raises(RefusedFileError) as found:
        reader(tmp_path / "file.json")  # type: ignore[operator]
    assert found.value.code == "json_invalid"


@pytest.mark.parametrize(("version", "code"), [("plan/2", "schema"), ("plan/0", "schema")])
def test_another_schema_is_refused_with_both_versions(tmp_path: Path, version: str, code: str) -> None:
    changed = document_bytes(two_stage_plan()).replace(b'"plan/1"', f'"{version}"'.encode())
    (tmp_path / "plan.json").write_bytes(changed)
    with pytest.raises(RefusedFileError, match=f"found {version}, supported: plan/1") as found:
        read_plan(tmp_path / "plan.json")
    assert found.value.code == code


def test_a_file_named_by_a_digest_holds_that_document(tmp_path: Path) -> None:
    plan = two_stage_plan()
    right, wrong = tmp_path / f"{plan.digest}.json", tmp_path / f"{'0' * 64}.json"
    for path in (right, wrong):
        path.write_bytes(document_bytes(plan))
    assert read_plan(right) == plan
    with pytest.raises(RefusedFileError) as found:
        read_plan(wrong)
    assert found.value.code == "digest"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((b'"first_layer":2', b'"first_layer":1'), "layer_cover"),
        ((b'"first_layer":2', b'"first_layer":3'), "layer_cover"),
        ((b"0F1 0B0", b"0F1 0F1 0B0"), "stream_twice"),
    ],
)
def test_a_plan_that_breaks_its_rules_is_refused(tmp_path: Path, change: tuple[bytes, bytes], code: str) -> None:
    (tmp_path / "plan.json").write_bytes(document_bytes(two_stage_plan()).replace(*change))
    with pytest.raises(RefusedFileError) as found:
        read_plan(tmp_path / "plan.json")
    assert found.value.code == code
