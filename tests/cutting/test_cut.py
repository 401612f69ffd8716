"""Cut models compute what the unsplit model computes, bit by bit, and share what it shares."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from planner.cutting.cut import cut_model
from planner.cutting.layer import CutModel, with_tensors
from planner.errors import ModelError
from tests.helpers.models import gpt2, llama


class InTurn(nn.Module):
    """Not a Sequential, but its forward is two modules each in turn."""

    def __init__(self, between: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        super().__init__()
        self.second = nn.Linear(8, 8)  # declared first, called second
        self.first = nn.Sequential(nn.Linear(4, 8), nn.GELU())
        self.between = between

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.between(self.first(inputs)))

    def example_batch(self, samples: int, tokens: int) -> Tensor:
        return torch.randn(samples, tokens, 4)


def sequential() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Embedding(61, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 61)
    )


def in_order(cut: CutModel, value: Tensor) -> Tensor:
    for layer in cut.layers:
        value = layer.module(value)
    return value


MODELS: list[tuple[str, Callable[[], nn.Module]]] = [
    ("llama", llama),
    ("llama tied", lambda: llama(tied=True)),
    ("llama eager", lambda: llama(attention="eager")),
    ("gpt2", gpt2),
    ("gpt2 eager", lambda: gpt2(attention="eager")),
    ("sequential", sequential),
]


@pytest.mark.parametrize("make", [make for _, make in MODELS], ids=[name for name, _ in MODELS])
@pytest.mark.parametrize("shape", [(1, 1), (2, 7), (3, 16)])
def test_layers_in_order_give_the_bits_of_the_unsplit_model(
    make: Callable[[], nn.Module], shape: tuple[int, int]
) -> None:
    model = make()
    tokens = torch.randint(0, 61, shape, generator=torch.Generator().manual_seed(2))
    expected = model(tokens)
    expected = getattr(expected, "logits", expected)
    expected.square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()

    cut = cut_model(model)
    output = in_order(cut, tokens)
    output.square().sum().backward()

    assert torch.equal(output, expected)
    held = {name: parameter for layer in cut.layers for name, parameter in layer.parameters.items()}
    assert held.keys() == gradients.keys()
    for name, parameter in model.named_parameters():
        assert held[name] is parameter
        assert torch.equal(parameter.grad, gradients[name]), name


def test_llama_has_an_embedding_blocks_and_a_head() -> None:
    cut = cut_model(llama())
    assert cut.cut == ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "lm_head")
    assert [layer.kind for layer in cut.layers] == ["embedding", "block", "block", "block", "head"]
    assert set(cut.layers[4].parameters) == {"model.norm.weight", "lm_head.weight"}
    assert cut.reads == ()
    assert cut.tied == ()
    assert all(layer.causal for layer in cut.layers)


def test_equal_blocks_have_one_fingerprint() -> None:
    prints = [layer.fingerprint for layer in cut_model(llama()).layers]
    assert prints[1] == prints[2] == prints[3]
    assert len(set(prints)) == 3


def test_equal_modules_of_other_input_shapes_are_different_layers() -> None:
    layers = cut_model(sequential()).layers
    assert layers[2].fingerprint != layers[4].fingerprint  # ReLU of 8 features, ReLU of 16


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tied_embedding_and_head_are_one_weight(device: str) -> None:
    for model, name in (
        (llama(tied=True, device=device), "model.embed_tokens.weight"),
        (gpt2(device=device), "transformer.wte.weight"),
    ):
        cut = cut_model(model)
        assert [(tied.layers, tied.parameter_names) for tied in cut.tied] == [((0, 4), (name,))]
        assert cut.layers[0].parameters[name] is cut.layers[4].parameters[name]
        assert cut.aliases == {"lm_head.weight": name}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_two_parameters_of_one_storage_are_one_weight(device: str) -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False, device=device) for _ in range(3)))
    model[2].weight = nn.Parameter(model[0].weight.data)
    cut = cut_model(model)
    assert [(tied.layers, tied.parameter_names) for tied in cut.tied] == [((0, 2), ("0.weight",))]
    assert cut.aliases == {"2.weight": "0.weight"}


def test_weights_that_share_a_part_of_a_storage_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    both = torch.randn(6, 4)
    model[0].weight, model[1].weight = nn.Parameter(both[:4]), nn.Parameter(both[2:])
    with pytest.raises(ModelError, match="share a part") as caught:
        cut_model(model)
    assert caught.value.code == "tied_views"


def test_a_module_that_stands_twice_ties_its_layers() -> None:
    shared = nn.Linear(4, 4)
    cut = cut_model(nn.Sequential(shared, nn.ReLU(), shared))
    assert [(tied.layers, set(tied.parameter_names)) for tied in cut.tied] == [((0, 2), {"0.weight", "0.bias"})]


def test_sharing_over_a_third_layer_joins_one_set() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    model = nn.Sequential(first, nn.Sequential(first, second), second)
    (tied,) = cut_model(model).tied
    assert tied.layers == (0, 1, 2)
    assert tied.parameter_names == ("0.weight", "1.1.weight")


@pytest.mark.parametrize("make", [llama, gpt2])
def test_fingerprints_are_equal_on_meta_and_differ_for_another_cut_or_configuration(
    make: Callable[..., nn.Module],
) -> None:
    real, meta = cut_model(make()), cut_model(make(device="meta"))
    assert real.fingerprint == meta.fingerprint
    assert [layer.fingerprint for layer in real.layers] == [layer.fingerprint for layer in meta.layers]
    joined = cut_model(make(), [real.cut[0], real.cut[2], real.cut[4]])
    assert joined.fingerprint != real.fingerprint
    assert cut_model(make(num_blocks=2)).fingerprint != real.fingerprint
    assert cut_model(make(attention="eager")).fingerprint != real.fingerprint
    assert cut_model(make(), real.cut).fingerprint == real.fingerprint


def test_the_module_that_a_class_was_loaded_from_does_not_count() -> None:
    elsewhere = type("InTurn", (InTurn,), {"__module__": "__main__"})
    cut = ["first", "second"]
    assert cut_model(elsewhere(), cut).fingerprint == cut_model(InTurn(), cut).fingerprint


def test_a_coarser_cut_joins_layers() -> None:
    model = llama(num_blocks=4)
    cut = cut_model(model, ["model.embed_tokens", "model.layers.0", "model.layers.2", "lm_head"])
    assert [layer.kind for layer in cut.layers] == ["embedding", "block", "block", "head"]
    assert "model.layers.3.mlp.up_proj.weight" in cut.layers[2].parameters
    tokens = torch.randint(0, 61, (2, 5))
    assert torch.equal(in_order(cut, tokens), model(tokens).logits)


@pytest.mark.parametrize(
    "cut",
    [
        [],
        ["lm_head"],
        ["model.embed_tokens", "nothing"],
        ["model.embed_tokens", "lm_head", "model.layers.1"],
        ["a", "a"],
    ],
)
def test_a_wrong_cut_of_a_family_is_refused(cut: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        cut_model(llama(), cut)
    assert caught.value.code == "bad_cut"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_named_modules_called_in_turn_are_layers(device: str) -> None:
    model = InTurn().to(device)
    cut = cut_model(model, ["first", "second"])
    assert cut.cut == ("first", "second")
    batch = torch.randn(2, 3, 4, device=device)
    if device == "cpu":
        assert torch.equal(in_order(cut, batch), model(batch))


@pytest.mark.parametrize(
    ("between", "cut", "code"),
    [
        (lambda value: value, ["second", "first"], "not_in_turn"),
        (lambda value: value, ["first"], "not_in_turn"),
        (lambda value: value, ["first.0", "second"], "not_in_turn"),
        (lambda value: value * 2, ["first", "second"], "not_in_turn"),
        (lambda value: value.add_(1), ["first", "second"], "not_in_turn"),
        (lambda value: value, ["first", "third"], "unknown_module"),
        (lambda value: value, None, "unknown_family"),
    ],
)
def test_a_list_that_is_not_the_whole_forward_is_refused(
    between: Callable[[Tensor], Tensor], cut: list[str] | None, code: str
) -> None:
    with pytest.raises(ModelError) as caught:
        cut_model(InTurn(between), cut)
    assert caught.value.code == code


def test_weights_outside_all_layers_are_refused() -> None:
    model = InTurn()
    model.unused = nn.Linear(2, 2)
    with pytest.raises(ModelError, match=r"unused\.bias") as caught:
        cut_model(model, ["first", "second"])
    assert caught.value.code == "left_out"


def test_a_first_layer_that_does_not_tell_what_it_reads_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        cut_model(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))
    assert caught.value.code == "no_example"


def test_a_layer_on_meta_runs_once_it_has_values() -> None:
    real, meta = llama(tied=True), cut_model(llama(tied=True, device="meta"))
    values = {name: nn.Parameter(value.detach().clone()) for name, value in real.named_parameters()}
    for layer in meta.layers:
        filled = with_tensors(layer, {name: values[name] for name in layer.parameters}, {})
        assert all(filled.parameters[name] is values[name] for name in layer.parameters)
        assert all(parameter in set(values.values()) for parameter in filled.module.parameters())
    tokens = torch.randint(0, 61, (2, 9))
    assert torch.equal(in_order(meta, tokens), real(tokens).logits)


def test_a_tensor_of_another_layer_is_refused() -> None:
    cut = cut_model(sequential())
    with pytest.raises(ModelError) as caught:
        with_tensors(cut.layers[1], {"3.weight": nn.Parameter(torch.zeros(16, 8))}, {})
    assert caught.value.code == "unknown_tensor"
