"""What is said of an exception in a user's own code."""

import json
from pathlib import Path

import torch

from profiles.blame import FAILURES, blame
from profiles.source import load_named


def caught_from(factory: str, folder: Path) -> str:
    try:
        load_named(factory, str(folder))()
    except FAILURES as error:
        return blame(error)
    raise AssertionError("nothing was raised")


def test_the_innermost_frame_of_the_users_own_code_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import json\n\ndef read():\n    return json.loads('{')\n\ndef build():\n    return read()\n"
    )
    found = caught_from("own.py:build", tmp_path)
    assert found.startswith("JSONDecodeError: Expecting property name enclosed in double quotes")
    assert found.endswith("own.py:4, in read)")


def test_an_exit_is_named_like_an_exception(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text("import sys\n\ndef build():\n    sys.exit('enough')\n")
    assert caught_from("exits.py:build", tmp_path).startswith("SystemExit: enough (")


def test_without_a_frame_of_their_own_the_place_is_left_out() -> None:
    try:
        torch.nn.Linear(3, 4)(torch.zeros(2, 5))
    except RuntimeError as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        found = blame(error)
    assert found.startswith("RuntimeError: mat1 and mat2")
    assert not found.endswith(")") or ".py:" not in found


def test_text_is_one_printable_line() -> None:
    assert blame(ValueError("two\nlines\x1b[31m")) == "ValueError: two lines [31m"
    assert blame(KeyError()) == "KeyError"
    assert len(blame(json.JSONDecodeError("x" * 10_000, "", 0))) < 600
