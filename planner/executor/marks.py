"""Marks of the batch that a rank was given, so that ranks with different data find out before they update.

A mark is a CRC-32 of the bytes of inputs, labels and count, at most 16 blocks of 64 KiB of each tensor (0.3 ms a MiB).
The marks travel as sums over all ranks: n marks d are equal exactly where n times the sum of d x d is the square of the
sum of d (Cauchy-Schwarz), which every rank sees alike. Pieces of 16 bits keep the sums exact in fp64.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BatchMarks", "are_equal", "batch_marks", "summands"]

_BLOCK_BYTES = 1 << 16
_MOST_BLOCKS = 16
_PIECE_BITS = 16
_PIECES = 2


class BatchMarks(NamedTuple):
    """Of one rank's batch."""

    inputs: int
    labels: int
    counted: int

    @property
    def mark(self) -> int:
        """One number of 32 bits."""
        return zlib.crc32(struct.pack("<3q", *self))


def batch_marks(inputs: Tensor, labels: Tensor, num_counted: int) -> BatchMarks:
    """Equal for equal batches, on whatever device they lie."""
    return BatchMarks(_mark(inputs), _mark(labels), num_counted)


def _mark(tensor: Tensor) -> int:
    raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if raw.numel() <= _MOST_BLOCKS * _BLOCK_BYTES:
        return zlib.crc32(raw.cpu().numpy().tobytes())
    apart = (raw.numel() - _BLOCK_BYTES) // (_MOST_BLOCKS - 1)
    blocks = raw.as_strided((_MOST_BLOCKS, _BLOCK_BYTES), (apart, 1)).contiguous()
    return zlib.crc32(blocks.cpu().numpy().tobytes())


def summands(marks: BatchMarks) -> list[float]:
    """What this rank adds: each piece of its mark and the piece's square."""
    pieces = [marks.mark >> (_PIECE_BITS * number) & ((1 << _PIECE_BITS) - 1) for number in range(_PIECES)]
    return [float(value) for piece in pieces for value in (piece, piece * piece)]


def are_equal(sums: Sequence[float], num_ranks: int) -> bool:
    """Whether all ranks added the same; ``sums``: of ``summands`` over the ranks."""
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return all(num_ranks * int(squared) == int(plain) ** 2 for plain, squared in pairs)
