"""docs/errors.md knows the codes of layer graphs, of prices and of everything that a search says."""

import re
from pathlib import Path
from typing import get_args

import pytest

from planner.plan.answer import Failure

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
_RAISED = re.compile(r'code="([a-z_]+)"|Fault\("([a-z_]+)"')
PARTS = ("search/graphs", "check", "explain", "costs", "simulate/simulate.py")


def raised(part: str) -> list[str]:
    path = ROOT / "planner" / part
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    found = [one or other for file in files for one, other in _RAISED.findall(file.read_text(encoding="utf-8"))]
    return sorted(set(found) - set(_BINDINGS))


_BINDINGS = (  # parts of an explanation, no errors; an extra that is not installed ends the command line only
    "missing_extra", "stage", "uneven_stages", "heavy_layer", "link", "few_micro_batches", "sum", "update",
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_every_code_is_on_the_page(part: str) -> None:
    codes = raised(part)
    assert codes
    assert [code for code in codes if f"`{code}`" not in PAGE] == []


def test_every_failure_of_a_search_is_on_the_page() -> None:
    assert [code for code in get_args(Failure.model_fields["code"].annotation) if f"| `{code}` |" not in PAGE] == []
