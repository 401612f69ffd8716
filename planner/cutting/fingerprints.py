"""Digests that name a layer and a model: equal for a real copy and for one on meta.

A fingerprint covers what costs and results depend on: classes and settings of the modules, shapes, dtypes and
trainability of the tensors, the configuration; a model's also covers names and the cut. Values are left out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from planner.cutting.layer import Part
from planner.cutting.names import TensorNames
from planner.problem.canonical import canonical_digest
from planner.problem.contract import Digest

__all__ = ["layer_fingerprint", "model_fingerprint"]

_TRANSIENT = frozenset({"_name_or_path", "transformers_version", "architectures", "id2label", "label2id", "use_cache"})


def layer_fingerprint(part: Part, input_shape: Sequence[int] | None, *, is_last: bool, config: object) -> Digest:
    """What one layer costs depends on this; ``input_shape`` without samples and tokens, None: reads the batch.

    The last layer is another one than its equals: the loss is computed with it.
    """
    return canonical_digest(
        {
            "modules": _modules(part.module),
            "tensors": _tensors(part.module.named_parameters(remove_duplicate=False)),
            "input": None if input_shape is None else list(input_shape),
            "last": is_last,
            "config": _settings(config),
        }
    )


def model_fingerprint(model: nn.Module, *, names: TensorNames, cut: Sequence[str], config: object) -> Digest:
    """What a plan is made for and an executor refuses to exchange."""
    return canonical_digest(
        {
            "modules": _modules(model),
            "tensors": _tensors(names.parameters.items()),
            "buffers": [[name, list(b.shape), str(b.dtype)] for name, b in sorted(names.buffers.items())],
            "aliases": dict(names.aliases),
            "cut": list(cut),
            "config": _settings(config),
        }
    )


def _modules(module: nn.Module) -> list[list[str]]:
    """Where a class is defined does not count: a script's own class is ``__main__``'s once the script runs."""
    return [
        [name, type(child).__qualname__, child.extra_repr()]
        for name, child in module.named_modules(remove_duplicate=False)
    ]


def _tensors(named: Iterable[tuple[str, nn.Parameter]]) -> list[list[object]]:
    return [[name, list(p.shape), str(p.dtype), p.requires_grad] for name, p in sorted(named)]


def _settings(config: object) -> Mapping[str, object]:
    """A configuration as plain JSON; what does not change the computation is left out."""
    to_dict = getattr(config, "to_dict", None)
    if not callable(to_dict):
        return {}
    settings = {str(key): value for key, value in to_dict().items() if key not in _TRANSIENT}
    settings["attention"] = str(getattr(config, "_attn_implementation", None))
    plain: dict[str, object] = json.loads(json.dumps(settings, default=str))
    return plain
