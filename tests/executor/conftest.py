"""Long-lived ranks, and runs of the unsplit model to compare with."""

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from tests.helpers.executor_cases import adamw, make_batch, make_model, token_count, token_loss
from tests.helpers.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Four ranks; cases take the first few of them."""
    found = Ranks(4)
    yield found
    found.close()


class Unsplit(NamedTuple):
    """Five AdamW steps of the whole model in this process."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: dict[str, Tensor]  # of the first step
    weights: dict[str, Tensor]  # at the end


@cache
def unsplit_run(
    model: str, samples: tuple[int, ...], num_steps: int = 5, max_gradient_norm: float = math.inf
) -> Unsplit:
    """The same micro-batches, in order, on the whole model; its gradients clipped by torch."""
    module = make_model(model)
    optimizer = adamw(module.parameters())
    losses, norms, gradients = [], [], {}
    for step in range(num_steps):
        inputs, labels = make_batch(step)
        optimizer.zero_grad()
        total, begin = 0.0, 0
        for size in samples:
            rows = slice(begin, begin + size)
            loss = token_loss(module(inputs[rows]).logits, labels[rows]) / token_count(labels)
            loss.backward()
            total, begin = total + float(loss.detach()), begin + size
        losses.append(total)
        norms.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), max_gradient_norm)))
        if step == 0:
            gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
        optimizer.step()
    weights = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    return Unsplit(tuple(losses), tuple(norms), gradients, weights)


@pytest.fixture(scope="session")
def unsplit():
    return unsplit_run
