"""What one rank cannot do none of them has done, and all of them hear why."""

from pathlib import Path

import pytest

from tests.helpers.ranks import Ranks

CASES = "tests.helpers.checkpoint_cases"


@pytest.mark.parametrize(
    ("how", "heard"),
    [
        ("disk full", "disk_full: rank 1: a shard: No space left on device"),
        ("publishing", "read_only: a folder: Read-only file system"),
        ("another folder", "not_shared: rank 1: {folder}/elsewhere/.draft-"),
        ("learning rates", "optimizer_differs: the ranks have different optimizers: torch.optim.adamw.AdamW (amsgrad="),
    ],
)
def test_a_save_that_fails_on_one_rank_fails_on_all(how: str, heard: str, ranks: Ranks, tmp_path: Path) -> None:
    said = ranks.results(f"{CASES}:contested", 2, folder=str(tmp_path), how=how)
    for answer, *left in said:
        assert answer.startswith(heard.format(folder=tmp_path)), answer
        assert left == ["step-00000001", "step-00000002"]
    assert said[0] == said[1]


def test_a_shard_that_one_rank_finds_changed_is_refused_by_all(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks.results(f"{CASES}:load_damaged", 2, folder=str(tmp_path)) == ["checkpoint_damaged"] * 2
