"""One rank without torch.distributed: all stages in one group, real and meta models, recompute, counters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from planner.errors import ExecutorError, OutputError
from planner.executor.executor import Executor
from planner.plan.plan import Plan
from tests.helpers.executor_cases import adamw, make_batch, make_model, make_plan, squares, token_count, token_loss

ONE_STAGE = {
    "family": "gpipe",
    "groups": [[0]],
    "stages": [(0, 0, 8, 1)],
    "routes": [[0]],
    "batches": [(0, 3), (0, 5)],
}
FOUR_STAGES = {
    "family": "interleaved",
    "groups": [[0]],
    "stages": [(0, 0, 1, 1), (0, 1, 4, 1), (0, 4, 7, 1), (0, 7, 8, 1)],
    "routes": [[0, 1, 2, 3]],
    "batches": [(0, 3), (0, 5)],
}


def make_executor(plan: Plan, model: nn.Module, **more: Any) -> Executor:
    return Executor(plan, model, token_loss, token_count, adamw, emulate=True, **more)


@pytest.mark.parametrize("case", [ONE_STAGE, FOUR_STAGES], ids=["one stage", "four stages"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_all_stages_on_one_rank_train_as_the_unsplit_model(
    name: str, case: dict[str, Any], unsplit: Callable[..., Any]
) -> None:
    model = make_model(name)
    executor = make_executor(make_plan(model, **case), model)
    losses = [executor.step(make_batch(step)).loss for step in range(5)]
    assert losses == pytest.approx(unsplit(name, (3, 5)).losses, rel=1e-6)


def test_the_timeline_follows_the_streams() -> None:
    model = make_model("llama")
    plan = make_plan(model, **FOUR_STAGES)
    result = make_executor(plan, model).step(make_batch(0))
    (events,) = result.timeline.events
    assert [event.instruction for event in events] == list(plan.instructions[0])
    times = [time for event in events for time in (event.start_ns, event.end_ns)]
    assert times == sorted(times)  # one rank does one thing at a time
    assert times[0] >= 0
    assert times[-1] <= result.timeline.step_ns
    assert 0 <= result.timeline.bubble < 1


def test_evaluation_gives_the_loss_and_changes_nothing() -> None:
    model = make_model("gpt2")
    executor = make_executor(make_plan(model, **FOUR_STAGES), model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs, labels = make_batch(3)
    found = executor.evaluate((inputs, labels))
    with torch.no_grad():
        expected = float(token_loss(model(inputs).logits, labels)) / token_count(labels)
    assert found == pytest.approx(expected, rel=1e-6)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert executor.step((inputs, labels)).loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_meta_model_gets_the_same_weights_under_every_plan(name: str, tmp_path: Path) -> None:
    found = []
    for number, case in enumerate((ONE_STAGE, FOUR_STAGES)):
        model = make_model(name, "meta")
        make_executor(make_plan(model, **case), model, seed=7).save_weights(tmp_path / str(number))
        found.append(load_file(tmp_path / str(number)))
    assert found[0].keys() == found[1].keys() == make_model(name).state_dict().keys()
    assert all(torch.equal(tensor, found[1][key]) for key, tensor in found[0].items())
    other = make_model(name, "meta")
    make_executor(make_plan(other, **ONE_STAGE), other, seed=8).save_weights(tmp_path / "other")
    embedding = next(iter(found[0]))
    assert not torch.equal(load_file(tmp_path / "other")[embedding], found[0][embedding])


def test_a_meta_model_trains_as_a_real_one_with_its_weights(tmp_path: Path) -> None:
    meta = make_model("gpt2", "meta")
    executor = make_executor(make_plan(meta, **FOUR_STAGES), meta)
    executor.save_weights(tmp_path / "weights")
    real = make_model("gpt2")
    real.load_state_dict(load_file(tmp_path / "weights"), strict=True)
    other = make_executor(make_plan(real, **FOUR_STAGES), real)
    for step in range(3):
        assert executor.step(make_batch(step)).loss == other.step(make_batch(step)).loss


def test_initial_weights_have_the_spread_that_the_model_asks_for(tmp_path: Path) -> None:
    """GPT-2 scales the last projection of each block by 1/sqrt(2 blocks): 0.02 / sqrt(12) = 0.00577."""
    meta = make_model("gpt2", "meta")
    make_executor(make_plan(meta, **ONE_STAGE), meta).save_weights(tmp_path / "weights")
    weights = load_file(tmp_path / "weights")
    assert float(weights["transformer.h.2.attn.c_proj.weight"].std()) == pytest.approx(0.00577, rel=0.1)
    assert float(weights["transformer.h.2.attn.c_attn.weight"].std()) == pytest.approx(0.02, rel=0.1)
    assert float(weights["transformer.h.2.ln_1.weight"].mean()) == 1.0


class _NoInitialiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


def test_a_weight_that_nothing_initialises_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 4), _NoInitialiser())
    with pytest.raises(ExecutorError, match=r"1\.scale") as caught:
        make_small_executor(model, [2, 2])
    assert caught.value.code == "no_initialiser"


def small_plan(model: nn.Module, batches: list[int], *, recompute: bool = False, restore: bool = False) -> Plan:
    num_layers = len(list(model.children()))
    return make_plan(
        model,
        family="gpipe",
        groups=[[0]],
        stages=[(0, 0, num_layers, 1)],
        routes=[[0]],
        batches=[(0, samples) for samples in batches],
        recompute=range(num_layers) if recompute else (),
        restore=restore,
        tokens=3,
    )


def make_small_executor(model: nn.Module, batches: list[int], **how: bool) -> Executor:
    return Executor(small_plan(model, batches, **how), model, squares, Tensor.numel, adamw, emulate=True)


def small_batch(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, 3, 4, generator=generator), torch.randn(samples, 3, 4, generator=generator)


@pytest.mark.parametrize("restore", [False, True], ids=["without R", "with R"])
def test_recompute_repeats_the_random_numbers(restore: bool) -> None:
    """Dropout's mask in the second run is that of the first, and what is random afterwards is not disturbed."""
    gradients, following = [], []
    for recompute in (False, True):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5))
        executor = make_small_executor(model, [2, 2, 3], recompute=recompute, restore=restore and recompute)
        executor.step(small_batch(7))
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        following.append(torch.rand(3))
    assert len(gradients[0]) == 4
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    assert torch.equal(following[0], following[1])


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.norm = nn.BatchNorm1d(4)

    def forward(self, inputs: Tensor) -> Tensor:
        if not inputs.is_meta:
            self.calls += 1
        normed: Tensor = self.norm(inputs.transpose(1, 2)).transpose(1, 2)
        return normed


