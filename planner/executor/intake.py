"""The batch of a call, checked and taken in, with what its losses are divided by."""

from collections.abc import Callable

from torch import Tensor

from planner.errors import ExecutorError
from planner.executor.batch import check_batch
from planner.executor.gathering import count_parts
from planner.executor.marks import batch_marks
from planner.executor.preparation import Ready

__all__ = ["Intake"]


class Intake:
    """``count``: the caller's, asked before anything runs."""

    def __init__(self, count: Callable[[Tensor], int], ready: Ready, *, rank: int) -> None:
        self.count = count
        self._ready, self._rank = ready, rank

    def take(self, batch: tuple[Tensor, Tensor]) -> None:
        """Divided by what the batch itself counts."""
        check_batch(*batch, self._ready.batch, rank=self._rank)
        self._put(batch, count_parts(self.count, batch[1], self._ready.counted))

    def take_step(self, batch: tuple[Tensor, Tensor], counted: int | None, *, num_seen: int) -> None:
        """Divided by one number for all steps up to an update, where gradients wait for it."""
        self._ready.tools.batch.num_seen = num_seen
        kept = self._ready.live.kept_counted
        if not kept and not self._ready.keeps_gradients and counted is None:
            self.take(batch)
            return
        if counted is None or (kept and counted != kept) or len(self._ready.counted) > 1:
            expected = f"{kept}, as in the step before" if kept else "what all steps up to the update count together"
            raise ExecutorError(f"found counted={counted}, expected {expected}", code="count")
        check_batch(*batch, self._ready.batch, rank=self._rank)
        self._put(batch, (counted,))

    def _put(self, batch: tuple[Tensor, Tensor], counted: tuple[int, ...]) -> None:
        if min(counted) < 1:
            raise ExecutorError(f"found {min(counted)} counted tokens in the batch, expected one or more", code="count")
        taken, device = self._ready.tools.batch, self._ready.tools.device
        taken.inputs, taken.labels = (tensor.to(device) for tensor in batch)
        taken.num_counted, taken.counted = sum(counted), counted
        taken.marks = batch_marks(*batch, taken.num_counted)
        taken.losses.clear()
