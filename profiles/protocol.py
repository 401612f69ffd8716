"""What the measuring processes are told and what they answer: one JSON document a line, no pickle.

A worker reads a job, answers with its description, then answers each round with its samples until its input ends.
Tasks are numbered: every (measured layer, micro-batch size, sequence length), then the extra operations.
"""

from typing import Annotated

from pydantic import Field

from planner.problem.contract import Bytes, Contract, Count, Digest, Index, Many, Name, Nanoseconds
from planner.problem.profile import Layer, Reads, TiedWeights
from planner.problem.workload import Optimizer, Precision
from profiles.source import ModelSource

__all__ = ["EXTRA_TASKS", "Description", "Grid", "Job", "Memory", "Refusal", "Reply", "Round", "Sample", "Start"]

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


class Description(Contract):
    """The model as this worker sees it; equal on all workers."""

    model_fingerprint: Digest
    model_class: Name
    layers: Many[Layer]
    reads: Many[Reads]
    tied: Many[TiedWeights]
    measured: Many[Digest]  # fingerprints in the order of the tasks
    total_bytes: Count
    usable_bytes: Count
    device_kind: Name
    backend: Name
    torch_version: Name
    update_params: Annotated[Many[Index], Field(min_length=2, max_length=2)]  # of update_all and update_one


class Start(Contract):
    """A worker is ready: description (of rank 0), its share of the memory figures, tasks of those that do not fit."""

    description: Description | None
    memory: Many[Memory]
    too_large: Many[Index]


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


class Reply(Contract):
    """The samples of one round."""

    samples: Many[Sample]
    too_large: Many[Index] = ()  # ran out of memory
    failed: Many[Index] = ()  # the layer refuses the shape


class Refusal(Contract):
    """A worker ends because of something that the caller can change."""

    code: Name
    message: Annotated[str, Field(max_length=4096)]
    pointer: Annotated[str, Field(max_length=1024)] = ""
