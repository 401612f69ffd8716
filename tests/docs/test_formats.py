"""The documents printed in docs/ are documents that the project accepts."""

import json
import re
from pathlib import Path

import pytest

from planner.cli.documents import all_documents
from planner.problem.options import Constraints
from planner.problem.reading import read_document

DOCS = Path(__file__).parent.parent.parent / "docs"
_BLOCK = re.compile(r"```json\n(.*?)```", re.DOTALL)  # also inside a list


def examples() -> list[tuple[str, str]]:
    return [
        (path.name, block)
        for name in ("formats.md", "plan-contract.md", "getting-started.md")
        if (path := DOCS / name)
        for block in _BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


def test_there_are_examples() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize(("name", "block"), examples())
def test_an_example_is_accepted(name: str, block: str) -> None:
    kind = all_documents()[json.loads(block)["schema"]]
    assert read_document(block.encode(), kind)


def test_every_constraint_is_explained() -> None:
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert [name for name in Constraints.model_fields if f"`{name}`" not in text] == []
