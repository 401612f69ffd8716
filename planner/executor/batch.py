"""The batch that ``step`` is given, checked against the plan before anything is sent."""

from torch import Tensor

from planner.errors import ExecutorError
from planner.executor.shapes import BatchShape, TensorShape

__all__ = ["check_batch"]


def check_batch(inputs: Tensor, labels: Tensor, expected: BatchShape, *, rank: int) -> None:
    """Raises ``ExecutorError`` naming found and expected shape, and the rank that was given the batch."""
    wanted = TensorShape((expected.samples, *expected.inner), expected.dtype)
    found = TensorShape(tuple(inputs.shape), inputs.dtype)
    if found != wanted:
        message = f"rank {rank} found inputs {found.text}, expected {wanted.text}"
        raise ExecutorError(message, code="batch_shape", pointer="inputs")
    if expected.cuts_tokens and (labels.ndim < 2 or labels.shape[1] != expected.inner[0]):
        raise ExecutorError(
            f"rank {rank} found labels {list(labels.shape)}, expected {expected.inner[0]} tokens in dimension 1",
            code="batch_shape",
            pointer="labels",
        )
    if labels.ndim == 0 or labels.shape[0] != expected.samples:
        raise ExecutorError(
            f"rank {rank} found labels {list(labels.shape)}, expected {expected.samples} samples in dimension 0",
            code="batch_shape",
            pointer="labels",
        )
