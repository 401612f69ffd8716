"""Costs of every possible stage on the blocks of one device class, as arrays over [first layer, end layer].

Prices come from ``planner.costs``, so a stage costs here exactly what it costs in a plan. Memory has two forms. The
*least* that a stage needs in any replay proves what cannot fit: state, what the micro-batches in flight keep, and the
transients and the message of the instruction that runs. The *safe* one adds messages that may wait.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.costs.layers import LayerPrice
from planner.costs.stages import GRADIENT_BYTES, MOST_WAITING_BYTES
from planner.search.devices import DeviceClass
from planner.search.partition import Integers

__all__ = ["ClassTables", "StageMemory", "spans"]

_PLENTY = 2**31


class StageMemory(NamedTuple):
    """Arrays over [first, end]: kept by a micro-batch in flight; while a forward and while a backward runs; the
    activations that one visit reads, and the gradient that comes back for one."""

    kept_bytes: Integers
    forward_bytes: Integers
    backward_bytes: Integers
    arriving_bytes: Integers
    returning_bytes: Integers


@dataclass(frozen=True, eq=False)
class ClassTables:
    """Stages on the blocks of one device class, for one number of samples a rank.

    ``prices``: of each layer. ``allowed`` [layer, end]: what pins leave. ``state_bytes`` [layer, end].
    ``border_bytes`` [layer]: what crosses in front of it, and comes back as gradient; ``border_ns``: both, at best.
    ``trained_params`` [layer]. What is called split holds for stages whose visits have I and W.
    """

    device_class: DeviceClass
    prices: tuple[LayerPrice, ...]
    per_instruction_ns: int
    allowed: npt.NDArray[np.bool_]
    state_bytes: Integers
    border_bytes: Integers
    border_ns: Integers
    trained_params: Integers

    @property
    def num_layers(self) -> int:
        return len(self.prices)

    def _column(self, field: str) -> Integers:
        place = LayerPrice._fields.index(field)
        return np.array([price[place] or 0 for price in self.prices], np.int64)  # no I: nothing to give back

    @cached_property
    def layer_ns(self) -> Integers:
        """Forward and backward of each layer alone, without overhead."""
        return np.asarray(self._column("forward_ns") + self._column("backward_ns"))

    @cached_property
    def splits(self) -> bool:
        """Whether every layer has its input and weight gradient measured apart."""
        return self.unsplit_layer is None

    @cached_property
    def unsplit_layer(self) -> int | None:
        """The first layer whose backward has no parts."""
        return next((number for number, price in enumerate(self.prices) if not _has_parts(price)), None)

    @cached_property
    def least_layer_ns(self) -> Integers:
        """Forward and backward of each layer, whole or in parts, whichever is less."""
        return self._least_ns(self._column("backward_input_ns") + self._column("backward_weight_ns"))

    @cached_property
    def least_way_ns(self) -> Integers:
        """Of each layer: forward, and what must run before the gradient leaves."""
        return self._least_ns(self._column("backward_input_ns"))

    def _least_ns(self, in_parts: Integers) -> Integers:
        if not self.splits:
            return self.layer_ns
        forward = np.minimum(self._column("forward_ns"), self._column("split_forward_ns"))
        return np.asarray(forward + np.minimum(self._column("backward_ns"), in_parts))

    @cached_property
    def layer_state_bytes(self) -> Integers:
        first = np.arange(self.num_layers)
        return np.asarray(self.state_bytes[first, first + 1])

    @cached_property
    def forward_ns(self) -> Integers:
        return np.asarray(spans(self._column("forward_ns")) + self.per_instruction_ns)

    @cached_property
    def backward_ns(self) -> Integers:
        return np.asarray(spans(self._column("backward_ns")) + self.per_instruction_ns)

    @cached_property
    def split_forward_ns(self) -> Integers:
        return np.asarray(spans(self._column("split_forward_ns")) + self.per_instruction_ns)

    @cached_property
    def backward_input_ns(self) -> Integers:
        return np.asarray(spans(self._column("backward_input_ns")) + self.per_instruction_ns)

    @cached_property
    def backward_weight_ns(self) -> Integers:
        return np.asarray(spans(self._column("backward_weight_ns")) + self.per_instruction_ns)

    @cached_property
    def recomputed_backward_ns(self) -> Integers:
        """With the forward of all layers once more."""
        return np.asarray(self.backward_ns + spans(self._column("forward_ns")))

    def times_ns(self, *, recomputes: bool) -> Integers:
        """Forward and backward of one micro-batch, and its border."""
        backward = self.recomputed_backward_ns if recomputes else self.backward_ns
        return np.asarray(self.forward_ns + backward + self.border_ns[:, None])

    def most_in_flight(self, *, recomputes: bool) -> Integers:
        """Micro-batches that fit at the least, 0: none."""
        memory = self.memory(recomputes=recomputes)
        running = np.maximum(
            memory.forward_bytes + memory.arriving_bytes, memory.backward_bytes + memory.returning_bytes
        )
        return self._count(running, memory.kept_bytes)

    def surely_in_flight(self, *, recomputes: bool) -> Integers:
        """Micro-batches that fit whatever waits, with one stage a group.

        What was sent here and has not come back at the sender is at most one more than what is kept here, and what is
        kept is larger than the message that brought it: two arriving messages beside the kept ones. In the drain every
        gradient may wait.
        """
        memory = self.memory(recomputes=recomputes)
        running = np.maximum(memory.forward_bytes, memory.backward_bytes) + 2 * memory.arriving_bytes
        return self._count(running, memory.kept_bytes + memory.returning_bytes)

    def memory(self, *, recomputes: bool) -> StageMemory:
        """What a stage holds beside its state."""
        return self._memories[recomputes]

    @cached_property
    def split_memory(self) -> StageMemory:
        """As ``memory``; every instruction that goes backward may hold gradients that W gathers."""
        whole = self.memory(recomputes=False)
        more_saved = self._column("split_saved_bytes") - self._column("saved_bytes")
        gathered = np.minimum(spans(self.trained_params) * GRADIENT_BYTES, MOST_WAITING_BYTES)
        return whole._replace(
            kept_bytes=whole.kept_bytes + _signed_spans(more_saved),
            backward_bytes=_tops(self._column("split_transient_bytes")) + gathered,
        )

    @cached_property
    def _memories(self) -> tuple[StageMemory, StageMemory]:
        """Without recompute, and with."""
        return self._memory(recomputes=False), self._memory(recomputes=True)

    def _memory(self, *, recomputes: bool) -> StageMemory:
        saved, inputs = self._column("saved_bytes"), self._column("input_bytes")
        is_read = np.where(np.arange(self.num_layers + 1) < self.num_layers, 1, 0)
        outputs = np.concatenate([[0], self._column("output_bytes")]) * is_read
        kept = spans(inputs) + outputs[None, :] + (0 if recomputes else spans(saved))
        forward, backward = self._column("forward_transient_bytes"), _tops(self._column("backward_transient_bytes"))
        behind = np.append(self.border_bytes, 0)
        return StageMemory(
            kept_bytes=kept,
            forward_bytes=_tops(forward + saved) if recomputes else _tops(forward),
            backward_bytes=backward + _tops(saved) if recomputes else backward,
            arriving_bytes=np.repeat(self.border_bytes[:, None], self.num_layers + 1, axis=1),
            returning_bytes=np.repeat(behind[None, :], self.num_layers, axis=0),
        )

    def _count(self, running: Integers, kept: Integers) -> Integers:
        free = self.device_class.usable_bytes - self.state_bytes - running
        count = np.where(kept > 0, free // np.maximum(kept, 1), _PLENTY)
        return np.where((free >= 0) & self.allowed, np.clip(count, 0, _PLENTY), 0)


def _has_parts(price: LayerPrice) -> bool:
    parts = (price.backward_input_ns, price.backward_weight_ns)
    return None not in parts or price.backward_ns == 0


def spans(values: Integers) -> Integers:
    """[first, end] -> the sum of ``values[first:end]``; 0 where the end is not above the first."""
    before = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(np.maximum(before[None, :] - before[:-1, None], 0))


def _signed_spans(values: Integers) -> Integers:
    """As ``spans``, of values below 0 too."""
    return np.asarray(spans(np.maximum(values, 0)) - spans(np.maximum(-values, 0)))


def _tops(values: Integers) -> Integers:
    """[first, end] -> the largest of ``values[first:end]``."""
    size = len(values)
    shown = np.where(np.arange(size)[None, :] >= np.arange(size)[:, None], values[None, :], 0)
    return np.concatenate([np.zeros((size, 1), np.int64), np.maximum.accumulate(shown, axis=1)], axis=1)
