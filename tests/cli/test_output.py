import json
import os
from pathlib import Path

import pytest

from planner.cli.answers import report_answer
from planner.cli.output import Destination, check_destination, write_file
from planner.errors import InfeasibleError, OutputError
from planner.plan.answer import Answer, Reason, Relaxation


def code_of(path: Path, *, overwrite: bool = False) -> str:
    with pytest.raises(OutputError) as found:
        write_file(path, b"new", overwrite=overwrite)
    with pytest.raises(OutputError) as early:
        check_destination(Destination(path, overwrite))
    assert early.value.code == found.value.code  # refused before the work as after it
    return found.value.code


def test_a_new_file_holds_the_data_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_file(tmp_path / "plan.json", b"data", overwrite=False)
    assert (tmp_path / "plan.json").read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_the_file_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "plan.json", b"data", overwrite=False)
    finally:
        os.umask(before)
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o640


def test_an_existing_file_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"old")
    assert code_of(tmp_path / "plan.json") == "output_exists"
    assert (tmp_path / "plan.json").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_force_replaces_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"old")
    write_file(tmp_path / "plan.json", b"new", overwrite=True)
    assert (tmp_path / "plan.json").read_bytes() == b"new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_symbolic_link_is_refused_and_its_target_kept(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert code_of(tmp_path / "link", overwrite=overwrite) == "output_symlink"
    assert (tmp_path / "target").read_bytes() == b"old"


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert code_of(tmp_path / "link") == "output_symlink"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_and_a_device_are_no_output_files(tmp_path: Path, overwrite: bool) -> None:
    assert code_of(tmp_path, overwrite=overwrite) == "output_not_a_file"
    assert code_of(Path("/dev/null"), overwrite=overwrite) == "output_not_a_file"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert code_of(tmp_path / "no" / "plan.json") == "output_failed"


def test_a_read_only_folder_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a superuser, who may write everywhere: the system call itself is made to fail."""
    (tmp_path / "plan.json").write_bytes(b"old")
    real_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(OutputError, match="Read-only file system") as found:
        write_file(tmp_path / "plan.json", b"new", overwrite=True)
    assert found.value.code == "output_failed"
    assert (tmp_path / "plan.json").read_bytes() == b"old"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_keeps_the_old_file_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (tmp_path / "plan.json").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_file(tmp_path / "plan.json", b"new", overwrite=True)
    assert (tmp_path / "plan.json").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_the_ways_out_of_an_infeasible_problem_are_said(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    answer = Answer(
        status="infeasible",
        limit="optimal",
        reasons=(Reason(code="memory", message="too little"),),
        relaxations=(Relaxation(code="memory", message="1 MB more", pointer="/cluster/node_groups", more_bytes=10**6),),
    )
    for json_output in (False, True):
        with pytest.raises(InfeasibleError, match="too little"):
            report_answer(answer, json_output=json_output, plan_on_stdout=False)
        out, err = capsysbinary.readouterr()
        assert b"way out at /cluster/node_groups: 1 MB more" in err
    assert json.loads(out)["relaxations"][0]["more_bytes"] == 10**6
