"""The end of a step: sums done, loss and gradient norm known to all, one decision, the optimizer's update.

The norm counts each weight once, at its first holder; loss and norm go round in one sum over all ranks. Where either
is not finite all ranks skip the update together.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from planner.errors import ExecutorError
from planner.executor.handshake import differences
from planner.executor.marks import BatchMarks, are_equal, summands
from planner.executor.messages import ConnectionLostError
from planner.executor.stopping import stop_asked
from planner.executor.sums import GradientSums
from planner.executor.team import Team

__all__ = ["MOST_SKIPPED_STEPS", "Batch", "Norm", "Outcome", "Update", "checked_norm"]

MOST_SKIPPED_STEPS = 10  # in a row


@dataclass
class Batch:
    """The global batch of the call that runs, what its loss is divided by, and this rank's parts of the loss.

    ``counted``: by update, what the loss of a backward is divided by; ``num_counted``: what the loss shown is.
    ``num_seen``: samples of all steps before.
    """

    inputs: Tensor | None = None
    labels: Tensor | None = None
    num_counted: int = 0
    num_seen: int = 0
    marks: BatchMarks | None = None
    counted: tuple[int, ...] = ()
    losses: list[Tensor] = field(default_factory=list)


class Outcome(NamedTuple):
    """What all ranks know of a call; no norm where nothing goes backward. ``stop``: a rank was asked to stop."""

    loss: float
    gradient_norm: float | None
    skipped: bool
    stop: bool


class _Sums(NamedTuple):
    loss: float
    squared_norm: float
    stop: bool


@dataclass(frozen=True)
class Norm:
    """The gradient norm of the whole step: ``counted`` are the weights that this rank counts, ``trained`` all it holds.

    ``most``: gradients of a larger norm are scaled down to it, the same on every rank; None: never.
    """

    counted: tuple[nn.Parameter, ...]
    trained: tuple[nn.Parameter, ...]
    most: float | None

    def own_part(self) -> float:
        """The norm of the counted weights' gradients."""
        gradients = [parameter.grad for parameter in self.counted if parameter.grad is not None]
        return get_total_norm(gradients).item() if gradients else 0.0

    def clip(self, norm: float | None) -> None:
        """As ``torch.nn.utils.clip_grad_norm_`` does with the norm of all weights."""
        if self.most is not None and norm is not None:
            clip_grads_with_norm_(self.trained, self.most, torch.tensor(norm))


def checked_norm(most: float | None) -> float | None:
    """Raises ``ExecutorError`` unless it is None or a positive, finite number."""
    if most is not None and not 0 < most < math.inf:
        raise ExecutorError(f"found max_gradient_norm {most}, expected a positive, finite number", code="gradient_norm")
    return most


class Update:
    """The decision and the update of one rank."""

    def __init__(self, team: Team, batch: Batch, *, sums: GradientSums, norm: Norm, optimizer: Optimizer) -> None:
        self.outcome: Outcome | None = None
        self._team, self._batch, self._sums = team, batch, sums
        self._optimizer, self._norm = optimizer, norm
        self._skipped_in_a_row = 0

    def agree(self) -> None:
        """Wait for all sums; then every rank has the same loss, norm and decision."""
        self._sums.finish()
        loss, squared, stop = self._everywhere(self._norm.own_part() ** 2)
        finite = math.isfinite(loss) and math.isfinite(squared)
        self.outcome = Outcome(loss, math.sqrt(squared) if finite else math.nan, not finite, stop)
        self._skipped_in_a_row = 0 if finite else self._skipped_in_a_row + 1
        if self._skipped_in_a_row >= MOST_SKIPPED_STEPS:
            message = f"loss or gradient norm not finite in {MOST_SKIPPED_STEPS} steps in a row (loss {loss})"
            raise ExecutorError(message, code="not_finite")

    def agree_on_loss(self) -> None:
        """The same without gradients."""
        loss, _, stop = self._everywhere(0.0)
        self.outcome = Outcome(loss, None, False, stop)

    def require_finite(self) -> None:
        """Where updates do not wait for a common decision: they have been applied."""
        assert self.outcome is not None, "agree_on_loss comes first"
        if not math.isfinite(self.outcome.loss):
            message = f"the loss is {self.outcome.loss} in a step whose updates do not wait for it"
            raise ExecutorError(message, code="not_finite")

    def apply(self) -> None:
        """This rank's weights, once a step, unless the step is skipped."""
        assert self.outcome is not None, "agree comes first"
        if not self.outcome.skipped:
            self._norm.clip(self.outcome.gradient_norm)
            self._optimizer.step()

    def _everywhere(self, squared: float) -> "_Sums":
        """Loss and squared norm, summed over the ranks, and whether one of them was asked to stop."""
        losses, own_marks = self._batch.losses, self._batch.marks
        assert own_marks is not None, "the batch comes first"
        loss = torch.stack(losses).double().sum().item() if losses else 0.0
        own = [loss, squared, float(stop_asked()), *summands(own_marks)]
        values = torch.tensor(own, dtype=torch.float64, device=self._team.device)
        try:
            total, total_squared, stop, *marks = self._team.sum(values).tolist()
            if not are_equal(marks, self._team.num_ranks):
                raise self._different_batches(own_marks)
        except RuntimeError as error:
            raise ConnectionLostError(None, error) from error
        return _Sums(total, total_squared, stop > 0)

    def _different_batches(self, marks: BatchMarks) -> ExecutorError:
        """What differs and on which ranks; every rank is here, for they all saw the same sums."""
        gathered = self._team.gather(torch.tensor(marks, device=self._team.device))
        said = {
            rank: {name: f"{value:x}" for name, value in zip(BatchMarks._fields, row, strict=True)}
            for rank, row in enumerate(gathered.tolist())
        }
        faults = "; ".join(fault.message for fault in differences(said))
        return ExecutorError(f"the ranks got different batches: {faults} (marks, hexadecimal)", code="batch_differs")
