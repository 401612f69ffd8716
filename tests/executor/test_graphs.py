"""Layers that read several layers: borders with several tensors, borders that skip a stage, detached reads."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.executor_cases import SKIP_CASES, make_skip_model, skip_batch, squares
from tests.helpers.ranks import Ranks


@pytest.mark.parametrize("name", list(SKIP_CASES))
def test_gradients_are_those_of_the_whole_graph(name: str, ranks: Ranks, tmp_path: Path) -> None:
    case = SKIP_CASES[name]
    size = sum(map(len, case["groups"]))
    function = "tests.helpers.executor_cases:skip_gradients"
    losses = ranks.results(function, size, case=case, folder=str(tmp_path))

    model = make_skip_model()
    inputs, labels = skip_batch()
    first = model[0](inputs)
    second = model[1](first)
    loss = squares(model[3](model[2](first, second), second.detach()), labels) / labels.numel()
    loss.backward()
    assert losses == pytest.approx([float(loss.detach())] * size, rel=1e-6)
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    seen = set()
    for rank in range(size):
        for parameter, gradient in load_file(tmp_path / f"gradients-{rank}").items():
            torch.testing.assert_close(gradient, expected[parameter], rtol=1e-5, atol=1e-7)
            seen.add(parameter)
    assert seen == set(expected)
