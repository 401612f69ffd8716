"""A layer may read the labels; the loss is computed of what nobody reads with gradient."""

import pytest
import torch
from torch import Tensor, nn

from planner.executor.executor import Executor
from tests.helpers.executor_cases import adamw, make_plan


class SquaredErrors(nn.Module):
    """A head that compares with the labels itself, as parts of a head cut by vocabulary do."""

    reads_labels = True

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, hidden: Tensor, labels: Tensor | None = None) -> Tensor:
        """[samples, tokens]; without labels where only shapes are worked out."""
        projected: Tensor = self.project(hidden)
        return ((projected - (0 if labels is None else labels)) ** 2).sum(-1)


@pytest.mark.parametrize("recompute", [(), (0, 1)], ids=["kept", "recomputed"])
def test_a_layer_that_reads_the_labels_gets_those_of_its_samples(recompute: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 4), SquaredErrors())
    plan = make_plan(
        model,
        family="interleaved",
        groups=[[0]],
        stages=[(0, 0, 1, 1), (0, 1, 2, 1)],
        routes=[[0, 1]],
        batches=[(0, 1), (0, 2)],
        recompute=recompute,
        tokens=3,
    )
    inputs, labels = torch.randn(3, 3, 4), torch.randn(3, 3, 4)
    expected = model[1](model[0](inputs), labels).sum() / labels.numel()
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    executor = Executor(plan, model, lambda output, _: output.sum(), Tensor.numel, adamw, emulate=True)
    assert executor.step((inputs, labels)).loss == pytest.approx(float(expected.detach()), rel=1e-6)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
