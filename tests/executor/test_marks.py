"""Marks of a batch: what they see, and that every rank decides alike."""

import math
import random

import pytest
import torch

from planner.executor.marks import BatchMarks, are_equal, batch_marks, summands


def sums_of(marks: list[BatchMarks]) -> list[float]:
    """As the sum over ranks in fp64 gives them."""
    return [math.fsum(column) for column in zip(*map(summands, marks), strict=True)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 1000, 16384])
def test_equal_marks_are_equal_and_one_odd_one_is_not(num_ranks: int) -> None:
    numbers = random.Random(num_ranks)
    for _ in range(20):
        marks = [BatchMarks(numbers.getrandbits(32), numbers.getrandbits(32), 7)] * num_ranks
        assert are_equal(sums_of(marks), num_ranks)
        if num_ranks > 1:
            marks[numbers.randrange(num_ranks)] = BatchMarks(numbers.getrandbits(32), 5, 7)
            assert not are_equal(sums_of(marks), num_ranks)


def test_marks_on_both_sides_of_the_mean_are_not_equal() -> None:
    """Ranks 0 and 2 lie as far below as above rank 1, which is on the average."""
    sums = [0.0] * 4
    for piece in (10, 20, 30):
        sums[0], sums[1] = sums[0] + piece, sums[1] + piece * piece
    assert sums[0] / 3 == 20
    assert not are_equal(sums, 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_a_mark_sees_every_value_of_a_small_batch_and_their_order(dtype: torch.dtype) -> None:
    inputs = torch.tensor([[0, 1, 1], [0, 0, 1]]).to(dtype)
    labels = torch.zeros(2, 3, dtype=torch.int64)
    found = batch_marks(inputs, labels, 6)
    assert batch_marks(inputs.t().contiguous().t(), labels.clone(), 6) == found
    assert batch_marks(inputs.flip(0), labels, 6).mark != found.mark
    assert batch_marks(inputs, labels, 5).mark != found.mark
    assert batch_marks(inputs, labels + 1, 6).mark != found.mark


def test_a_large_batch_is_sampled_over_its_whole_length() -> None:
    inputs, labels = torch.zeros(64, 1 << 16, dtype=torch.int64), torch.zeros(64)
    found = batch_marks(inputs, labels, 1)
    for changed in (inputs[:, :100], inputs[-1:], inputs[20:40]):
        changed += 1
        other = batch_marks(inputs, labels, 1)
        changed -= 1
        assert other.inputs != found.inputs
