"""Token slices: keys and values go on, their gradients come back; the result is that of whole samples."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from planner.errors import ExecutorError
from planner.executor.executor import Executor
from planner.plan.instruction import stream_text
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.schedules.build import build_plan
from planner.schedules.split import split_in_place
from tests.helpers.exact import check_exact, model_plan, plan_parts
from tests.helpers.executor_cases import adamw, changed, make_plan, squares, with_recompute
from tests.helpers.ranks import Ranks

UNEQUAL = MicroBatch(route=0, samples=2, cuts=(0, 5, 6, 12))
HALVES = MicroBatch(route=0, samples=2, cuts=(0, 6, 12))
WHOLE = MicroBatch(route=0, samples=1, cuts=(0, 12))
SHORT = MicroBatch(route=0, samples=2, cuts=(0, 2, 7))


def stages(*cuts: int, legs: int = 1, data: int = 1, recompute: bool = False) -> list[Stage]:
    """Stage s on group s modulo the number of groups; every second layer recomputes."""
    num_groups = (len(cuts) - 1) // legs
    return [
        Stage(
            group=place % num_groups,
            first_layer=first,
            end_layer=end,
            mesh=Mesh(data=data),
            recompute={"full": tuple(range(first, end, 2))} if recompute else {},
        )
        for place, (first, end) in enumerate(pairwise(cuts))
    ]


def split(plan: Plan) -> Plan:
    """Every B becomes I W, each W as late as it may stand."""
    slices = [batch.num_slices for batch in plan.micro_batches]
    streams = []
    for stream in plan.instructions:
        found = split_in_place(stream)
        weights = [i for i in found if i.operation == "W"]
        rest = [i for i in found if i.operation not in ("W", "G", "U")]
        ends = sorted((i for i in found if i.operation in ("G", "U")), key=lambda i: i.operation)
        streams.append(stream_text([*rest, *weights, *ends], slices))
    return changed(plan, streams=tuple(streams))


CASES = {
    "2 ranks, TeraPipe, unequal slices": lambda model: model_plan(model, "gpipe", stages(0, 3, 8), [UNEQUAL] * 2),
    "2 ranks, Seq1F1B, slices and whole samples": lambda model: model_plan(
        model, "1f1b", stages(0, 4, 8), [UNEQUAL, WHOLE, HALVES, SHORT]
    ),
    "4 ranks, Seq1F1B": lambda model: model_plan(model, "1f1b", stages(0, 2, 4, 6, 8), [HALVES, UNEQUAL, HALVES]),
    "2 ranks, breadth first": lambda model: model_plan(model, "gpipe", stages(0, 2, 4, 6, 8, legs=2), [HALVES] * 2),
    "2 ranks, split backward": lambda model: split(
        model_plan(model, "1f1b", stages(0, 3, 8), [UNEQUAL, HALVES, WHOLE])
    ),
    "4 ranks, data 2": lambda model: model_plan(model, "1f1b", stages(0, 3, 8, data=2), [UNEQUAL, HALVES]),
    "2 ranks, recompute without R": lambda model: model_plan(
        model, "1f1b", stages(0, 3, 8, recompute=True), [UNEQUAL, HALVES]
    ),
    "2 ranks, recompute with R": lambda model: with_recompute(
        model_plan(model, "1f1b", stages(0, 3, 8, recompute=True), [UNEQUAL, HALVES])
    ),
    "2 ranks, split backward, recompute with R": lambda model: with_recompute(
        split(model_plan(model, "1f1b", stages(0, 3, 8, recompute=True), [UNEQUAL, WHOLE]))
    ),
    "3 ranks, replicas of unequal length": lambda model: build_plan(
        plan_parts(
            model,
            [
                Stage(group=0, first_layer=0, end_layer=4),
                Stage(group=1, first_layer=4, end_layer=8),
                Stage(group=2, first_layer=0, end_layer=8),
            ],
            routes=[[0, 1], [2]],
            micro_batches=[UNEQUAL, SHORT.model_copy(update={"route": 1}), HALVES],
        ),
        "1f1b",
    ),
}


@pytest.mark.parametrize("model", ["llama/float64", "gpt2/float64"])
@pytest.mark.parametrize("name", list(CASES))
def test_slices_train_as_whole_samples(name: str, model: str, ranks: Ranks, tmp_path: Path) -> None:
    check_exact(CASES[name](model), model, ranks, tmp_path)


def sliced_line(cuts: tuple[int, ...]) -> tuple[Plan, nn.Module]:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    plan = make_plan(
        model, family="gpipe", groups=[[0]], stages=[(0, 0, 2, 1)], routes=[[0]], batches=[(0, 2)], tokens=cuts[-1]
    )
    words = [f"0F0.{part}" for part in range(len(cuts) - 1)] + [
        f"0B0.{part}" for part in reversed(range(len(cuts) - 1))
    ]
    batch = MicroBatch(route=0, samples=2, cuts=cuts)
    return changed(plan, micro_batches=(batch,), streams=(" ".join([*words, "0G0", "0U0"]),)), model


def test_labels_without_tokens_are_refused_where_samples_are_cut() -> None:
    plan, model = sliced_line((0, 2, 6))
    executor = Executor(plan, model, squares, torch.Tensor.numel, adamw, emulate=True)
    with pytest.raises(ExecutorError, match="expected 6 tokens in dimension 1") as caught:
        executor.step((torch.randn(2, 6, 4), torch.randn(2, 1, 4)))
    assert caught.value.code == "batch_shape"


def test_slices_through_a_layer_that_is_not_causal_are_refused() -> None:
    plan, _ = sliced_line((0, 2, 6))
    model = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
    other = make_plan(
        model, family="gpipe", groups=[[0]], stages=[(0, 0, 2, 1)], routes=[[0]], batches=[(0, 2)], tokens=6
    )
    with pytest.raises(ExecutorError, match="layer '1'") as caught:
        Executor(changed(plan, graph=other.graph), model, squares, torch.Tensor.numel, adamw, emulate=True)
    assert caught.value.code == "not_causal"


def test_nothing_is_kept_after_a_step() -> None:
    """Slices in a stage that only goes forward leave nothing either."""
    plan, model = sliced_line((0, 1, 2, 6))
    executor = Executor(plan, model, squares, torch.Tensor.numel, adamw, emulate=True)
    batch = torch.randn(2, 6, 4), torch.randn(2, 6, 4)
    loss = executor.step(batch).loss
    assert executor.evaluate(batch) != loss  # the weights are others now
