"""A model cut into layers gives slice by slice what it gives at once."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from planner.cutting.cut import cut_model
from planner.cutting.slicing import num_carried, run_slice
from tests.helpers.models import gpt2, llama

MODELS: dict[str, Callable[[str], nn.Module]] = {
    "llama": lambda attention: llama(num_blocks=2, attention=attention),
    "gpt2": lambda attention: gpt2(num_blocks=2, attention=attention),
}


def by_slices(modules: list[nn.Module], tokens: Tensor, cuts: tuple[int, ...]) -> Tensor:
    carried: list[list[tuple[Tensor, ...]]] = [[] for _ in modules]
    outputs = []
    for first, end in pairwise(cuts):
        value = tokens[:, first:end]
        for module, before in zip(modules, carried, strict=True):
            value, own = run_slice(module, (value,), before=before, first_token=first)
            assert len(own) == num_carried(module)
            before.append(own)
        outputs.append(value)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("cuts", [(0, 12), (0, 5, 6, 12), (0, 1, 11, 12)])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", list(MODELS))
def test_slices_of_any_length_give_the_whole_output(name: str, attention: str, cuts: tuple[int, ...]) -> None:
    model = MODELS[name](attention).double().eval()
    tokens = torch.randint(0, 61, (2, 12))
    modules = [layer.module for layer in cut_model(model).layers]
    torch.testing.assert_close(by_slices(modules, tokens, cuts), model(tokens).logits, rtol=0, atol=1e-14)


def test_layers_joined_by_a_coarser_cut_carry_what_their_parts_carry() -> None:
    model = gpt2(num_blocks=3).double().eval()
    ids = cut_model(model).cut
    joined = cut_model(model, [ids[0], ids[3]])  # embedding and two blocks; a block and the head
    modules = [layer.module for layer in joined.layers]
    assert [num_carried(module) for module in modules] == [4, 2]
    tokens = torch.randint(0, 61, (2, 9))
    torch.testing.assert_close(by_slices(modules, tokens, (0, 2, 3, 9)), model(tokens).logits, rtol=0, atol=1e-14)


def test_positions_are_those_of_the_whole_sample() -> None:
    model = gpt2()
    embedding = cut_model(model).layers[0].module
    tokens = torch.randint(0, 61, (2, 8))
    output = run_slice(embedding, (tokens[:, 5:],), before=(), first_token=5).output
    assert torch.equal(embedding(tokens)[:, 5:], output)
