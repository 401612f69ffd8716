"""Small real models for the tests: no download, no dropout, fixed weights."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

__all__ = ["gpt2", "llama", "llama_bf16", "llama_on_meta"]


def llama(*, num_blocks: int = 3, tied: bool = False, attention: str = "sdpa", device: str = "cpu") -> nn.Module:
    """A Llama of hidden size 32 with grouped queries and 61 tokens."""
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=num_blocks,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        attn_implementation=attention,
        use_cache=False,  # a cache copies the keys: the same numbers, other rounding in the backward
    )
    torch.manual_seed(1)
    with torch.device(device):
        return LlamaForCausalLM(config)


def gpt2(*, num_blocks: int = 3, attention: str = "sdpa", device: str = "cpu") -> nn.Module:
    """A GPT-2 of hidden size 32 with tied embeddings and 61 tokens."""
    config = GPT2Config(
        vocab_size=61,
        n_embd=32,
        n_layer=num_blocks,
        n_head=4,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
        use_cache=False,  # a cache copies the keys: the same numbers, other rounding in the backward
    )
    torch.manual_seed(1)
    with torch.device(device):
        return GPT2LMHeadModel(config)


def llama_on_meta() -> nn.Module:
    """The Llama without values."""
    return llama(device="meta")


def llama_bf16() -> nn.Module:
    """The Llama in half the bits."""
    return llama().to(torch.bfloat16)
