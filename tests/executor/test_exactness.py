"""Every way to lay a model over ranks gives the unsplit model's gradients, losses and weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.executor_cases import CASES, EXTRA_CASES, make_model
from tests.helpers.ranks import Ranks


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize("name", [*CASES, *EXTRA_CASES])
def test_plan_trains_as_the_unsplit_model(name: str, model: str, ranks: Ranks, unsplit, tmp_path: Path) -> None:
    case = (CASES | EXTRA_CASES)[name]
    size = sum(map(len, case["groups"]))
    train = "tests.helpers.executor_cases:train"
    results = ranks.results(train, size, model=model, case=case, folder=str(tmp_path))
    expected = unsplit(model, tuple(samples for _, samples in case["batches"]))

    for result in results:  # every rank knows the loss of the whole step
        assert result["losses"] == pytest.approx(expected.losses, rel=1e-6)
        assert result["norms"] == pytest.approx(expected.norms, rel=1e-5)
    seen = set()
    for rank in range(size):
        for parameter, gradient in load_file(tmp_path / f"gradients-{rank}").items():
            error = (gradient - expected.gradients[parameter]).norm() / expected.gradients[parameter].norm()
            assert error <= 1e-6, f"{parameter} on rank {rank}: {error}"
            seen.add(parameter)
    assert seen == set(expected.gradients)

    whole = make_model(model)
    whole.load_state_dict(load_file(tmp_path / "weights"), strict=True)
    for parameter, weight in whole.state_dict().items():
        torch.testing.assert_close(weight, expected.weights[parameter], rtol=1e-4, atol=1e-5)
