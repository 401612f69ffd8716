"""The last layer of a language model: final norm, then the head."""

from torch import Tensor, nn

__all__ = ["Head"]


class Head(nn.Module):
    """Norm and projection to the vocabulary, [samples, tokens, hidden] -> [samples, tokens, vocabulary]."""

    def __init__(self, norm: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.projection = projection

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.projection(self.norm(hidden))
        return logits
