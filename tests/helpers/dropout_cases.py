"""GPT-2 in training with dropout, under plans that run the same rows together."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from planner.executor.executor import Executor
from planner.plan.graph import LayerGraph
from tests.helpers.executor_cases import adamw, make_batch, make_graph, make_model, make_plan, token_count, token_loss

__all__ = ["DROPOUT_CASES", "NUM_STEPS", "dropping_model", "dropping_run", "resumed_run"]

NUM_STEPS = 3
PAIRS = [(0, 2)] * 4  # micro-batches of two samples
WHOLE: dict[str, Any] = {
    "family": "gpipe",
    "groups": [[0]],
    "stages": [(0, 0, 8, 1)],
    "routes": [[0]],
    "batches": PAIRS,
}
TWO_STAGES: dict[str, Any] = {
    "family": "1f1b",
    "groups": [[0], [1]],
    "stages": [(0, 0, 3, 1), (1, 3, 8, 1)],
    "routes": [[0, 1]],
    "batches": PAIRS,
}
DROPOUT_CASES: dict[str, dict[str, Any]] = {
    "1 rank": WHOLE,
    "1 rank, full recompute": {**WHOLE, "recompute": range(8)},
    "1F1B on 2 ranks": TWO_STAGES,
    "1F1B, split backward": {**TWO_STAGES, "split": True},
    "1F1B, recompute": {**TWO_STAGES, "recompute": (1, 4, 5)},
    "1F1B, full recompute with R": {**TWO_STAGES, "recompute": range(8), "restore": True},
    "interleaved on 2 ranks": {
        "family": "interleaved",
        "groups": [[0], [1]],
        "stages": [(0, 0, 2, 1), (1, 2, 4, 1), (0, 4, 6, 1), (1, 6, 8, 1)],
        "routes": [[0, 1, 2, 3]],
        "batches": PAIRS,
    },
    "2 data ranks, as many rows on each": {
        **WHOLE,
        "groups": [[0, 1]],
        "stages": [(0, 0, 8, 2)],
        "batches": [(0, 4)] * 2,
    },
    "other rows together": {**WHOLE, "batches": [(0, 4)] * 2},
}


def dropping_model(probability: float = 0.1) -> nn.Module:
    """Always the same weights, none of them tied: the sum over a tie's holders has an order that the plan decides."""
    model = make_model("gpt2").train()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())  # type: ignore[union-attr]
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
    return model


def dropping_run(group: Any, *, case: str, seed: int = 0, used: int = 0) -> list[float]:
    """Losses of AdamW steps on a rank; ``used``: numbers that its script drew before each step."""
    executor = _executor(group, case, seed)
    losses = []
    for step in range(NUM_STEPS):
        torch.rand(used)
        losses.append(executor.step(make_batch(step)).loss)
    executor.close()
    return losses


def resumed_run(group: Any, *, case: str, after: str, folder: str) -> list[float]:
    """The same steps, the last ones of a second executor under ``after``, from a checkpoint of the first step."""
    first = _executor(group, case, 0)
    losses = [first.step(make_batch(0)).loss]
    first.save(Path(folder) / "checkpoints")
    first.close()
    torch.manual_seed(77)
    second = _executor(group, after, 0)
    second.load(Path(folder) / "checkpoints")
    losses += [second.step(make_batch(step)).loss for step in range(1, NUM_STEPS)]
    second.close()
    return losses


@cache
def _graph() -> LayerGraph:
    return make_graph(dropping_model())


def _executor(group: Any, case: str, seed: int) -> Executor:
    model = dropping_model()
    plan = make_plan(model, graph=_graph(), **DROPOUT_CASES[case])
    return Executor(plan, model, token_loss, token_count, adamw, process_group=group, emulate=True, seed=seed)
