"""A Llama-style model of about 10 million parameters over bytes, with what a training loop needs beside it.

The architecture is ``transformers``' own class, built from a configuration: nothing is downloaded.
"""

from collections.abc import Iterable

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

__all__ = ["SEED", "VOCABULARY", "build_model", "count_tokens", "loss_sum", "make_optimizer"]

SEED = 20
VOCABULARY = 256  # one token a byte


def build_model() -> nn.Module:
    """The same weights in every process."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=320,
        intermediate_size=864,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        use_cache=False,
        attention_dropout=0.0,
    )
    return LlamaForCausalLM(config)


def loss_sum(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy summed over all tokens; ``output`` [samples, tokens, vocabulary], ``labels`` [samples, tokens]."""
    return nn.functional.cross_entropy(output.flatten(0, 1).float(), labels.flatten(), reduction="sum")


def count_tokens(labels: torch.Tensor) -> int:
    """What the sum is divided by."""
    return labels.numel()


def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
