"""An ``nn.Module`` -> layers that may be placed one by one.

Order of methods: a known family of transformers (Llama, GPT-2), ``nn.Sequential``, a list of module names. With a
family or a Sequential, ``cut`` names the layers at which a new layer begins; what lies between joins the one before.
With any other model ``cut`` must name all modules that its forward calls, each in turn (``in_turn.py`` proves it).
"""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from planner.cutting.example import example_batch
from planner.cutting.fingerprints import layer_fingerprint, model_fingerprint
from planner.cutting.in_turn import named_parts, sequential_parts
from planner.cutting.layer import CutLayer, CutModel, Part
from planner.cutting.meta import call_on_meta
from planner.cutting.names import TensorNames, tensor_names
from planner.cutting.sharing import tied_weights
from planner.errors import ModelError
from planner.problem.profile import LayerKind

__all__ = ["cut_model"]


def cut_model(model: nn.Module, cut: Sequence[str] | None = None) -> CutModel:
    """``model`` as layers, its parameters untouched. Raises ``ModelError`` that names what cannot be cut."""
    parts = _parts(model, cut)
    names = tensor_names(model)
    _refuse_left_out(parts, names)
    config = getattr(model, "config", None)
    shapes = _input_shapes(model, parts)
    prints = [
        layer_fingerprint(part, shape, is_last=part is parts[-1], config=config)
        for part, shape in zip(parts, shapes, strict=True)
    ]
    layers = tuple(_layer(part, names, fingerprint) for part, fingerprint in zip(parts, prints, strict=True))
    ids = tuple(part.id for part in parts)
    return CutModel(
        layers=layers,
        reads=(),
        tied=tied_weights([layer.parameters for layer in layers]),
        aliases=names.aliases,
        fingerprint=model_fingerprint(model, names=names, cut=ids, config=config),
        cut=ids,
    )


def _parts(model: nn.Module, cut: Sequence[str] | None) -> tuple[Part, ...]:
    if cut is not None and (not cut or len(set(cut)) != len(cut)):
        raise ModelError(f"found the cut {list(cut)}, expected different names, at least one", code="bad_cut")
    parts = _known_parts(model)
    if parts is not None:
        if not parts:
            raise ModelError("found an empty Sequential, expected at least one layer", code="empty_model")
        return parts if cut is None else _joined(parts, cut)
    if cut is None:
        raise ModelError(
            f"no automatic cut for {type(model).__qualname__}: known are LlamaForCausalLM, GPT2LMHeadModel and "
            "nn.Sequential; name its modules in the order in which its forward calls them",
            code="unknown_family",
        )
    return named_parts(model, cut)


def _known_parts(model: nn.Module) -> tuple[Part, ...] | None:
    if isinstance(model, nn.Sequential):
        return sequential_parts(model)
    family = _family(model)
    return family(model) if family is not None else None


def _family(model: nn.Module) -> Callable[..., tuple[Part, ...]] | None:
    """The function that cuts this family; transformers is imported only for its own models: it costs seconds."""
    bases = {f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__}
    if "transformers.models.llama.modeling_llama.LlamaForCausalLM" in bases:
        from planner.cutting.llama import llama_parts

        return llama_parts
    if "transformers.models.gpt2.modeling_gpt2.GPT2LMHeadModel" in bases:
        from planner.cutting.gpt2 import gpt2_parts

        return gpt2_parts
    return None


def _joined(parts: tuple[Part, ...], cut: Sequence[str]) -> tuple[Part, ...]:
    ids = [part.id for part in parts]
    unknown = [name for name in cut if name not in ids]
    if unknown or cut[0] != ids[0] or [ids.index(name) for name in cut] != sorted(ids.index(name) for name in cut):
        raise ModelError(
            f"found the cut {list(cut)}, expected ids in the model's order, from the first: {', '.join(ids)}",
            code="bad_cut",
            pointer=unknown[0] if unknown else cut[0],
        )
    ends = [ids.index(name) for name in cut[1:]] + [len(ids)]
    return tuple(_join(parts[ids.index(name) : end]) for name, end in zip(cut, ends, strict=True))


def _join(parts: tuple[Part, ...]) -> Part:
    if len(parts) == 1:
        return parts[0]
    kinds = {part.kind for part in parts}
    kind: LayerKind = kinds.pop() if len(kinds) == 1 else "other"
    module = nn.Sequential(*(part.module for part in parts))
    return Part(parts[0].id, kind, module, all(part.causal for part in parts))


def _refuse_left_out(parts: tuple[Part, ...], names: TensorNames) -> None:
    held = {names.name_of(tensor) for part in parts for tensor in (*part.module.parameters(), *part.module.buffers())}
    left_out = sorted((names.parameters.keys() | names.persistent) - held)
    if left_out:
        raise ModelError(
            f"no layer holds {', '.join(left_out[:5])} ({len(left_out)} tensors), expected every weight in a layer",
            code="left_out",
            pointer=left_out[0],
        )


def _input_shapes(model: nn.Module, parts: tuple[Part, ...]) -> list[tuple[int, ...] | None]:
    """Of each layer the shape of its input behind samples and tokens; None for the first, which reads the batch."""
    shapes: list[tuple[int, ...] | None] = [None]
    value = example_batch(model, 2, 3)
    for part in parts:
        output = call_on_meta(part.module, value)
        if not isinstance(output, Tensor):
            found = type(output).__name__
            raise ModelError(f"layer {part.id!r} gives {found}, expected one tensor", code="not_a_tensor")
        value = output
        shapes.append(tuple(value.shape[2:]) if value.ndim > 2 else tuple(value.shape[1:]))
    return shapes[:-1]


def _layer(part: Part, names: TensorNames, fingerprint: str) -> CutLayer:
    parameters: dict[str, nn.Parameter] = {}
    local_names: dict[str, list[str]] = {}
    for local, parameter in part.module.named_parameters(remove_duplicate=False):
        name = _name(names, parameter, local)
        if parameters.setdefault(name, parameter) is not parameter:
            raise ModelError(f"layer {part.id!r} holds {name!r} as two parameters", code="tied_views", pointer=name)
        local_names.setdefault(name, []).append(local)
    buffers: dict[str, Tensor] = {}
    for local, buffer in part.module.named_buffers(remove_duplicate=False):
        name = _name(names, buffer, local)
        buffers[name] = buffer
        local_names.setdefault(name, []).append(local)
    places: Mapping[str, tuple[str, ...]] = {name: tuple(found) for name, found in local_names.items()}
    return CutLayer(
        id=part.id,
        kind=part.kind,
        module=part.module,
        parameters=parameters,
        buffers=buffers,
        local_names=places,
        fingerprint=fingerprint,
        causal=part.causal,
    )


def _name(names: TensorNames, tensor: Tensor, local: str) -> str:
    name = names.name_of(tensor)
    assert name is not None, f"a part holds {local}, which the model does not"
    return name
