"""Plans that take turns on the same weights, on ranks."""

from typing import Any

import torch
from torch import Tensor, nn

from planner.executor.executor import Executor
from tests.helpers.executor_cases import adamw, changed, make_plan, squares

__all__ = ["KEEPS", "phase_batch", "phase_model"]

KEEPS = "0F0 0F1 0B0 0B1"  # a stream without an update


def phase_model() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def phase_batch(step: int, samples: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(samples, 3, 4, generator=generator), torch.randn(samples, 3, 4, generator=generator)


def shared_phases(group: Any) -> list[Any]:
    """On a rank: its weights after both plans."""
    model = phase_model()
    shape: dict[str, Any] = {"family": "gpipe", "tokens": 3}
    shared = make_plan(model, groups=[[0, 1]], stages=[(0, 0, 3, 2)], routes=[[0]], batches=[(0, 2)] * 2, **shape)
    routes = make_plan(
        model,
        groups=[[0], [1]],
        stages=[(0, 0, 3, 1), (1, 0, 3, 1)],
        routes=[[0], [1]],
        batches=[(0, 3), (1, 1)],
        **shape,
    )
    keeps = changed(shared, streams=(KEEPS,))
    executor = Executor(keeps, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    following = executor.following(routes)
    executor.step(phase_batch(0), counted=96)
    following.step(phase_batch(1), counted=96)
    following.close()
    executor.close()
    return [parameter.detach().tolist() for parameter in model.parameters()]


def other_placement(group: Any) -> None:
    model = phase_model()
    shape: dict[str, Any] = {"family": "gpipe", "tokens": 3, "batches": [(0, 2)] * 2}
    lists: dict[str, Any] = {"stages": [(0, 0, 1, 1), (1, 1, 3, 1)], "routes": [[0, 1]]}
    one = make_plan(model, groups=[[0], [1]], **lists, **shape)
    other = make_plan(model, groups=[[1], [0]], **lists, **shape)
    executor = Executor(one, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    try:
        executor.following(other)
    finally:
        executor.close()
