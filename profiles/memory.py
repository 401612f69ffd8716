"""Bytes of one layer's forward and backward, exact and without a device.

The layer runs once under fake tensors; a dispatch mode counts every storage from its making to its end. Figures equal
those of the real run to the byte, and cost no memory. Saved tensors are counted by storage; parameters and the layer's
input are left out. Gradients of weights exist already, as they do from the second micro-batch of a step on.

Of a visit whose backward is split, what I leaves for W lives until W: inputs and output gradients of the layer's
modules. ``kept_bytes`` is the larger of that and of what F saved, so that it covers the visit from F to W.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.executor.deferral import Deferral
from planner.executor.deferred_functions import Work, do_works
from profiles.losses import Loss

__all__ = [
    "LayerMemory",
    "MemoryBatch",
    "SplitMemory",
    "measure_memory",
    "measure_split",
    "tracked_memory",
    "tracked_split",
]


class LayerMemory(NamedTuple):
    saved_bytes: int
    input_bytes: int
    output_bytes: int
    peak_forward_bytes: int
    peak_backward_bytes: int


class SplitMemory(NamedTuple):
    """Of a visit with I and W."""

    kept_bytes: int
    peak_bytes: int


class MemoryBatch(NamedTuple):
    """What a layer is run with; ``loss`` and ``labels`` of the last layer."""

    value: Tensor
    labels: Tensor | None
    loss: Loss | None


def measure_memory(module: nn.Module, value: Tensor, labels: Tensor | None, loss: Loss | None) -> LayerMemory:
    """The memory of ``module`` for an input (and labels) shaped as these, which may be on meta."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return tracked_memory(module, *_fakes(module, MemoryBatch(value, labels, loss)))


def measure_split(module: nn.Module, value: Tensor, labels: Tensor | None, loss: Loss | None) -> SplitMemory:
    """The same with the backward split as the executor splits it."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        return tracked_split(module, *_fakes(module, MemoryBatch(value, labels, loss)))


def _fakes(module: nn.Module, batch: MemoryBatch) -> tuple[dict[str, Tensor], MemoryBatch]:
    device = _device(module)
    tensors = {name: _fake(tensor, device) for name, tensor in _tensors(module)}
    labels = None if batch.labels is None else _fake(batch.labels, device)
    return tensors, MemoryBatch(_fake(batch.value, device), labels, batch.loss)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _fake(tensor: Tensor, device: torch.device) -> Tensor:
    """Shape, strides, dtype and trainability of ``tensor``; called under a fake mode."""
    fake = torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device=device)
    return fake.requires_grad_(tensor.requires_grad and isinstance(tensor, nn.Parameter))


def _device(module: nn.Module) -> torch.device:
    first = next(module.parameters(), None)
    return torch.device("cpu") if first is None or first.is_meta else first.device


def tracked_memory(module: nn.Module, tensors: Mapping[str, Tensor], batch: MemoryBatch) -> LayerMemory:
    """Run forward and backward with these parameters and buffers and count."""
    value, tracker, saved = _watched(tensors, batch)
    with tracker:
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, _same):
            output = functional_call(module, dict(tensors), (value,))
            last = output if batch.loss is None else batch.loss(output, batch.labels)
        output_bytes = output.numel() * output.element_size()
        del output
        peak_forward = tracker.peak_bytes
        if not last.requires_grad:
            return LayerMemory(0, _bytes(value), output_bytes, peak_forward, 0)
        gradient = torch.ones_like(last)
        before = tracker.start_again()
        torch.autograd.backward(last, gradient)
    return LayerMemory(saved.num_bytes, _bytes(value), output_bytes, peak_forward, tracker.peak_bytes - before)


def tracked_split(module: nn.Module, tensors: Mapping[str, Tensor], batch: MemoryBatch) -> SplitMemory:
    """Run F, I and W with these parameters, of which at least one is trained, and buffers, and count."""
    value, tracker, saved = _watched(tensors, batch)
    deferral, works = Deferral([module]), list[Work]()
    with tracker:
        with deferral.into(works):
            with torch.autograd.graph.saved_tensors_hooks(saved.pack, _same):
                output = functional_call(module, dict(tensors), (value,))
                last = output if batch.loss is None else batch.loss(output, batch.labels)
            del output
            gradient = torch.ones_like(last)
            before = tracker.start_again()
            torch.autograd.backward(last, gradient)
            input_peak = tracker.peak_bytes - before
        del last, gradient
        value.grad = None  # handed back
        left = tracker.start_again()
        do_works(works)
    kept = max(saved.num_bytes, left)
    return SplitMemory(kept, max(saved.num_bytes + input_peak, tracker.peak_bytes) - kept)


def _watched(tensors: Mapping[str, Tensor], batch: MemoryBatch) -> tuple[Tensor, "_Tracker", "_Saved"]:
    """The input as a leaf, and what counts; called before the forward."""
    value = batch.value.detach()
    if value.is_floating_point():
        value.requires_grad_()
    for tensor in tensors.values():
        if tensor.requires_grad:
            tensor.grad = torch.empty_like(tensor)
    gradients = [tensor.grad for tensor in tensors.values() if tensor.grad is not None]
    given = [value, *tensors.values(), *([] if batch.labels is None else [batch.labels])]
    return value, _Tracker([*given, *gradients]), _Saved(given)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _storage(tensor: Tensor) -> int:
    number: int = tensor.untyped_storage()._cdata
    return number


class _Saved:
    """Bytes that autograd keeps, each storage once."""

    def __init__(self, left_out: Iterable[Tensor]) -> None:
        self._left_out = {_storage(tensor) for tensor in left_out}
        self._found: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        if _storage(tensor) not in self._left_out:
            self._found[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    @property
    def num_bytes(self) -> int:
        return sum(self._found.values())


class _Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the storages that operations made and that still live; the most since the last start."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._held = {_storage(tensor) for tensor in held}
        self._living: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._current_bytes = 0
        self.peak_bytes = 0

    def start_again(self) -> int:
        """Forget the peak; the bytes that live now."""
        self.peak_bytes = self._current_bytes
        return self._current_bytes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's own
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        key = _storage(tensor)
        if key in self._held or key in self._living:
            return
        storage = tensor.untyped_storage()
        num_bytes = storage.nbytes()

        def gone(_: object) -> None:
            del self._living[key]
            self._current_bytes -= num_bytes

        self._living[key] = weakref.ref(storage, gone)
        self._current_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self._current_bytes)
