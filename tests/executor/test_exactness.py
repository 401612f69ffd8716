"""Every way to lay a model over ranks gives the unsplit model's gradients, losses and weights."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.executor_cases import CASES, EXTRA_CASES, make_model
from tests.helpers.family_cases import SHARED_CASES, SPLIT_CASES
from tests.helpers.ranks import Ranks


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize("name", [*CASES, *EXTRA_CASES])
def test_plan_trains_as_the_unsplit_model(name: str, model: str, ranks: Ranks, unsplit, tmp_path: Path) -> None:
    check_training((CASES | EXTRA_CASES)[name], model, ranks, unsplit=unsplit, folder=tmp_path)


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize("name", [*SPLIT_CASES, *SHARED_CASES])
def test_family_trains_as_the_unsplit_model(name: str, model: str, ranks: Ranks, unsplit, tmp_path: Path) -> None:
    case = (SPLIT_CASES | SHARED_CASES)[name]
    check_training(case, model, ranks, unsplit=partial(unsplit, num_steps=2), folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("2 ranks interleaved v=2", "gpt2"),
        ("4 ranks mesh data 2 x 2 stages", "llama"),
        ("3 ranks as unequal routes 3:1", "gpt2"),
        ("routes of different meshes", "gpt2"),
    ],
)
def test_clipping_is_that_of_the_whole_model(name: str, model: str, ranks: Ranks, unsplit, tmp_path: Path) -> None:
    """All norms of these runs exceed 0.2, tied and copied weights count once."""
    case = (CASES | EXTRA_CASES)[name]
    check_training(case, model, ranks, unsplit=partial(unsplit, num_steps=3), folder=tmp_path, max_gradient_norm=0.2)


def test_no_layer_runs_before_the_first_step_or_more_often_in_it(ranks: Ranks) -> None:
    """Four micro-batches, layers 0 and 2 on rank 0, layers 1 and 3 on rank 1."""
    found = ranks.results("tests.helpers.executor_cases:layer_runs", 2)
    assert found == [[[0] * 4, [4, 0, 4, 0], [8, 0, 8, 0]], [[0] * 4, [0, 4, 0, 4], [0, 8, 0, 8]]]


def check_training(
    case: dict[str, Any],
    model: str,
    ranks: Ranks,
    *,
    unsplit: Callable[..., Any],
    folder: Path,
    max_gradient_norm: float | None = None,
) -> None:
    if max_gradient_norm is not None:
        unsplit = partial(unsplit, max_gradient_norm=max_gradient_norm)
    expected = unsplit(model, tuple(samples for _, samples in case["batches"]))
    size = sum(map(len, case["groups"]))
    train = "tests.helpers.executor_cases:train"
    num_steps = len(expected.losses)
    settings = {"model": model, "case": case, "folder": str(folder), "num_steps": num_steps}
    results = ranks.results(train, size, max_gradient_norm=max_gradient_norm, **settings)

    assert max_gradient_norm is None or min(expected.norms) > max_gradient_norm
    for result in results:  # every rank knows the loss of the whole step
        assert result["losses"] == pytest.approx(expected.losses, rel=1e-6)
        assert result["norms"] == pytest.approx(expected.norms, rel=1e-5)
    seen = set()
    for rank in range(size):
        for parameter, gradient in load_file(folder / f"gradients-{rank}").items():
            error = (gradient - expected.gradients[parameter]).norm() / expected.gradients[parameter].norm()
            assert error <= 1e-6, f"{parameter} on rank {rank}: {error}"
            seen.add(parameter)
    assert seen == set(expected.gradients)

    whole = make_model(model)
    whole.load_state_dict(load_file(folder / "weights"), strict=True)
    for parameter, weight in whole.state_dict().items():
        torch.testing.assert_close(weight, expected.weights[parameter], rtol=1e-4, atol=1e-5)
