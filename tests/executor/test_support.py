"""Plans that the executor cannot carry out are refused by the feature's name, before any process group is used."""

from typing import Any

import pytest
import torch
from torch import nn

from planner.errors import ExecutorError, HandshakeError, UnsupportedPlanError
from planner.executor.executor import Executor
from planner.plan.mesh import Mesh
from planner.plan.plan import Plan
from tests.helpers.executor_cases import adamw, changed, make_plan, squares, token_count, token_loss

MODEL = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))


def base() -> Plan:
    """Two ranks in one group that share the samples: data 2."""
    return make_plan(
        MODEL,
        family="gpipe",
        groups=[[0, 1]],
        stages=[(0, 0, 3, 2)],
        routes=[[0]],
        batches=[(0, 4), (0, 4)],
        recompute=[0],
        tokens=8,
    )


def on_mesh(plan: Plan, **mesh: Any) -> Plan:
    stage = plan.stages[0].model_copy(update={"mesh": Mesh(**mesh)})
    return changed(plan, stages=(stage,))


UNSUPPORTED = {
    "tensor > 1": lambda plan: on_mesh(plan, tensor=2),
    "context > 1": lambda plan: on_mesh(plan, context=2, exchange="ring"),
    "experts > 1": lambda plan: on_mesh(plan, data=2, experts=2),
    "shards > 1": lambda plan: on_mesh(plan, data=2, shards=2, sharded="optimizer"),
    "selective recompute": lambda plan: changed(
        plan, stages=(plan.stages[0].model_copy(update={"recompute": {"selective": (1,)}}),)
    ),
    "reduced precision": lambda plan: changed(plan, precision="bf16"),
}


@pytest.mark.parametrize("feature", list(UNSUPPORTED))
def test_what_is_not_supported_is_refused_by_name(feature: str) -> None:
    plan = UNSUPPORTED[feature](base())
    assert not torch.distributed.is_initialized()
    with pytest.raises(UnsupportedPlanError, match=feature) as caught:
        Executor(plan, MODEL, token_loss, token_count, adamw, emulate=True)
    assert caught.value.code == "unsupported_plan"


def test_a_supported_plan_of_two_ranks_asks_for_a_process_group() -> None:
    with pytest.raises(ExecutorError, match="one of 2 ranks") as caught:
        Executor(base(), MODEL, token_loss, token_count, adamw, emulate=True)
    assert caught.value.code == "no_process_group"


def one_rank_plan(model: nn.Module, stream: str) -> Plan:
    plan = make_plan(
        model,
        family="interleaved",
        groups=[[0]],
        stages=[(0, 0, 2, 1), (0, 2, 3, 1)],
        routes=[[0, 1]],
        batches=[(0, 2)],
        tokens=3,
    )
    return changed(plan, streams=(stream,))


LEFT_OUT = {"first": "0F0 1F0 1B0 1G0 1U0", "last": "0F0 1F0 1I0 0B0 0G0 0U0"}


@pytest.mark.parametrize("place", list(LEFT_OUT))
def test_trained_weights_without_a_gradient_are_refused_until_they_are_frozen(place: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    stage, layers = (0, model[:2]) if place == "first" else (1, model[2:])
    with pytest.raises(
        HandshakeError, match=f"found no B or W of stage {stage}.*trained weights {2 * stage}.weight"
    ) as caught:
        Executor(one_rank_plan(model, LEFT_OUT[place]), model, squares, torch.Tensor.numel, adamw, emulate=True)
    assert (caught.value.code, caught.value.pointer) == ("untrained", f"/stages/{stage}")
    layers.requires_grad_(False)
    executor = Executor(one_rank_plan(model, LEFT_OUT[place]), model, squares, torch.Tensor.numel, adamw, emulate=True)
    assert executor.step((torch.ones(2, 3, 4), torch.zeros(2, 3, 4))).loss > 0


@pytest.mark.parametrize("recompute", [(), (0, 1, 2)], ids=["kept", "recomputed"])
@pytest.mark.parametrize("split", [False, True], ids=["B", "I W"])
@pytest.mark.parametrize("frozen", [[0, 1], [2], [0, 1, 2]])
def test_a_backward_of_frozen_layers_is_that_of_the_whole_model(
    frozen: list[int], split: bool, recompute: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in frozen:
        model[layer].requires_grad_(False)
    plan = make_plan(
        model,
        family="interleaved",
        groups=[[0]],
        stages=[(0, 0, 2, 1), (0, 2, 3, 1)],
        routes=[[0, 1]],
        batches=[(0, 2), (0, 1)],
        tokens=3,
        split=split,
        recompute=recompute,
    )
    inputs, labels = torch.randn(3, 3, 4), torch.randn(3, 3, 4)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    loss = squares(model(inputs), labels) / labels.numel()
    expected = torch.autograd.grad(loss, trained) if trained else ()
    executor = Executor(plan, model, squares, torch.Tensor.numel, adamw, emulate=True)
    assert executor.step((inputs, labels)).loss == pytest.approx(float(loss.detach()), rel=1e-6)
    for weight, gradient in zip(trained, expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-5, atol=1e-7)
