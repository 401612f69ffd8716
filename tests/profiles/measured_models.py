"""Models that the measuring processes of the tests make; most of torch alone, so that they start quickly."""

import torch
from torch import Tensor, nn

__all__ = ["broken", "eight_layers", "half_frozen", "model", "number"]


class Positions(nn.Module):
    """Adds one of 32 learned positions to each token: longer samples are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 8)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.table(torch.arange(hidden.shape[1], device=hidden.device))


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(16, 8), Positions(), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 16))


def half_frozen() -> nn.Module:
    """A frozen embedding, a layer without weights, two with."""
    layers = nn.Sequential(nn.Embedding(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 16))
    layers[0].requires_grad_(False)
    return layers


def eight_layers() -> nn.Module:
    from tests.helpers.executor_cases import make_model

    return make_model("llama")


def broken() -> nn.Module:
    raise ValueError("this model cannot be made")


def number() -> int:
    return 7
