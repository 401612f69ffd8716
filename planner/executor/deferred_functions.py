"""Linear, norm and embedding whose backward gives the input's gradient at once and the weights' later.

Method: Qi et al. 2023 (zero bubble). The backward leaves ``Work``, closed over input and output gradient; W calls it
and hands the weights' gradients to autograd, at the weights themselves: hooks run, gradients add up, as ever. The
functions take weights as no tensors of theirs, or hooks would run at I too, without a gradient.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["Work", "do_works", "embedding", "layer_norm", "linear", "rms_norm", "transposed_linear"]


class _Part(NamedTuple):
    weight: Tensor
    gradient: Tensor


Work = Callable[[], list[_Part]]
_aten = torch.ops.aten
_ANCHOR = torch.zeros(0, requires_grad=True)  # so that a function with trained weights goes backward
_MOST_BYTES = 1 << 23  # of gradients that wait for autograd: its call costs more than a small one's sum


def do_works(works: list[Work]) -> None:
    """W: add all gradients to the weights' ``grad``; ``works`` is empty afterwards, what they kept is free."""
    parts: list[_Part] = []
    num_bytes = 0
    with torch.no_grad():
        while works:
            found = works.pop()()
            parts += found
            num_bytes += sum(part.gradient.nbytes for part in found)
            if num_bytes > _MOST_BYTES:
                _add(parts)
                num_bytes = 0
        _add(parts)


def _add(parts: list[_Part]) -> None:
    if parts:
        torch.autograd.backward([part.weight for part in parts], [part.gradient for part in parts])
        parts.clear()


def linear(works: list[Work], taken: Tensor, weight: nn.Parameter, bias: nn.Parameter | None) -> Tensor:
    """``functional.linear``."""
    weights = _Weights(weight, bias, transposed=False)
    output: Tensor = _Linear.apply(works, weights.anchor, taken, weights)  # type: ignore[no-untyped-call]
    return output


def transposed_linear(works: list[Work], taken: Tensor, weight: nn.Parameter, bias: nn.Parameter | None) -> Tensor:
    """The same with a weight [inputs, outputs], as GPT-2 keeps it."""
    weights = _Weights(weight, bias, transposed=True)
    output: Tensor = _Linear.apply(works, weights.anchor, taken, weights)  # type: ignore[no-untyped-call]
    return output


def layer_norm(works: list[Work], taken: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, eps: float) -> Tensor:
    """``functional.layer_norm`` over the weight's dimensions."""
    weights = _Weights(weight, bias)
    output: Tensor = _LayerNorm.apply(works, weights.anchor, taken, weights, eps)  # type: ignore[no-untyped-call]
    return output


def rms_norm(works: list[Work], taken: Tensor, weight: nn.Parameter, eps: float) -> Tensor:
    """Llama's norm over the last dimension; the root mean square in fp32."""
    normed = taken.float()
    normed = normed * torch.rsqrt(normed.pow(2).mean(-1, keepdim=True) + eps)
    weights = _Weights(weight, None)
    output: Tensor = _Scale.apply(works, weights.anchor, normed.to(taken.dtype), weights)  # type: ignore[no-untyped-call]
    return output


def embedding(works: list[Work], module: nn.Embedding, numbers: Tensor) -> Tensor:
    """``functional.embedding`` with a dense gradient."""
    weights = _Weights(module.weight, None)
    output: Tensor = _Embedding.apply(works, weights.anchor, numbers, weights, module.padding_idx)  # type: ignore[no-untyped-call]
    return output


class _Weights(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    transposed: bool = False

    @property
    def trained(self) -> tuple[bool, bool]:
        return self.weight.requires_grad, self.bias is not None and self.bias.requires_grad

    @property
    def anchor(self) -> Tensor | None:
        return _ANCHOR if any(self.trained) else None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, works: list[Work], anchor: Tensor | None, taken: Tensor, weights: _Weights) -> Tensor:
        context.works, context.weights = works, weights
        _save(context, taken, weights)
        matrix = weights.weight if weights.transposed else weights.weight.t()
        rows = taken.reshape(-1, taken.shape[-1])
        product = rows.mm(matrix) if weights.bias is None else torch.addmm(weights.bias, rows, matrix)
        output: Tensor = _aten._unsafe_view(product, [*taken.shape[:-1], matrix.shape[1]])
        return output  # no view of anything: it may be changed in place

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        taken, weight = context.saved_tensors
        weights = context.weights
        if any(weights.trained):
            context.works.append(_linear_work(weights, gradient, taken))
        if weight is None:
            return None, None, None, None
        return None, None, gradient @ (weight.t() if weights.transposed else weight), None


