"""Plans that are kept as text do not change unnoticed."""

import pytest

from tests.golden.plans import FOLDER, GOLDEN, golden_text
from tests.helpers.plan_json import runs_to_the_end


@pytest.mark.parametrize("name", GOLDEN)
def test_a_kept_plan_is_made_again(name: str) -> None:
    plan = GOLDEN[name]()
    assert golden_text(plan) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert runs_to_the_end(plan)


def test_no_text_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(GOLDEN)
