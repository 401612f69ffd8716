"""Bytes of a layer: hand-worked, equal to the real run, exact over shapes."""

import pytest
import torch
from torch import Tensor, nn

from planner.cutting.cut import cut_model
from profiles.losses import squared_error, token_cross_entropy
from profiles.memory import (
    LayerMemory,
    MemoryBatch,
    SplitMemory,
    measure_memory,
    measure_split,
    tracked_memory,
    tracked_split,
)
from tests.helpers.models import gpt2, llama


def test_bytes_of_a_linear_layer_worked_by_hand() -> None:
    # Input [2, 3, 4] floats = 96 bytes, output [2, 3, 8] = 192. Saved: only the input and the weight: both left out.
    # Backward: the input's gradient, 96, lives on; the weight's, 4 x 8 floats = 128, exists beside it until it is added
    # to the one that is there.
    found = measure_memory(nn.Linear(4, 8, bias=False), torch.randn(2, 3, 4), None, None)
    assert found == LayerMemory(0, 96, 192, 192, found.peak_backward_bytes)
    assert found.peak_backward_bytes == 96 + 128


def test_split_bytes_of_a_linear_layer_worked_by_hand() -> None:
    # F saves the input and the weight: both left out. I leaves the input, left out, and the output's gradient, 192, for
    # W, and makes the input's gradient, 96: a peak of 96 above what F saved. W makes the weight's, 128: 320 in all.
    found = measure_split(nn.Linear(4, 8, bias=False), torch.randn(2, 3, 4), None, None)
    assert found == SplitMemory(kept_bytes=192, peak_bytes=320 - 192)


def test_what_cannot_be_split_keeps_what_it_saved_and_leaves_nothing() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, value: Tensor) -> Tensor:
            return (value * self.scale).exp()  # saves its result, 24 bytes

    value = torch.randn(2, 3)
    whole, split = measure_memory(Own(), value, None, None), measure_split(Own(), value, None, None)
    assert split == SplitMemory(whole.saved_bytes, whole.peak_backward_bytes)


def test_a_saved_output_counts_once_however_often_it_is_saved() -> None:
    class Squares(nn.Module):
        def forward(self, value: Tensor) -> Tensor:
            root = value.exp()  # saves its result, 2 x 3 floats = 24 bytes
            return root * root  # saves it twice again

    assert measure_memory(Squares(), torch.randn(2, 3), None, None).saved_bytes == 24


def test_the_loss_counts_with_the_last_layer() -> None:
    # cross entropy keeps the log probabilities [6, 5], 120 bytes, and the total weight, 4 bytes
    head = nn.Linear(4, 5, bias=False)
    labels = torch.randint(0, 5, (2, 3))
    bare = measure_memory(head, torch.randn(2, 3, 4), None, None)
    found = measure_memory(head, torch.randn(2, 3, 4), labels, token_cross_entropy)
    assert bare.saved_bytes == 0
    assert found.saved_bytes == 124
    assert found.output_bytes == bare.output_bytes == 120


def test_a_layer_without_gradients_keeps_nothing() -> None:
    layer = nn.Embedding(7, 4)
    layer.weight.requires_grad_(False)
    found = measure_memory(layer, torch.randint(0, 7, (2, 3)), None, None)
    assert (found.saved_bytes, found.peak_backward_bytes) == (0, 0)


@pytest.mark.parametrize("make", [llama, gpt2, lambda: llama(attention="eager")])
@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("shape", [(1, 8), (2, 16)])
def test_fake_figures_equal_those_of_the_real_run(make, number: int, shape: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    layer = cut_model(make()).layers[number]
    value = torch.randint(0, 61, shape) if number == 0 else torch.randn(*shape, 32)
    labels = torch.randint(0, 61, shape) if number == 4 else None
    loss = token_cross_entropy if number == 4 else None
    tensors = {**dict(layer.module.named_parameters()), **dict(layer.module.named_buffers())}
    real = tracked_memory(layer.module, tensors, MemoryBatch(value, labels, loss))
    fake = measure_memory(layer.module, value.to("meta"), None if labels is None else labels.to("meta"), loss)
    assert fake == real
    assert real.peak_forward_bytes >= real.saved_bytes
    split = tracked_split(layer.module, tensors, MemoryBatch(value, labels, loss))
    meta_labels = None if labels is None else labels.to("meta")
    assert measure_split(layer.module, value.to("meta"), meta_labels, loss) == split
    assert split.kept_bytes > 0


def test_saved_bytes_are_an_exact_formula_in_the_shape() -> None:
    # Flash attention: saved = k1 x samples x tokens + k3 x tokens (the rotary tables, once a sample's length).
    block = cut_model(llama()).layers[1].module

    def saved(samples: int, tokens: int) -> int:
        return measure_memory(block, torch.empty(samples, tokens, 32, device="meta"), None, None).saved_bytes

    per_sample = saved(2, 8) - saved(1, 8)
    per_token, rest = per_sample // 8, saved(1, 8) - per_sample
    assert rest % 8 == 0
    for samples, tokens in ((3, 4), (1, 16), (5, 32)):
        assert saved(samples, tokens) == per_token * samples * tokens + rest // 8 * tokens


def test_a_layer_on_meta_is_counted_like_a_real_one() -> None:
    value = torch.empty(2, 8, 32, device="meta")
    real, meta = (cut_model(llama(device=device)).layers[1].module for device in ("cpu", "meta"))
    assert measure_memory(real, value, None, None) == measure_memory(meta, value, None, None)


def test_squared_error_is_a_sum() -> None:
    assert squared_error(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.5])).item() == 4.25
