"""Plans and cases of the executor tests, run on real ranks and compared with the unsplit model."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from planner.cutting.cut import cut_model
from planner.executor.executor import Executor
from planner.plan.graph import LayerGraph, Node
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.options import Family
from planner.schedules.build import PlanParts, build_plan
from tests.helpers.documents import digest_of
from tests.helpers.models import gpt2, llama

__all__ = ["CASES", "make_batch", "make_model", "make_plan", "token_count", "token_loss", "train"]

TOKENS = 12
VOCABULARY = 61
KIND = "test-device"
NUM_LAYERS = 8  # of both models: embedding, six blocks, head

# name -> ranks, family, groups, stages as (group, first layer, end layer, data), routes, (route, samples) of each
# micro-batch
CASES: dict[str, dict[str, Any]] = {
    "2 ranks GPipe": {
        "family": "gpipe",
        "groups": [[0], [1]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "2 ranks 1F1B cut 1 + rest": {
        "family": "1f1b",
        "groups": [[0], [1]],
        "stages": [(0, 0, 1, 1), (1, 1, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "2 ranks interleaved v=2": {
        "family": "interleaved",
        "groups": [[0], [1]],
        "stages": [(0, 0, 2, 1), (1, 2, 4, 1), (0, 4, 6, 1), (1, 6, 8, 1)],
        "routes": [[0, 1, 2, 3]],
        "batches": [(0, 2)] * 4,
    },
    "4 ranks 1F1B": {
        "family": "1f1b",
        "groups": [[0], [1], [2], [3]],
        "stages": [(0, 0, 2, 1), (1, 2, 4, 1), (2, 4, 6, 1), (3, 6, 8, 1)],
        "routes": [[0, 1, 2, 3]],
        "batches": [(0, 1)] * 8,
    },
    "4 ranks interleaved v=2": {
        "family": "interleaved",
        "groups": [[0], [1], [2], [3]],
        "stages": [(stage % 4, stage, stage + 1, 1) for stage in range(8)],
        "routes": [list(range(8))],
        "batches": [(0, 1)] * 8,
    },
    "4 ranks mesh data 2 x 2 stages": {
        "family": "1f1b",
        "groups": [[0, 1], [2, 3]],
        "stages": [(0, 0, 4, 2), (1, 4, 8, 2)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "4 ranks as two equal routes": {
        "family": "1f1b",
        "groups": [[0], [1], [2], [3]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1), (2, 0, 4, 1), (3, 4, 8, 1)],
        "routes": [[0, 1], [2, 3]],
        "batches": [(0, 2), (1, 2), (0, 2), (1, 2)],
    },
    "3 ranks as unequal routes 3:1": {
        "family": "1f1b",
        "groups": [[0], [1], [2]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1), (2, 0, 8, 1)],
        "routes": [[0, 1], [2]],
        "batches": [(0, 2), (0, 2), (1, 2), (0, 2)],
    },
}


def make_model(name: str, device: str = "cpu", num_blocks: int = NUM_LAYERS - 2) -> nn.Module:
    """``llama`` or ``gpt2``, always the same weights."""
    model = (llama if name == "llama" else gpt2)(num_blocks=num_blocks, device=device)
    return model.eval()


def make_plan(
    model: nn.Module,
    *,
    family: Family,
    groups: Iterable[Iterable[int]],
    stages: Iterable[tuple[int, int, int, int]],
    routes: Iterable[Iterable[int]],
    batches: Iterable[tuple[int, int]],
    recompute: Iterable[int] = (),
    tokens: int = TOKENS,
) -> Plan:
    """A plan for ``model`` from lists as in ``CASES``; the layers ``recompute`` drop their activations."""
    cut = cut_model(model)
    graph = LayerGraph(model=cut.fingerprint, num_layers=len(cut.layers), tied=tuple(tied.layers for tied in cut.tied))
    dropped = set(recompute)

    def stage(group: int, first: int, end: int, data: int) -> Stage:
        layers = tuple(layer for layer in range(first, end) if layer in dropped)
        return Stage(
            group=group,
            first_layer=first,
            end_layer=end,
            mesh=Mesh(data=data),
            recompute={"full": layers} if layers else {},
        )

    ranks = tuple(tuple(group) for group in groups)
    parts = PlanParts(
        problem=digest_of("executor"),
        precision="fp32",
        graph=graph,
        nodes=(Node(node_group="tests", device_kind=KIND, num_ranks=sum(map(len, ranks))),),
        groups=ranks,
        stages=tuple(stage(*one) for one in stages),
        routes=tuple(tuple(route) for route in routes),
        micro_batches=tuple(MicroBatch(route=route, samples=samples, cuts=(0, tokens)) for route, samples in batches),
    )
    return build_plan(parts, family)


def make_batch(step: int, samples: int = 8, tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    """Tokens and the next tokens; some labels do not count, unequally many in each sample."""
    generator = torch.Generator().manual_seed(100 + step)
    text = torch.randint(0, VOCABULARY, (samples, tokens + 1), generator=generator)
    labels = text[:, 1:].clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = -100
    return text[:, :-1], labels


def token_loss(output: Tensor, labels: Tensor) -> Tensor:
    """Sum over the counted tokens."""
    return functional.cross_entropy(output.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def token_count(labels: Tensor) -> int:
    return int((labels != -100).sum())


adamw = partial(torch.optim.AdamW, lr=1e-3)


def train(
    group: Any,
    *,
    model: str,
    case: dict[str, Any],
    folder: str,
    num_steps: int = 5,
    device: str = "cpu",
    from_meta: bool = False,
) -> dict[str, Any]:
    """Steps of AdamW; gradients of the first step in ``gradients-<rank>``, the weights in ``weights`` at the end."""
    module = make_model(model, "meta" if from_meta else device)
    plan = make_plan(module, **case)
    executor = Executor(plan, module, token_loss, token_count, adamw, process_group=group, emulate=True)
    try:
        losses, norms, steps_ns = [], [], []
        for step in range(num_steps):
            result = executor.step(make_batch(step))
            losses.append(result.loss)
            norms.append(result.gradient_norm)
            steps_ns.append(result.timeline.step_ns)
            if step == 0:
                gradients = {name: p.grad for name, p in executor.parameters().items() if p.grad is not None}
                save_file(
                    {name: g.clone() for name, g in gradients.items()}, Path(folder) / f"gradients-{executor.rank}"
                )
        executor.save_weights(Path(folder) / "weights")
        return {"losses": losses, "norms": norms, "steps_ns": steps_ns}
    finally:
        executor.close()
