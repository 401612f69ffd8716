"""Write a safetensors file tensor by tensor, so that no rank holds all of it.

The format is written by hand for that reason (https://huggingface.co/docs/safetensors, format section): 8 bytes length
of the header, the header as JSON, then the tensors in the order of their offsets.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

__all__ = ["TENSOR_TYPES", "ByteSink", "TensorEntry", "write_tensors"]

TENSOR_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class ByteSink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class TensorEntry(NamedTuple):
    """One tensor of the file: its name and what it is."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_tensors(file: ByteSink, entries: Iterable[TensorEntry], values: Iterable[Tensor]) -> None:
    """``values`` in the order of ``entries``; each is asked for when its turn comes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for entry in entries:
        end = begin + entry.num_bytes
        header[entry.name] = {
            "dtype": TENSOR_TYPES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in values:
        file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
