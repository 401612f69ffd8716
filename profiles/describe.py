"""What a measuring process says about model and device."""

from collections.abc import Iterator

import torch

from planner.executor.deferral import can_split
from planner.executor.devices import device_kind
from planner.problem.profile import Layer
from profiles.device import total_bytes, usable_bytes
from profiles.protocol import Description, Job
from profiles.tasks import Tasks

__all__ = ["describe"]


def describe(job: Job, tasks: Tasks) -> Description:
    """Layers, graph, device and versions."""
    return Description(
        model_fingerprint=tasks.cut.fingerprint,
        model_class=f"{type(tasks.model).__module__}.{type(tasks.model).__qualname__}"[-128:],
        layers=tuple(_layers(job, tasks)),
        reads=tasks.cut.reads,
        tied=tasks.cut.tied,
        measured=tuple(tasks.cut.layers[number].fingerprint for number in tasks.measured),
        split=tuple(tasks.split),
        total_bytes=total_bytes(job.device),
        usable_bytes=job.usable_bytes if job.usable_bytes is not None else usable_bytes(job.device, job.num_ranks),
        device_kind=device_kind(torch.device(job.device)),
        backend=f"cuda {torch.version.cuda}" if job.device == "cuda" else "cpu",
        torch_version=torch.__version__,
        update_params=tasks.update_params,
    )


def _layers(job: Job, tasks: Tasks) -> Iterator[Layer]:
    flops = dict(_flops_per_token(job, tasks))
    for layer in tasks.cut.layers:
        parameters = layer.parameters.values()
        yield Layer(
            id=layer.id,
            kind=layer.kind,
            fingerprint=layer.fingerprint,
            param_bytes=sum(p.numel() * p.element_size() for p in parameters),
            num_params=sum(p.numel() for p in parameters),
            num_trained_params=sum(p.numel() for p in parameters if p.requires_grad),
            buffer_bytes=sum(b.numel() * b.element_size() for b in layer.buffers.values()),
            causal=layer.causal,
            splittable=can_split(layer.module),
            forward_flops_per_token=flops.get(layer.fingerprint),
        )


def _flops_per_token(job: Job, tasks: Tasks) -> Iterator[tuple[str, int]]:
    """By fingerprint, at the longest sequence of the grid that the layer takes."""
    shapes = job.grid.shapes
    for place, layer in enumerate(tasks.measured):
        taken = [number for number in range(len(shapes)) if tasks.is_known(place * len(shapes) + number)]
        if taken:
            longest = max(taken, key=lambda number: shapes[number][1])
            samples, tokens = shapes[longest]
            flops = tasks.forward_flops(place * len(shapes) + longest)
            yield tasks.cut.layers[layer].fingerprint, flops // (samples * tokens)
