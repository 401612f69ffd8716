"""A visit whose backward is split: while its layers run, weight gradients of known modules are put off until W.

For as long as a ``Deferral`` is entered, known modules run by functions of their own (``deferred_functions``), which
leave a piece of work for every weight gradient; W does the work. Any other module is differentiated by autograd as a
whole, so that its weight gradient is there after I: exact as well, but nothing of it is left for W.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from planner.executor.deferred_functions import (
    Work,
    embedding,
    layer_norm,
    linear,
    rms_norm,
    transposed_linear,
)

__all__ = ["Deferral", "can_split"]

_Own = Callable[[list[Work], Any, Tensor], Tensor]


class Deferral:
    """``modules``: of one stage; their children are looked through."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._works: list[Work] = []
        self._places: list[tuple[dict[str, Any], Callable[..., Any]]] = []
        for module in _open_modules(modules):
            own = _own_function(module)
            if own is not None:
                self._places.append((module.__dict__, self._forward(module, own)))

    @contextmanager
    def into(self, works: list[Work]) -> Iterator[None]:
        """Inside, forward and backward of the modules put their weight gradients into ``works``."""
        self._works = works
        for attributes, forward in self._places:
            attributes["forward"] = forward
        try:
            yield
        finally:
            for attributes, _ in self._places:
                del attributes["forward"]

    def _forward(self, module: nn.Module, own: _Own) -> Callable[..., Any]:
        """In place of the module's forward; as that where nothing goes backward or types change on the way."""
        plain = module.forward

        def forward(*inputs: Any, **named: Any) -> Any:
            if len(inputs) != 1 or named or not torch.is_grad_enabled():
                return plain(*inputs, **named)
            if torch.is_autocast_enabled(inputs[0].device.type):
                return plain(*inputs)
            return own(self._works, module, inputs[0])

        return forward


def can_split(module: nn.Module) -> bool:
    """Whether W computes all weight gradients of ``module``, and I none of them."""
    holders = [found for found in module.modules() if next(found.parameters(recurse=False), None) is not None]
    opened = {id(found) for found in _open_modules([module])}
    return all(id(found) in opened and _own_function(found) is not None for found in holders)


def _open_modules(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Each once, with children; what is compiled is one piece of its own."""
    found: dict[int, nn.Module] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if id(module) in found or _is_compiled(module):
            continue
        found[id(module)] = module
        waiting.extend(module.children())
    return list(found.values())


def _is_compiled(module: nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


def _own_function(module: nn.Module) -> _Own | None:
    """By the exact class: a subclass, or a module whose forward or weights were replaced, may compute otherwise."""
    if "forward" in module.__dict__ or not _plain_weights(module):
        return None
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    own = _BY_CLASS.get(name)
    if isinstance(module, nn.Embedding):
        dense = module.max_norm is None and not module.sparse and not module.scale_grad_by_freq
        return own if dense else None
    return own


def _plain_weights(module: nn.Module) -> bool:
    """Only ``weight`` and perhaps ``bias``, ordinary parameters."""
    parameters = dict(module.named_parameters(recurse=False))
    return "weight" in parameters and all(
        name in ("weight", "bias") and type(parameter) is nn.Parameter for name, parameter in parameters.items()
    )


# transformers' classes by name: the package is imported only for its own models
_BY_CLASS: dict[str, _Own] = {
    "torch.nn.modules.linear.Linear": lambda works, module, taken: linear(works, taken, module.weight, module.bias),
    "transformers.pytorch_utils.Conv1D": lambda works, module, taken: transposed_linear(
        works, taken, module.weight, module.bias
    ),
    "torch.nn.modules.normalization.LayerNorm": lambda works, module, taken: layer_norm(
        works, taken, module.weight, module.bias, module.eps
    ),
    "transformers.models.llama.modeling_llama.LlamaRMSNorm": lambda works, module, taken: rms_norm(
        works, taken, module.weight, module.variance_epsilon
    ),
    "torch.nn.modules.sparse.Embedding": embedding,
}
