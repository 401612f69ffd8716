"""Messages between ranks: every one tagged from the plan, its shape and type known on both sides beforehand.

gloo does not look at types and dies on a wrong size, so a sender compares its tensor with the agreed shape before it
sends. A receive is posted into a fresh tensor and waited for by its reader. NCCL has no tags: there each
(sender, receiver, kind) has a communicator of its own, and both ends follow one order, that of the lowered lists.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from planner.errors import ExecutorError
from planner.executor.layout import Border
from planner.executor.shapes import Extent, TensorShape
from planner.executor.team import Team
from planner.schedules.lower import Message

__all__ = ["Arrival", "ConnectionLostError", "Parcel", "PostOffice", "parcels"]

_MOST_UNFINISHED_SENDS = 8


class ConnectionLostError(Exception):
    """A transfer failed below us; ``message`` is None outside a list, ``suspect`` is the other rank if there is one."""

    def __init__(self, message: Message | None, cause: RuntimeError, *, suspect: int | None = None) -> None:
        super().__init__(str(cause))
        self.message, self.suspect = message, suspect


class Parcel(NamedTuple):
    """One tensor of a message: the output of ``layer``, or its gradient; ``shape`` is what this message carries."""

    message: Message
    layer: int
    tag: int
    shape: TensorShape

    @property
    def text(self) -> str:
        message = self.message
        border = f"{message.sender_stage}->{message.receiver_stage}"
        return f"{message.kind} of layer {self.layer} over border {border}, micro-batch {message.micro_batch}"


def parcels(
    message: Message, border: Border, *, shape_of: Callable[[int, Extent], TensorShape], width: int
) -> tuple[Parcel, ...]:
    """The tensors of a message in order. ``width``: most tensors of a message in the plan, so that tags differ."""
    layers = border.layers if message.kind == "activation" else border.gradient_layers
    extent = Extent(message.samples.size, sum(tokens.size for tokens in message.tokens))
    return tuple(
        Parcel(message, layer, message.tag * width + number, shape_of(layer, extent))
        for number, layer in enumerate(layers)
    )


@dataclass(slots=True)
class Arrival:
    """A posted receive."""

    work: dist.Work
    message: Message

    def wait(self) -> None:
        try:
            self.work.wait()
        except RuntimeError as error:
            raise ConnectionLostError(self.message, error) from error


class PostOffice:
    """Sends and posts receives for one rank."""

    def __init__(self, team: Team, channels: dict[tuple[int, int, str], dist.ProcessGroup]) -> None:
        self._team = team
        self._channels = channels
        self._unfinished: deque[tuple[Arrival, Tensor]] = deque()

    def sender(self, parcel: Parcel) -> Callable[[Tensor], None]:
        """What sends a tensor, which is kept until it has left, as this parcel."""
        message, tag, unfinished = parcel.message, parcel.tag, self._unfinished
        shape, dtype = torch.Size(parcel.shape.shape), parcel.shape.dtype
        channel, peer = self._channel(message), self._peer(message, message.receiver)

        def send(tensor: Tensor) -> None:
            if tensor.shape != shape or tensor.dtype != dtype:
                raise _wrong_shape(parcel, tensor)
            body = tensor.detach().contiguous()
            try:
                work = channel.send([body], peer, tag)
            except RuntimeError as error:
                raise ConnectionLostError(message, error) from error
            unfinished.append((Arrival(work, message), body))
            if len(unfinished) > _MOST_UNFINISHED_SENDS:
                unfinished.popleft()[0].wait()

        return send

    def receiver(self, parcel: Parcel) -> Callable[[Tensor], Arrival]:
        """What posts the receive of this parcel into a tensor, which is contiguous."""
        message, tag = parcel.message, parcel.tag
        channel, peer = self._channel(message), self._peer(message, message.sender)

        def post(place: Tensor) -> Arrival:
            try:
                return Arrival(channel.recv([place], peer, tag), message)
            except RuntimeError as error:
                raise ConnectionLostError(message, error) from error

        return post

    def _channel(self, message: Message) -> dist.ProcessGroup:
        group = self._channels.get((message.sender, message.receiver, message.kind), self._team.group)
        assert group is not None, "one rank has nobody to talk to"
        return group

    def _peer(self, message: Message, other: int) -> int:
        """The number of ``other`` in the message's group: of the team, or of the two that share a channel."""
        ends = (message.sender, message.receiver)
        return int(other == max(ends)) if (*ends, message.kind) in self._channels else other

    def finish(self) -> None:
        """All sends have left."""
        while self._unfinished:
            self._unfinished.popleft()[0].wait()

    def forget(self) -> None:
        """After a failure: nothing is waited for."""
        self._unfinished.clear()


def _wrong_shape(parcel: Parcel, tensor: Tensor) -> ExecutorError:
    found = TensorShape(tuple(tensor.shape), tensor.dtype)
    return ExecutorError(f"{parcel.text}: found {found.text}, expected {parcel.shape.text}", code="border_shape")
