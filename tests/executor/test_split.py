"""Split backward in one process: W computes what I left, together they are the whole backward, for any module."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

from planner.executor.deferral import Deferral, can_split
from planner.executor.deferred_functions import Work, do_works
from planner.executor.executor import Executor
from planner.plan.plan import Plan
from tests.helpers.executor_cases import adamw, changed, make_model, make_plan, squares

OWN: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(4, 6),
    "linear without bias": lambda: nn.Linear(4, 6, bias=False),
    "transposed linear": lambda: Conv1D(6, 4),
    "layer norm": lambda: nn.LayerNorm(4),
    "layer norm without bias": lambda: nn.LayerNorm(4, bias=False),
    "layer norm over two dimensions": lambda: nn.LayerNorm((3, 4)),
    "rms norm": lambda: LlamaRMSNorm(4),
    "embedding": lambda: nn.Embedding(5, 4),
    "embedding with padding": lambda: nn.Embedding(5, 4, padding_idx=1),
}


def make_own(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Module, input and what the output is multiplied with before it is summed."""
    torch.manual_seed(3)
    module = OWN[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    taken = torch.tensor([[0, 1, 1], [4, 1, 0]]) if isinstance(module, nn.Embedding) else torch.randn(2, 3, 4)
    return module, taken, torch.randn_like(module(taken))


@pytest.mark.parametrize("input_wanted", [True, False])
@pytest.mark.parametrize("frozen", ["nothing", "weight", "bias"])
@pytest.mark.parametrize("name", list(OWN))
def test_own_functions_give_torchs_gradients_in_two_parts(name: str, frozen: str, input_wanted: bool) -> None:
    module, taken, factor = make_own(name)
    assert can_split(module)
    for parameter_name, parameter in module.named_parameters():
        parameter.requires_grad_(parameter_name != frozen)
    if taken.is_floating_point():
        taken.requires_grad_(input_wanted)
    wanted = [tensor for tensor in (taken, *module.parameters()) if tensor.requires_grad]
    if not wanted:
        return  # an embedding with a frozen weight goes forward only
    output = module(taken).clone()
    expected = torch.autograd.grad((output * factor).sum(), wanted)

    works: list[Work] = []
    with Deferral([module]).into(works):
        found = module(taken)
    torch.testing.assert_close(found, output, rtol=0, atol=0)
    found.mul_(factor).sum().backward()  # what changes an output in place is as free as with torch's modules
    assert all(parameter.grad is None for parameter in module.parameters())
    do_works(works)
    assert works == []
    for tensor, gradient in zip(wanted, expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-6, atol=1e-6)
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in module.parameters())


class _Twice(nn.Module):
    """One module called twice, a weight of its own, and a child's weight used behind the child's back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.full((4,), 0.7))

    def forward(self, taken: Tensor) -> Tensor:
        once: Tensor = torch.tanh(self.inner(taken)) * self.scale
        return once + self.inner(input=once) @ self.inner.weight


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, taken: Tensor) -> Tensor:
        output: Tensor = checkpoint(self.inner, taken, use_reentrant=False)
        return output


class _Normed(nn.Module):
    """BatchNorm over the channels, a class without an own function."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, taken: Tensor) -> Tensor:
        output: Tensor = self.norm(taken.transpose(1, 2)).transpose(1, 2)
        return output


def shared_layers() -> list[nn.Module]:
    shared = nn.Linear(4, 4)
    return [shared, nn.Tanh(), nn.LayerNorm(4), shared]


def frozen_layers() -> list[nn.Module]:
    layers = [nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)]
    layers[0].requires_grad_(False)
    layers[2].weight.requires_grad_(False)
    return layers


