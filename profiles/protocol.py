"""What the measuring processes are told and what they answer: one JSON document a line, no pickle.

A worker reads a job, answers with its description, then answers each round with its samples until its input ends.
Tasks are numbered: every (measured layer, micro-batch size, sequence length), then the extra operations, then those
of the first kind again whose layer has trained weights, with their backward split into I and W.
"""

from typing import Annotated

from pydantic import Field

from planner.problem.contract import Bytes, Contract, Count, Digest, Index, Many, Name, Nanoseconds
from planner.problem.profile import Layer, Reads, TiedWeights
from planner.problem.workload import Optimizer, Precision
from profiles.source import ModelSource

__all__ = [
    "EXTRA_TASKS",
    "Description",
    "Failure",
    "Grid",
    "Job",
    "Memory",
    "Refusal",
    "Reply",
    "Round",
    "Sample",
    "Start",
]

EXTRA_TASKS = ("update_all", "update_one", "empty_visit")  # numbered after the layers' tasks


class Grid(Contract):
    """The shapes to measure: every micro-batch size with every sequence length."""

    micro_batch_sizes: Annotated[Many[Count], Field(min_length=1, max_length=64)]
    sequence_lengths: Annotated[Many[Count], Field(min_length=1, max_length=64)]

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple((size, length) for length in self.sequence_lengths for size in self.micro_batch_sizes)


class Job(Contract):
    """What one worker measures."""

    source: ModelSource
    grid: Grid
    precision: Precision
    optimizer: Optimizer
    rank: Index
    num_ranks: Count
    threads: Count
    device: Name  # cpu or cuda
    usable_bytes: Bytes | None  # of this rank; None: what the device says
    seed: Index


class Memory(Contract):
    """Bytes of one task; exact, from shapes alone."""

    task: Index
    saved_bytes: Bytes
    input_bytes: Bytes
    output_bytes: Bytes
    peak_forward_bytes: Bytes
    peak_backward_bytes: Bytes
    split_kept_bytes: Bytes | None  # None: the layer has nothing to split
    split_peak_bytes: Bytes | None


class Failure(Contract):
    """A task that cannot be measured, and why."""

    task: Index
    reason: Annotated[str, Field(max_length=1024)]


class Description(Contract):
    """The model and the device as this worker sees them; what it says of the model must be equal on all workers."""

    model_fingerprint: Digest
    model_class: Name
    layers: Many[Layer]
    reads: Many[Reads]
    tied: Many[TiedWeights]
    measured: Many[Digest]  # fingerprints in the order of the tasks
    split: Many[Index]  # tasks of layers that are measured with a split backward too, in their order
    total_bytes: Count
    usable_bytes: Count
    device_kind: Name
    backend: Name
    torch_version: Name
    update_params: Annotated[Many[Index], Field(min_length=2, max_length=2)]  # of update_all and update_one


class Start(Contract):
    """A worker is ready: description, its share of the memory figures, tasks that do not fit or fail."""

    description: Description
    memory: Many[Memory]
    too_large: Many[Index]
    failed: Many[Failure]


class Round(Contract):
    """Measure these tasks once, in this order."""

    tasks: Many[Index]


class Sample(Contract):
    """One task once; a task without a backward has 0 there."""

    task: Index
    forward_ns: Nanoseconds
    forward_cpu_ns: Nanoseconds
    backward_ns: Nanoseconds
    backward_cpu_ns: Nanoseconds
    weight_ns: Nanoseconds  # W; 0: not split
    weight_cpu_ns: Nanoseconds


class Reply(Contract):
    """The samples of one round."""

    samples: Many[Sample]
    too_large: Many[Index] = ()  # ran out of memory
    failed: Many[Failure] = ()  # the layer refuses the shape
    not_finite: Many[Index] = ()  # layers that gave NaN or an infinity when they ran for the first time


class Refusal(Contract):
    """A worker ends because of something that the caller can change."""

    code: Name
    message: Annotated[str, Field(max_length=4096)]
    pointer: Annotated[str, Field(max_length=1024)] = ""
