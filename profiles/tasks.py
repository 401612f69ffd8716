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
from planner.cutting.precision import DTYPES, require_precision
from planner.errors import PlannerError
from planner.executor.deferral import Deferral
from profiles.blame import FAILURES, blame
from profiles.losses import Loss, example_labels, named_loss
from profiles.making import make_model
from profiles.memory import LayerMemory, SplitMemory, measure_memory, measure_split
from profiles.protocol import EXTRA_TASKS, Failure, Job
from profiles.work import EmptyVisit, LayerTask, SplitTask, UpdateTask

__all__ = ["Task", "Tasks"]

Task = LayerTask | UpdateTask | EmptyVisit | SplitTask
_MOST_UPDATED_PARAMS = 50_000_000  # of the timed update: enough for a rate, little memory


@dataclass(frozen=True)
class _Shape:
    """Input and labels of one task, on meta."""

    layer: int
    value: Tensor
    labels: Tensor | None


class Tasks:
    """Numbered tasks: measured layers x shapes, then update_all, update_one, empty_visit, then ``split`` ones again.

    ``failures``: tasks whose layer, or one before it, refuses the shape.
    """

    def __init__(self, job: Job, device: torch.device) -> None:
        self._device = device
        self.model = make_model(job.source)
        self.cut: CutModel = cut_model(self.model, job.source.cut)
        require_precision(self.cut, job.precision)
        first = {layer.fingerprint: number for number, layer in reversed(list(enumerate(self.cut.layers)))}
        self.measured = sorted(first.values())  # the first of equal layers stands for all
        for number in self.measured:
            _give_values(self.cut.layers[number].module, device)
        self._loss: Loss | None = None
        self.failures: list[Failure] = []
        self._shapes: dict[int, _Shape] = {}
        for place, shape in enumerate(job.grid.shapes):
            self._follow(job, place, shape)
        self.num_layer_tasks = len(self.measured) * len(job.grid.shapes)
        trained = {n for n in self.measured if any(p.requires_grad for p in self.cut.layers[n].module.parameters())}
        self.split = [task for task in sorted(self._shapes) if self._shapes[task].layer in trained]
        self._deferrals = {number: Deferral([self.cut.layers[number].module]) for number in trained}
        self._built: dict[int, LayerTask] = {}
        self._looked_at: set[int] = set()
        self._extra = self._extra_tasks(job)

    def _follow(self, job: Job, place: int, shape: tuple[int, int]) -> None:
        """Note the shapes of all layers for one shape of the grid; where one layer fails, those behind it do too."""
        tasks = {layer: n * len(job.grid.shapes) + place for n, layer in enumerate(self.measured)}
        done = 0
        try:
            for found in self._chain(job, *shape):
                if found.layer in tasks:
                    self._shapes[tasks[found.layer]] = found
                done = found.layer + 1
        except PlannerError:
            raise
        except FAILURES as error:
            why = f"layer {self.cut.layers[done].id!r}: {blame(error)}"
            left = [task for layer, task in tasks.items() if layer >= done]
            self.failures += [Failure(task=task, reason=why) for task in left]

    def _chain(self, job: Job, samples: int, tokens: int) -> Iterator[_Shape]:
        batch = example_batch(self.model, samples, tokens)
        if batch.is_floating_point():
            batch = batch.to(DTYPES[job.precision])
        value = batch.to("meta")
        for number, layer in enumerate(self.cut.layers):
            output = call_on_meta(layer.module, value)
            assert isinstance(output, Tensor), "the cutter lets only layers through that give one tensor"
            is_last = number == len(self.cut.layers) - 1
            labels = example_labels(output, batch) if is_last else None
            if labels is not None and self._loss is None:
                self._loss = named_loss(job.source.loss, job.source.folder, labels=labels)
            yield _Shape(number, value, None if labels is None else labels.to("meta"))
            value = output

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
    def update_params(self) -> tuple[int, int]:
        """Parameters of the two timed updates."""
        counts = [task.num_params for task in self._extra if isinstance(task, UpdateTask)]
        return (counts[0], counts[1])

    def layer_of(self, task: int) -> CutLayer:
        return self.cut.layers[self.shape_of(task).layer]

    def shape_of(self, task: int) -> _Shape:
        return self._shapes[self._whole(task)]

    def _whole(self, task: int) -> int:
        """The task itself, or the one whose split form it is."""
        first_split = self.num_layer_tasks + len(EXTRA_TASKS)
        return self.split[task - first_split] if task >= first_split else task

    def is_known(self, task: int) -> bool:
        """Whether the shape of a layer's task could be followed."""
        return task in self._shapes

    def memory(self, task: int) -> LayerMemory:
        """Exact bytes of a layer's task, from shapes alone."""
        shape = self._shapes[task]
        loss = None if shape.labels is None else self._loss
        return measure_memory(self.layer_of(task).module, shape.value, shape.labels, loss)

    def split_memory(self, task: int) -> SplitMemory | None:
        """The same with its backward split; None where there is nothing to split."""
        shape = self._shapes[task]
        loss = None if shape.labels is None else self._loss
        if shape.layer not in self._deferrals:
            return None
        return measure_split(self.layer_of(task).module, shape.value, shape.labels, loss)

    def forward_flops(self, task: int) -> int:
        """Floating-point operations of a forward, counted on meta: CPU attention kernels would be missed."""
        with FlopCounterMode(display=False) as counter:
            call_on_meta(self.layer_of(task).module, self._shapes[task].value)
        return int(counter.get_total_flops())

    def task(self, number: int) -> Task:
        """A task with its random values, built once."""
        if self.num_layer_tasks <= number < self.num_layer_tasks + len(EXTRA_TASKS):
            return self._extra[number - self.num_layer_tasks]
        whole = self._whole(number)
        if whole not in self._built:
            self._built[whole] = self._layer_task(whole)
        found = self._built[whole]
        return found if whole == number else SplitTask(found, self._deferrals[self._shapes[whole].layer])

    def is_new(self, number: int) -> bool:
        """Whether it is a layer's whole task whose values were not looked at yet."""
        return number < self.num_layer_tasks and number not in self._looked_at

    def gives_finite_values(self, number: int) -> bool:
        """Whether a forward of a layer's task gives neither NaN nor an infinity; builds the task, times nothing."""
        self._looked_at.add(number)
        found = self.task(number)
        assert isinstance(found, LayerTask), "only layers give values"
        with torch.no_grad():
            return bool(torch.isfinite(found.layer.module(found.example)).all())

    def drop(self, number: int) -> None:
        """Free the values of a task that will not run again."""
        self._built.pop(number, None)

    def _layer_task(self, number: int) -> LayerTask:
        shape, layer = self._shapes[number], self.layer_of(number)
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
