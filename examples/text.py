"""Real text that every machine has: the sources of Python's standard library, as bytes, read at run time."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

__all__ = ["batches", "read_text"]

_TEXT_BYTES = 4 * 2**20
_SEED = 11


def read_text() -> torch.Tensor:
    """The first 4 MiB of the standard library's top-level modules in the order of their names, one token a byte."""
    found = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        found += path.read_bytes()
        if len(found) >= _TEXT_BYTES:
            break
    return torch.frombuffer(found[:_TEXT_BYTES], dtype=torch.uint8)


def batches(*, steps: int, samples: int, tokens: int, seen: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """``steps`` global batches: inputs and next bytes [samples, tokens], from places drawn with a fixed seed.

    The first ``seen`` samples are left out, as after a restart; the others come as they would have.
    """
    text = read_text()
    generator = torch.Generator().manual_seed(_SEED)
    for step in range(steps):
        starts = torch.randint(len(text) - tokens - 1, (samples,), generator=generator)
        if step * samples < seen:
            continue
        windows = torch.stack([text[start : start + tokens + 1] for start in starts.tolist()]).long()
        yield windows[:, :-1], windows[:, 1:]
