"""Models whose forward calls a list of modules each in turn: ``nn.Sequential``, or any with the names given.

That the list is the whole forward is proven, not believed: the model runs once on meta (no values, no memory) while
hooks watch each module. The model's input must go into the first one, each output untouched into the next, the last
output out; every module runs once with that one tensor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from planner.cutting.example import example_batch
from planner.cutting.layer import Part
from planner.cutting.meta import call_on_meta
from planner.errors import ModelError
from planner.problem.profile import LayerKind

__all__ = ["named_parts", "sequential_parts"]

# leaves that treat every token alone, so that a sample may be sliced by tokens
_TOKEN_WISE = (
    nn.Dropout,
    nn.ELU,
    nn.Embedding,
    nn.GELU,
    nn.Identity,
    nn.LayerNorm,
    nn.Linear,
    nn.RMSNorm,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
)
_BLOCKS = (nn.TransformerEncoderLayer,)


def sequential_parts(model: nn.Sequential) -> tuple[Part, ...]:
    """One layer a child; a child that stands twice is two layers (``named_children`` would leave it out)."""
    return tuple(_part(str(place), child) for place, child in enumerate(model))


def named_parts(model: nn.Module, cut: Sequence[str]) -> tuple[Part, ...]:
    """One layer a name. Raises ``ModelError`` where the model's forward is not those modules each in turn."""
    modules = [_submodule(model, name) for name in cut]
    _Watch(cut, modules).run(model)
    return tuple(_part(name, module) for name, module in zip(cut, modules, strict=True))


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError:
        known = ", ".join(child for child, _ in model.named_children())
        raise _refused("unknown_module", f"no module {name!r}; the model holds {known}", name) from None


def _part(name: str, module: nn.Module) -> Part:
    kind: LayerKind = "other"
    if isinstance(module, nn.Embedding):
        kind = "embedding"
    elif isinstance(module, _BLOCKS):
        kind = "block"
    leaves = [child for child in module.modules() if not list(child.children())]
    token_wise = all(isinstance(leaf, _TOKEN_WISE) for leaf in leaves)
    return Part(name, kind, module, causal=token_wise and isinstance(module, (nn.Sequential, *_TOKEN_WISE)))


@dataclass
class _Watch:
    """Follows one tensor through the named modules."""

    cut: Sequence[str]
    modules: Sequence[nn.Module]
    current: Tensor | None = None
    version: int = 0
    calls: list[str] = field(default_factory=list)

    def run(self, model: nn.Module) -> None:
        batch = example_batch(model, 2, 3).to("meta")
        self._hand_on(batch)
        handles = []
        for name, module in zip(self.cut, self.modules, strict=True):
            handles.append(module.register_forward_pre_hook(self._enters(name), with_kwargs=True))
            handles.append(module.register_forward_hook(self._leaves(name)))
        try:
            output = _run_on_meta(model, batch)
        finally:
            for handle in handles:
                handle.remove()
        if self.calls != list(self.cut):
            raise _refused("not_in_turn", f"the model ran {self.calls}, expected {list(self.cut)}: each once, in turn")
        if output is not self.current or output._version != self.version:
            raise _refused("not_in_turn", f"the model changes the output of {self.cut[-1]!r}", self.cut[-1])

    def _hand_on(self, tensor: Tensor) -> None:
        self.current, self.version = tensor, tensor._version

    def _enters(self, name: str) -> Callable[[nn.Module, tuple[object, ...], dict[str, object]], None]:
        def hook(module: nn.Module, inputs: tuple[object, ...], named: dict[str, object]) -> None:
            if len(inputs) != 1 or named:
                extra = f"{len(inputs)} inputs and {sorted(named)}"
                raise _refused("not_in_turn", f"{name!r} is called with {extra}, expected one tensor", name)
            tensor = inputs[0]
            if tensor is not self.current or not isinstance(tensor, Tensor) or tensor._version != self.version:
                before = self.calls[-1] if self.calls else "the batch"
                raise _refused("not_in_turn", f"{name!r} does not read {before!r} as it is", name)
            self.calls.append(name)

        return hook

    def _leaves(self, name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if not isinstance(output, Tensor):
                raise _refused("not_a_tensor", f"{name!r} gives {type(output).__name__}, expected one tensor", name)
            self._hand_on(output)

        return hook


def _run_on_meta(model: nn.Module, batch: Tensor) -> Tensor:
    output = call_on_meta(model, batch)
    if not isinstance(output, Tensor):
        raise _refused("not_a_tensor", f"the model gives {type(output).__name__}, expected one tensor")
    return output


def _refused(code: str, message: str, place: str = "") -> ModelError:
    return ModelError(message, code=code, pointer=place)
