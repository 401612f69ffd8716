"""docs/adding-a-schedule.md, followed literally: its family and its test work as printed, in under 60 lines."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from planner.check.structure import check_plan
from planner.schedules.families import abstract_plan
from planner.schedules.family import FamilyShape, FamilySpec

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "adding-a-schedule.md"
FAMILY = "planner.schedules.one_by_one"


def code_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def family(tmp_path: Path) -> Iterator[FamilySpec]:
    """The printed module under the name that the document gives it."""
    path = tmp_path / "one_by_one.py"
    path.write_text(code_blocks()[0])
    found = load(FAMILY, path).ONE_BY_ONE
    assert isinstance(found, FamilySpec)
    yield found
    del sys.modules[FAMILY]


def test_family_and_test_have_under_60_lines() -> None:
    assert len(code_blocks()) == 2
    assert sum(len(block.splitlines()) for block in code_blocks()) + 2 < 60  # and two lines in the registry


def test_the_printed_family_gives_legal_plans(family: FamilySpec) -> None:
    for num_groups, num_micro_batches in ((1, 1), (2, 3), (4, 5)):
        assert check_plan(abstract_plan(family.lists(FamilyShape(num_groups, num_micro_batches)))).ok


def test_the_printed_test_passes(family: FamilySpec, tmp_path: Path) -> None:
    path = tmp_path / "test_one_by_one.py"
    path.write_text(code_blocks()[1])
    module = load("printed_test_one_by_one", path)
    module.test_stream()
    for num_groups in (1, 2, 4):
        module.test_bubble_and_memory(num_groups)
    del sys.modules["printed_test_one_by_one"]
    assert family.name == "one-by-one"