def _save(context: Any, taken: Tensor, weights: _Weights) -> None:
    """What a gradient needs: the input for a trained weight, the weight for an input that wants one."""
    of_taken = context.needs_input_grad[2]
    context.save_for_backward(taken if weights.weight.requires_grad else None, weights.weight if of_taken else None)


def _linear_work(weights: _Weights, gradient: Tensor, taken: Tensor | None) -> Work:
    read = taken.detach() if taken is not None else None  # its graph has done its work

    def work() -> list[_Part]:
        given = gradient.reshape(-1, gradient.shape[-1])
        parts = []
        if read is not None:
            rows = read.reshape(-1, read.shape[-1])
            parts.append(_Part(weights.weight, rows.t().mm(given) if weights.transposed else given.t().mm(rows)))
        if weights.bias is not None and weights.bias.requires_grad:
            parts.append(_Part(weights.bias, given.sum(0)))
        return parts

    return work


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913  # autograd hands on what apply got
        context: Any, works: list[Work], anchor: Tensor | None, taken: Tensor, weights: _Weights, eps: float
    ) -> Tensor:
        shape = weights.weight.shape
        output, mean, scale = torch.native_layer_norm(taken, shape, weights.weight, weights.bias, eps)
        context.works, context.weights = works, weights
        context.save_for_backward(taken, mean, scale, weights.weight)
        return output

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        taken, mean, scale, weight = context.saved_tensors
        read, weights = taken.detach(), context.weights

        def parts(*wanted: bool) -> Any:
            bias = weights.bias
            return _aten.native_layer_norm_backward(gradient, read, weight.shape, mean, scale, weight, bias, wanted)

        def work() -> list[_Part]:
            leaves, trained = (weights.weight, weights.bias), weights.trained
            found = zip(leaves, parts(False, *trained)[1:], trained, strict=True)
            return [_Part(leaf, part) for leaf, part, wanted in found if wanted]

        if any(weights.trained):
            context.works.append(work)
        of_taken = parts(True, False, False)[0] if context.needs_input_grad[2] else None
        return None, None, of_taken, None, None


class _Scale(torch.autograd.Function):
    """A weight for each place of the last dimension."""

    @staticmethod
    def forward(context: Any, works: list[Work], anchor: Tensor | None, taken: Tensor, weights: _Weights) -> Tensor:
        context.works, context.weights = works, weights
        _save(context, taken, weights)
        return weights.weight * taken

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        taken, weight = context.saved_tensors
        if taken is not None:
            leaf, read = context.weights.weight, taken.detach()
            context.works.append(lambda: [_Part(leaf, (gradient * read).reshape(-1, leaf.shape[0]).sum(0))])
        return None, None, gradient * weight if weight is not None else None, None


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913  # autograd hands on what apply got
        context: Any, works: list[Work], anchor: Tensor | None, numbers: Tensor, weights: _Weights, padding: int | None
    ) -> Tensor:
        context.works, context.weight = works, weights.weight
        context.padding = -1 if padding is None else padding
        context.save_for_backward(numbers)
        rows = weights.weight.index_select(0, numbers.reshape(-1))
        output: Tensor = _aten._unsafe_view(rows, [*numbers.shape, weights.weight.shape[1]])
        return output

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (numbers,) = context.saved_tensors
        weight, padding = context.weight, context.padding

        def work() -> list[_Part]:
            rows = _aten.embedding_dense_backward(gradient, numbers, weight.shape[0], padding, False)
            return [_Part(weight, rows)]

        context.works.append(work)
        return None, None, None, None, None
