"""The Llama family of transformers: embedding, one layer a block, norm and head as the last layer.

Each block computes its rotary tables and its causal mask from the shape of its input, so that nothing but the hidden
state crosses a border. The tables are those of the unsplit model: same class, same numbers.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM
from transformers.masking_utils import create_causal_mask
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from planner.cutting.head import Head
from planner.cutting.layer import Part
from planner.cutting.slicing import SliceCache, SliceOutput

__all__ = ["llama_parts"]

# their tables depend on the longest sequence seen, which a token slice does not know
_WHOLE_SEQUENCE_ROPE = frozenset({"dynamic", "longrope"})


def llama_parts(model: LlamaForCausalLM) -> tuple[Part, ...]:
    """The layers of a Llama model for language modelling, with ids as the model names its modules."""
    inner = model.model
    causal = inner.rotary_emb.rope_type not in _WHOLE_SEQUENCE_ROPE
    blocks = [
        Part(f"model.layers.{number}", "block", _Block(block, inner.rotary_emb, model.config), causal)
        for number, block in enumerate(inner.layers)
    ]
    head = Part("lm_head", "head", Head(inner.norm, model.lm_head), causal=True)
    return (Part("model.embed_tokens", "embedding", inner.embed_tokens, causal=True), *blocks, head)


class _Tables:
    """Rotary tables of one block; no child module, so that nobody moves or re-initialises its constants."""

    def __init__(self, rotary: nn.Module, config: object) -> None:
        if next(rotary.buffers()).is_meta:
            with torch.device("cpu"):
                self.rotary = LlamaRotaryEmbedding(config=config)
        else:
            self.rotary = copy.deepcopy(rotary)

    def at(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if not hidden.is_meta and self.rotary.inv_freq.device != hidden.device:
            self.rotary.to(hidden.device)
        cos, sin = self.rotary(hidden, position_ids=positions)
        return cos, sin


class _Block(nn.Module):
    num_carried = 2  # keys and values

    def __init__(self, block: nn.Module, rotary: nn.Module, config: object) -> None:
        super().__init__()
        self.block = block
        self._tables = _Tables(rotary, config)
        self._config = config

    def forward(self, hidden: Tensor) -> Tensor:
        """[samples, tokens, hidden] -> the same shape."""
        return self._run(hidden, 0, None)

    def forward_slice(
        self, inputs: Sequence[Tensor], *, before: Sequence[tuple[Tensor, ...]], first_token: int
    ) -> SliceOutput:
        """The same for the tokens from ``first_token`` on."""
        cache = SliceCache(before, first_token)
        output = self._run(inputs[0], first_token, cache)
        return SliceOutput(output, cache.own)

    def _run(self, hidden: Tensor, first_token: int, cache: SliceCache | None) -> Tensor:
        tokens = hidden.shape[1]
        positions = torch.arange(first_token, first_token + tokens, device=hidden.device).unsqueeze(0)
        mask = create_causal_mask(config=self._config, inputs_embeds=hidden, attention_mask=None, cache=cache)
        output: Tensor = self.block(
            hidden,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            position_embeddings=self._tables.at(hidden, positions),
        )
        return output
