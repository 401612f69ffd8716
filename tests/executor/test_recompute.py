"""A layer that is computed twice changes its buffers once."""

import torch
from torch import Tensor, nn

from planner.executor.recompute import Cell, run_recomputed


def buffers_after(runs: int) -> dict[str, Tensor]:
    """Of a batch norm that the plain loop runs forward and backward ``runs`` times."""
    module = nn.BatchNorm1d(3)
    for run in range(runs):
        module(inputs(run)).sum().backward()
    return dict(module.named_buffers())


def inputs(run: int) -> Tensor:
    return torch.arange(12.0).reshape(4, 3).requires_grad_() * (run + 1)


def test_running_statistics_are_those_of_one_run() -> None:
    module = nn.BatchNorm1d(3)
    own = {name: id(buffer) for name, buffer in module.named_buffers()}
    for run in range(2):
        anchor = torch.zeros((), requires_grad=True)
        run_recomputed(Cell(module), anchor, [inputs(run)]).sum().backward()
    expected = buffers_after(2)
    for name, buffer in module.named_buffers():
        assert id(buffer) == own[name]
        assert torch.equal(buffer, expected[name]), name
    assert int(dict(module.named_buffers())["num_batches_tracked"]) == 2


def test_two_forwards_before_their_backwards() -> None:
    module = nn.BatchNorm1d(3)
    anchor = torch.zeros((), requires_grad=True)
    outputs = [run_recomputed(Cell(module), anchor, [inputs(run)]) for run in range(2)]
    for output in outputs:
        output.sum().backward()
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, buffers_after(2)[name]), name
