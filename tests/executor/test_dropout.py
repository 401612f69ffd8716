"""Dropout: the same run for the same seed under every plan that runs the same rows together."""

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from planner.executor.draws import Draws, chances, may_draw
from planner.executor.executor import Executor
from planner.plan.plan import MicroBatch
from tests.helpers.dropout_cases import DROPOUT_CASES, dropping_model, dropping_run
from tests.helpers.executor_cases import (
    adamw,
    changed,
    make_batch,
    make_model,
    make_plan,
    squares,
    token_count,
    token_loss,
)
from tests.helpers.ranks import Ranks

WHOLE = DROPOUT_CASES["1 rank"]
EQUAL = [name for name in DROPOUT_CASES if name not in ("1 rank", "other rows together")]


@cache
def alone(case: str = "1 rank", seed: int = 0, used: int = 0) -> list[float]:
    """On a rank that is this process."""
    return dropping_run(None, case=case, seed=seed, used=used)


def num_ranks(case: str) -> int:
    return sum(len(group) for group in DROPOUT_CASES[case]["groups"])


@pytest.mark.parametrize("case", EQUAL)
def test_every_plan_gives_the_losses_of_one_rank(case: str, ranks: Ranks) -> None:
    """Data ranks add up in another order; all others are equal bit for bit."""
    function = "tests.helpers.dropout_cases:dropping_run"
    for found in ranks.results(function, num_ranks(case), case=case):
        assert found == (pytest.approx(alone(), rel=1e-6) if "data" in case else alone())


@pytest.mark.parametrize("after", ["1F1B on 2 ranks", "interleaved on 2 ranks"])
def test_a_continued_run_equals_the_undisturbed_one(after: str, ranks: Ranks, tmp_path: Path) -> None:
    function = "tests.helpers.dropout_cases:resumed_run"
    for found in ranks.results(function, 2, case="1F1B on 2 ranks", after=after, folder=str(tmp_path)):
        assert found == alone()


def test_another_seed_gives_another_run() -> None:
    assert alone(seed=1)[0] != alone()[0]


def test_other_rows_together_draw_other_numbers() -> None:
    """What the rule does not promise: micro-batches of another size."""
    assert alone("other rows together")[0] != pytest.approx(alone()[0], rel=1e-6)


def test_what_the_script_draws_changes_nothing() -> None:
    assert alone(used=5) == alone()


def make_executor(model: nn.Module) -> Executor:
    return Executor(make_plan(model, **WHOLE), model, token_loss, token_count, adamw, emulate=True)


def test_the_script_draws_as_without_an_executor() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    executor = make_executor(dropping_model())
    state = torch.get_rng_state()
    executor.step(make_batch(0))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    assert torch.equal(torch.rand(3), expected)


def test_another_step_draws_other_numbers() -> None:
    """The same batch and weights in two steps: only dropout differs."""

    def still(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.0)  # type: ignore[arg-type]

    model = dropping_model()
    executor = Executor(make_plan(model, **WHOLE), model, token_loss, token_count, still, emulate=True)
    first, second = (executor.step(make_batch(0)).loss for _ in range(2))
    assert first != second


@pytest.fixture
def seedings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The layers whose runs were seeded."""
    found: list[int] = []
    ours = Draws.seeded

    def counted(self: Draws, run: object, layer: int, **place: int) -> object:
        found.append(layer)
        return ours(self, run, layer, **place)  # type: ignore[arg-type]

    monkeypatch.setattr(Draws, "seeded", counted)
    return found


def test_no_generator_is_touched_without_dropout(seedings: list[int]) -> None:
    for model in (dropping_model(0.0), make_model("llama").train(), dropping_model().eval()):
        make_executor(model).step(make_batch(0))
    assert seedings == []


def test_layers_that_cannot_draw_are_left_alone(seedings: list[int]) -> None:
    """Four micro-batches; embedding and blocks drop, the head does not."""
    make_executor(dropping_model()).step(make_batch(0))
    assert sorted(seedings) == sorted(list(range(7)) * 4)


def test_an_evaluation_draws_nothing(seedings: list[int]) -> None:
    executor = make_executor(dropping_model())
    assert executor.evaluate(make_batch(0)) == executor.evaluate(make_batch(0))
    assert seedings == []


class Noisy(nn.Module):
    """Draws by a rule of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.rand_like(inputs)


MAY_DRAW = {
    "dropout": (nn.Dropout(0.1), True),
    "dropout of 0": (nn.Dropout(0.0), False),
    "inside": (nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.AlphaDropout(0.5))), True),
    "attention's number": (nn.MultiheadAttention(4, 2, dropout=0.1), True),
    "attention without": (nn.MultiheadAttention(4, 2), False),
    "recurrent": (nn.LSTM(2, 2, num_layers=2, dropout=0.2), True),
    "rrelu": (nn.RReLU(), True),
    "known and still": (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2)), False),
    "of an unknown class": (nn.Sequential(nn.Linear(2, 2), Noisy()), True),
    "evaluated": (nn.Sequential(nn.Dropout(0.1), Noisy()).eval(), False),
}


@pytest.mark.parametrize("name", list(MAY_DRAW))
def test_who_may_draw(name: str) -> None:
    module, expected = MAY_DRAW[name]
    assert may_draw(chances(module)) == expected


def test_a_probability_may_change_later() -> None:
    module = nn.Dropout(0.0)
    found = chances(module)
    module.p = 0.5
    assert may_draw(found)


def test_seeded_runs_repeat_and_restore() -> None:
    """Every number of the key changes what is drawn; the process goes on with its own numbers."""
    draws = Draws(0, torch.device("cpu"))
    state = torch.get_rng_state()
    runs = [draws.seeded(torch.rand, layer, sample=s, token=t) for layer in (0, 1) for s in (0, 1) for t in (0, 1)]
    found = [run(4) for run in (*runs, Draws(1, torch.device("cpu")).seeded(torch.rand, 0, sample=0, token=0))]
    assert len({tuple(one.tolist()) for one in found}) == 9
    assert all(torch.equal(run(4), one) for run, one in zip(runs, found, strict=False))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_generator_comes_back_where_a_layer_fails() -> None:
    def fails() -> None:
        torch.rand(1)
        raise ValueError("sabotage")

    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="sabotage"):
        Draws(0, torch.device("cpu")).seeded(fails, 0, sample=0, token=0)()
    assert torch.equal(torch.get_rng_state(), state)


def sliced_gradients(recompute: tuple[int, ...]) -> list[Tensor]:
    """Of a line whose samples run in slices of two and four tokens."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    line = {**WHOLE, "stages": [(0, 0, 3, 1)], "batches": [(0, 2)], "tokens": 6}
    plan = changed(
        make_plan(model, recompute=recompute, **line),
        micro_batches=(MicroBatch(route=0, samples=2, cuts=(0, 2, 6)),),
        streams=("0F0.0 0F0.1 0B0.1 0B0.0 0G0 0U0",),
    )
    executor = Executor(plan, model, squares, Tensor.numel, adamw, emulate=True)
    executor.step((torch.ones(2, 6, 4), torch.zeros(2, 6, 4)))
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_slices_draw_the_same_when_they_run_again(seedings: list[int]) -> None:
    found = sliced_gradients(())
    assert seedings == [1, 1]
    again = sliced_gradients((0, 1, 2))
    assert len(found) == 4
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