MODELS: dict[str, Callable[[], list[nn.Module]]] = {
    "a shared module": shared_layers,
    "frozen weights": frozen_layers,
    "a module called twice": lambda: [_Twice(), nn.Linear(4, 4), _Twice(), nn.Identity()],
    "checkpointed": lambda: [nn.Linear(4, 4), _Checkpointed(), nn.Dropout(0.3), _Checkpointed()],
    "unknown modules": lambda: [nn.Linear(4, 4), _Normed(), nn.Linear(4, 4), _Normed()],
    "parametrized": lambda: [
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        nn.Linear(4, 4),
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
        nn.Linear(4, 4),
    ],
    "torch's transformer layer": lambda: [
        nn.Linear(4, 4),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True),
        nn.Dropout(0.2),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    ],
    "in place": lambda: [nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)) for _ in range(4)],
}


def gradients_of(name: str, *, split: bool, stages: list[int], recompute: str) -> dict[str, Tensor]:
    """Of a step of the model, with all W after all I where the backward is split."""
    torch.manual_seed(5)
    model = nn.Sequential(*MODELS[name]())
    plan = make_plan(
        model,
        family="interleaved" if len(stages) > 1 else "gpipe",
        groups=[[0]],
        stages=[(0, first, end, 1) for first, end in zip(stages, [*stages[1:], 4], strict=True)],
        routes=[list(range(len(stages)))],
        batches=[(0, 2), (0, 3), (0, 2)],
        recompute=range(4) if recompute != "none" else (),
        restore=recompute == "with R",
        tokens=3,
        split=split,
    )
    plan = weights_last(plan) if split else plan
    Executor(plan, model, squares, Tensor.numel, adamw, emulate=True).step((torch.randn(7, 3, 4), torch.randn(7, 3, 4)))
    assert not any("forward" in module.__dict__ for module in model.modules())
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def weights_last(plan: Plan) -> Plan:
    """Every W as late as it may stand: before the first G."""
    streams = []
    for text in plan.streams:
        words = text.split()
        end = [word for word in words if "G" in word or "U" in word]
        rest = [word for word in words if word not in end]
        streams.append(" ".join(sorted(rest, key=lambda word: "W" in word) + sorted(end, key=lambda word: "U" in word)))
    return changed(plan, streams=tuple(streams))


@pytest.mark.parametrize("recompute", ["none", "without R", "with R"])
@pytest.mark.parametrize("stages", [[0], [0, 1, 3]], ids=["one stage", "three stages"])
@pytest.mark.parametrize("name", list(MODELS))
def test_split_and_whole_backward_give_the_same_gradients(name: str, stages: list[int], recompute: str) -> None:
    expected = gradients_of(name, split=False, stages=stages, recompute=recompute)
    found = gradients_of(name, split=True, stages=stages, recompute=recompute)
    assert found.keys() == expected.keys() != set()
    for parameter, gradient in found.items():
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-5, atol=1e-7)


def test_hooks_of_a_weight_run_once_a_visit_and_count() -> None:
    gradients = []
    for split in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        calls: list[Tensor] = []
        model[0].weight.register_hook(lambda gradient, calls=calls: calls.append(gradient) or gradient * 3)
        plan = make_plan(
            model,
            family="gpipe",
            groups=[[0]],
            stages=[(0, 0, 2, 1)],
            routes=[[0]],
            batches=[(0, 2)] * 3,
            tokens=3,
            split=split,
        )
        executor = Executor(plan, model, squares, Tensor.numel, adamw, emulate=True)
        executor.step((torch.randn(6, 3, 4), torch.randn(6, 3, 4)))
        assert len(calls) == 3
        gradients.append(model[0].weight.grad)
    torch.testing.assert_close(*gradients)


def test_what_has_other_weights_or_another_forward_is_left_to_autograd() -> None:
    replaced = nn.Linear(4, 4)
    replaced.forward = lambda taken: taken * replaced.weight.sum()
    for module in (
        replaced,
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        nn.Embedding(5, 4, max_norm=1.0),
        nn.Embedding(5, 4, sparse=True),
        nn.Conv1d(4, 4, 1),
        nn.MultiheadAttention(4, 2),
    ):
        assert not can_split(module)
        assert not can_split(nn.Sequential(nn.Linear(4, 4), module))
    assert can_split(nn.Sequential(nn.Linear(4, 4), nn.GELU()))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_w_of_known_models_computes_every_weight_gradient(name: str) -> None:
    assert can_split(make_model(name, "meta"))
