"""The bad inputs that the service refuses, as files of the command line: same machine code, exit code 2 or 6."""

from pathlib import Path

import pytest

from planner.cli.files import BROKEN
from tests.helpers.bad_inputs import BAD_DOCUMENTS, BAD_JSON, MARKER, BadInput
from tests.helpers.command import Done, planner


def refused(folder: Path, bad: BadInput) -> Done:
    path = folder / "input.json"
    path.write_bytes(bad.make())
    if bad.document == "request":
        return planner("search", "--request", path, "-o", folder / "plan.json")
    return planner(bad.document, "show", path)


@pytest.mark.parametrize("bad", [*BAD_JSON, *BAD_DOCUMENTS], ids=lambda bad: bad.id)
def test_a_bad_file_is_refused_with_its_code(tmp_path: Path, bad: BadInput) -> None:
    done = refused(tmp_path, bad)
    whole_file_refused = bad.document == "profile" and bad.code_of_file in BROKEN
    assert done.code == (6 if whole_file_refused else 2), done.err
    assert done.err.startswith(f"error[{bad.code_of_file}]"), done.err[:500]
    assert done.out == ""
    assert MARKER not in done.err
    assert len(done.err) < 30_000
    assert not (tmp_path / "plan.json").exists()
