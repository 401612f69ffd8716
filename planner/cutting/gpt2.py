"""The GPT-2 family of transformers: token and position embedding, one layer a block, norm and head at the end."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel
from transformers.masking_utils import create_causal_mask

from planner.cutting.head import Head
from planner.cutting.layer import Part
from planner.cutting.slicing import SliceCache, SliceOutput
from planner.errors import ModelError

__all__ = ["gpt2_parts"]


def gpt2_parts(model: GPT2LMHeadModel) -> tuple[Part, ...]:
    """The layers of a GPT-2 model for language modelling. Raises ``ModelError`` where it reads an encoder."""
    inner = model.transformer
    if model.config.add_cross_attention:
        raise ModelError("found GPT-2 with cross attention, expected without: it reads an encoder", code="unsupported")
    blocks = [
        Part(f"transformer.h.{number}", "block", _Block(block, model.config), causal=True)
        for number, block in enumerate(inner.h)
    ]
    embedding = Part("transformer.wte", "embedding", _Embedding(inner.wte, inner.wpe, inner.drop), causal=True)
    return (embedding, *blocks, Part("lm_head", "head", Head(inner.ln_f, model.lm_head), causal=True))


class _Embedding(nn.Module):
    num_carried = 0

    def __init__(self, tokens: nn.Module, positions: nn.Module, drop: nn.Module) -> None:
        super().__init__()
        self.wte = tokens
        self.wpe = positions
        self.drop = drop

    def forward(self, inputs: Tensor) -> Tensor:
        """Token numbers [samples, tokens] -> [samples, tokens, hidden]."""
        return self._run(inputs, 0)

    def forward_slice(
        self, inputs: Sequence[Tensor], *, before: Sequence[tuple[Tensor, ...]], first_token: int
    ) -> SliceOutput:
        """The same for the tokens from ``first_token`` on."""
        return SliceOutput(self._run(inputs[0], first_token), ())

    def _run(self, inputs: Tensor, first_token: int) -> Tensor:
        positions = torch.arange(first_token, first_token + inputs.shape[1], device=inputs.device).unsqueeze(0)
        embedded: Tensor = self.drop(self.wte(inputs) + self.wpe(positions))
        return embedded


class _Block(nn.Module):
    num_carried = 2  # keys and values

    def __init__(self, block: nn.Module, config: object) -> None:
        super().__init__()
        self.block = block
        self._config = config

    def forward(self, hidden: Tensor) -> Tensor:
        """[samples, tokens, hidden] -> the same shape."""
        return self._run(hidden, None)

    def forward_slice(
        self, inputs: Sequence[Tensor], *, before: Sequence[tuple[Tensor, ...]], first_token: int
    ) -> SliceOutput:
        """The same for the tokens from ``first_token`` on."""
        cache = SliceCache(before, first_token)
        output = self._run(inputs[0], cache)
        return SliceOutput(output, cache.own)

    def _run(self, hidden: Tensor, cache: SliceCache | None) -> Tensor:
        mask = create_causal_mask(config=self._config, inputs_embeds=hidden, attention_mask=None, cache=cache)
        output: Tensor = self.block(hidden, attention_mask=mask, cache=cache)
        return output
