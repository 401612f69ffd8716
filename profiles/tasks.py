"""All tasks of a job in one process: the model is made and cut, shapes are followed, tasks are built when first run."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from planner.cutting.cut import cut_model
from planner.cutting.example import example_batch
from planner.cutting.layer import CutLayer, CutModel
from planner.cutting.meta import call_on_meta
from planner.errors import ModelError
from planner.problem.workload import Precision
from profiles.losses import Loss, example_labels, named_loss
from profiles.memory import LayerMemory, measure_memory
from profiles.protocol import Job
from profiles.source import load_named
from profiles.work import EmptyVisit, LayerTask, UpdateTask

__all__ = ["DTYPES", "Tasks"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_MOST_UPDATED_PARAMS = 50_000_000  # of the timed update: enough for a rate, little memory


@dataclass(frozen=True)
class _Shape:
    """Input and labels of one task, on meta."""

    layer: int
    value: Tensor
    labels: Tensor | None


class Tasks:
    """Numbered tasks: measured layers x shapes, then update_all, update_one, empty_visit."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self._device = device
        self.model = _model(job)
        self.cut: CutModel = cut_model(self.model, job.source.cut)
        first = {layer.fingerprint: number for number, layer in reversed(list(enumerate(self.cut.layers)))}
        self.measured = sorted(first.values())  # the first of equal layers stands for all
        for number in self.measured:
            _give_values(self.cut.layers[number].module, device)
        self._loss: Loss | None = None
        self.shapes = list(self._shapes(job))
        self._built: dict[int, LayerTask | UpdateTask | EmptyVisit] = {}
        self._extra = self._extra_tasks(job)

    def _shapes(self, job: Job) -> Iterator[_Shape]:
        """By measured layer, then by shape of the grid."""
        rows = [self._chain(job, *shape) for shape in job.grid.shapes]
        for layer in self.measured:
            for row in rows:
                yield row[layer]

    def _chain(self, job: Job, samples: int, tokens: int) -> list[_Shape]:
        batch = example_batch(self.model, samples, tokens)
        if batch.is_floating_point():
            batch = batch.to(DTYPES[job.precision])
        value, found = batch.to("meta"), []
        for number, layer in enumerate(self.cut.layers):
            output = call_on_meta(layer.module, value)
            assert isinstance(output, Tensor), "the cutter lets only layers through that give one tensor"
            is_last = number == len(self.cut.layers) - 1
            labels = example_labels(output, batch) if is_last else None
            if labels is not None and self._loss is None:
                self._loss = named_loss(job.source.loss, job.source.folder, labels=labels)
            found.append(_Shape(number, value, None if labels is None else labels.to("meta")))
            value = output
        return found

    def _extra_tasks(self, job: Job) -> list[UpdateTask | EmptyVisit]:
        modules = [self.cut.layers[number].module for number in self.measured]
        weights = [[p for p in module.parameters() if p.requires_grad] for module in modules]
        with_weights = sorted((w for w in weights if w), key=lambda w: sum(p.numel() for p in w))
        every = [parameter for w in with_weights for parameter in w]
        fitting = _first_params(every, _MOST_UPDATED_PARAMS)
        smallest = with_weights[0] if with_weights else []
        if not every:
            empty = [nn.Parameter(torch.zeros(1, device=self._device))]
            fitting, smallest = empty, empty
        return [UpdateTask(fitting, job.optimizer), UpdateTask(smallest, job.optimizer), EmptyVisit(self._device)]

    @property
    def num_layer_tasks(self) -> int:
        return len(self.shapes)

    @property
    def update_params(self) -> tuple[int, int]:
        """Parameters of the two timed updates."""
        counts = [task.num_params for task in self._extra if isinstance(task, UpdateTask)]
        return (counts[0], counts[1])

    def layer_of(self, task: int) -> CutLayer:
        return self.cut.layers[self.shapes[task].layer]

    def memory(self, task: int) -> LayerMemory:
        """Exact bytes of a layer's task, from shapes alone."""
        shape = self.shapes[task]
        loss = None if shape.labels is None else self._loss
        return measure_memory(self.layer_of(task).module, shape.value, shape.labels, loss)

    def forward_flops(self, task: int) -> int:
        """Floating-point operations of a forward, counted on meta: CPU attention kernels would be missed."""
        with FlopCounterMode(display=False) as counter:
            call_on_meta(self.layer_of(task).module, self.shapes[task].value)
        return int(counter.get_total_flops())

    def task(self, number: int) -> LayerTask | UpdateTask | EmptyVisit:
        """A task with its random values, built once."""
        if number >= self.num_layer_tasks:
            return self._extra[number - self.num_layer_tasks]
        if number not in self._built:
            self._built[number] = self._layer_task(number)
        return self._built[number]

    def drop(self, number: int) -> None:
        """Free the values of a task that will not run again."""
        self._built.pop(number, None)

    def _layer_task(self, number: int) -> LayerTask:
        shape, layer = self.shapes[number], self.layer_of(number)
        if shape.layer == 0:
            value = example_batch(self.model, *shape.value.shape[:2]).to(shape.value.dtype)
        else:
            value = torch.randn(tuple(shape.value.shape), dtype=shape.value.dtype)
        labels = None
        if shape.labels is not None:
            output = call_on_meta(layer.module, shape.value)
            assert isinstance(output, Tensor), "the cutter lets only layers through that give one tensor"
            labels = example_labels(output, shape.labels).to(self._device)  # labels are shaped as batch or output
        return LayerTask(
            layer=layer,
            example=value.to(self._device),
            labels=labels,
            loss=None if labels is None else self._loss,
            wants_input_gradient=shape.layer > 0 and value.is_floating_point(),
        )


def _give_values(module: nn.Module, device: torch.device) -> None:
    """Move a layer to the device; a layer on meta gets random weights, so that one block of a huge model is enough."""
    module.train()
    if not any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        module.to(device)
        return
    module.to_empty(device=device)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(std=0.02)
            else:
                tensor.zero_()


def _first_params(parameters: list[nn.Parameter], most: int) -> list[nn.Parameter]:
    chosen: list[nn.Parameter] = []
    total = 0
    for parameter in parameters:
        if chosen and total + parameter.numel() > most:
            break
        chosen.append(parameter)
        total += parameter.numel()
    return chosen


def _model(job: Job) -> nn.Module:
    made = load_named(job.source.factory, job.source.folder)()
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"{job.source.factory} gave {type(made).__name__}, expected an nn.Module",
            code="bad_source",
            pointer=job.source.factory,
        )
    return made.to(DTYPES[job.precision])
