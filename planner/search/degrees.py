"""Which data degrees and micro-batches a search tries.

A data degree is the number of ranks of each stage: all up to 32, above that powers of two and what divides the batch.
Micro-batches are near-equal parts of the global batch: with ``data`` ranks and at most ``micro_batch_size`` samples a
rank there are ``ceil(batch / (data x size))`` of them. Sizes: all that divide the batch evenly, and the powers of two.
"""

from collections.abc import Iterator
from typing import NamedTuple

from planner.plan.mesh import cut
from planner.problem.options import Constraints
from planner.problem.problem import Problem

__all__ = ["Degrees", "allowed_degrees"]


_ALL_UP_TO = 32


class Degrees(NamedTuple):
    """``micro_batch_size``: samples of the fullest rank."""

    data: int
    micro_batch_size: int
    num_micro_batches: int

    def samples(self, global_batch_size: int) -> tuple[int, ...]:
        """Of each micro-batch; larger ones last, as the cut gives them."""
        return tuple(cut(global_batch_size, self.num_micro_batches, i).size for i in range(self.num_micro_batches))


def allowed_degrees(problem: Problem, constraints: Constraints) -> Iterator[Degrees]:
    """Ascending in data degree, then in size."""
    batch = problem.workload.global_batch_size
    usable = [group for group in problem.cluster.node_groups if group.device_kind not in constraints.unused_kinds]
    most = min(batch, max((group.num_ranks for group in usable), default=0))
    for data in _data_degrees(batch, most, constraints):
        for size in _sizes(batch, data, constraints):
            found = _degrees(batch, data, size)
            if found is not None:
                yield found


def _data_degrees(batch: int, most: int, constraints: Constraints) -> list[int]:
    if constraints.data_degrees:
        return sorted(data for data in set(constraints.data_degrees) if data <= most)
    return sorted(data for data in range(1, most + 1) if data <= _ALL_UP_TO or _is_even(batch, data))


def _is_even(batch: int, data: int) -> bool:
    """A power of two, or it deals the batch evenly."""
    return data & (data - 1) == 0 or batch % data == 0


def _sizes(batch: int, data: int, constraints: Constraints) -> list[int]:
    if constraints.micro_batch_sizes:
        return sorted(set(constraints.micro_batch_sizes))
    most = -(-batch // data)
    powers = {2**n for n in range(most.bit_length())}
    even = {size for size in range(1, most + 1) if batch % (data * size) == 0}
    return sorted(size for size in powers | even if size <= most)


def _degrees(batch: int, data: int, size: int) -> Degrees | None:
    """None where a rank would have no sample, or none would have ``size``."""
    num_micro_batches = -(-batch // (data * size))
    fewest, most = batch // num_micro_batches, -(-batch // num_micro_batches)
    if fewest < data or -(-most // data) != size:
        return None
    return Degrees(data, size, num_micro_batches)