@pytest.mark.parametrize(("recompute", "runs"), [(False, 3), (True, 6)])
def test_no_layer_runs_more_often_in_the_first_step(recompute: bool, runs: int) -> None:
    model = nn.Sequential(nn.Linear(4, 4), _Counting())
    executor = make_small_executor(model, [2, 2, 3], recompute=recompute)
    assert model[1].calls == 0  # shapes come from meta
    for step in range(1, 4):
        executor.step(small_batch(7))
        assert model[1].calls == step * runs
    assert int(model[1].norm.num_batches_tracked) == 3 * 3  # once a micro-batch, also where it is computed twice


def test_a_wrong_batch_is_refused_and_the_executor_lives_on() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    executor = make_small_executor(model, [2, 2])
    inputs, labels = small_batch(4)
    for bad in ((inputs[:3], labels), (inputs, labels[:3]), (inputs.double(), labels), (inputs[:, :2], labels)):
        with pytest.raises(ExecutorError, match=r"^rank 0 found .* expected .*4") as caught:
            executor.step(bad)
        assert caught.value.code == "batch_shape"
    assert executor.step((inputs, labels)).loss > 0


def test_a_batch_without_counted_tokens_is_refused() -> None:
    model = make_model("llama")
    executor = make_executor(make_plan(model, **ONE_STAGE), model)
    inputs, labels = make_batch(0)
    with pytest.raises(ExecutorError, match="found 0 counted tokens"):
        executor.step((inputs, torch.full_like(labels, -100)))


def test_a_step_that_is_not_finite_is_skipped_and_ten_in_a_row_end_the_run() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    executor = make_small_executor(model, [2, 2])
    before = model[0].weight.detach().clone()
    inputs, labels = small_batch(4)
    inputs[3] = float("inf")
    for _ in range(9):
        assert executor.step((inputs, labels)).skipped
    assert torch.equal(model[0].weight, before)
    assert not executor.step(small_batch(4)).skipped
    for _ in range(9):
        executor.step((inputs, labels))
    with pytest.raises(ExecutorError, match="10 steps in a row") as caught:
        executor.step((inputs, labels))
    assert caught.value.code == "not_finite"


def test_a_layer_that_raises_is_named_by_its_instruction() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    executor = make_small_executor(model, [2, 2])
    model[1].register_forward_hook(_raise)
    with pytest.raises(ExecutorError, match=r"ValueError in 0F0 on rank 0: a broken layer"):
        executor.step(small_batch(4))
    with pytest.raises(ExecutorError, match="cannot go on"):
        executor.step(small_batch(4))


def _raise(*_: object) -> None:
    raise ValueError("a broken layer")


def test_weights_that_cannot_be_written_leave_nothing_behind(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    executor = make_small_executor(model, [2, 2])
    target = tmp_path / "weights"
    target.mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        executor.save_weights(target)
    assert list(tmp_path.iterdir()) == [target]


def test_the_learning_rate_may_be_scheduled() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    executor = make_small_executor(model, [2, 2])
    scheduler = torch.optim.lr_scheduler.StepLR(executor.optimizer, step_size=1, gamma=0.5)
    executor.step(small_batch(4))
    scheduler.step()
    assert executor.optimizer.param_groups[0]["lr"] == pytest.approx(5e-4)


def test_a_loss_that_is_not_one_number_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    plan = small_plan(model, [2, 2])
    executor = Executor(plan, model, lambda output, labels: (output - labels).sum(0), Tensor.numel, adamw, emulate=True)
    with pytest.raises(ExecutorError, match=r"a tensor \[3, 4\], expected one number") as caught:
        executor.step(small_batch(4))
    assert caught.value.code == "loss"
