"""A plan goes into a plain training loop with at most five changed lines."""

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def changed_lines(before: str, after: str) -> list[str]:
    """Lines of ``after`` that are new or different; lines that only went away count nothing."""
    return [line[2:] for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line.startswith("+ ")]


def test_the_count_of_changed_lines_counts() -> None:
    assert changed_lines("a\nb\nc\n", "a\nB\nc\nd\n") == ["B", "d"]
    assert changed_lines("a\nb\n", "a\n") == []


def test_the_training_script_changes_at_most_five_lines() -> None:
    plain = (EXAMPLES / "plain_loop.py").read_text(encoding="utf-8")
    with_plan = (EXAMPLES / "train_llama.py").read_text(encoding="utf-8")
    found = changed_lines(plain, with_plan)
    assert 1 <= len(found) <= 5, found
    assert any("Executor(" in line for line in found)
