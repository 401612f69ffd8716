"""Who sends what to whom at a border (docs/plan-contract.md section 4): one intersection of samples and tokens.

The gradient is planned anew with the sides swapped, it is not the reversed list.
"""

from typing import NamedTuple

from planner.plan.instruction import Visit
from planner.plan.mesh import Mesh, Range, intersect
from planner.plan.plan import Plan

__all__ = ["Transfer", "is_handover", "mesh_transfers", "transfers"]


class Transfer(NamedTuple):
    """What one rank sends to another for one visit: samples of the micro-batch x token ranges; ranks by number.

    A rank that is sender and receiver takes its own: ``sender == receiver`` is a copy, no message.
    """

    sender: int
    receiver: int
    samples: Range
    tokens: tuple[Range, ...]

    @property
    def num_tokens(self) -> int:
        """Samples x tokens that cross."""
        return self.samples.size * sum(tokens.size for tokens in self.tokens)


def is_handover(plan: Plan, sender: int, receiver: int) -> bool:
    """Same group and equal mesh: handed over, no message."""
    one, other = plan.stages[sender], plan.stages[receiver]
    return one.group == other.group and one.mesh == other.mesh


def transfers(plan: Plan, sender: int, receiver: int, visit: Visit) -> tuple[Transfer, ...]:
    """All transfers from stage ``sender`` to stage ``receiver`` for the visit's micro-batch and slice."""
    shape = plan.visit_shape(visit.micro_batch, visit.slice)
    return mesh_transfers(
        (plan.stages[sender].mesh, plan.groups[plan.stages[sender].group]),
        (plan.stages[receiver].mesh, plan.groups[plan.stages[receiver].group]),
        num_samples=shape.samples,
        tokens=Range(shape.first_token, shape.end_token),
    )


def mesh_transfers(
    sender: tuple[Mesh, tuple[int, ...]], receiver: tuple[Mesh, tuple[int, ...]], *, num_samples: int, tokens: Range
) -> tuple[Transfer, ...]:
    """Transfers between two (mesh, ranks); ordered by receiver position, then sender position."""
    (sender_mesh, sender_ranks), (receiver_mesh, receiver_ranks) = sender, receiver
    found = []
    places = {rank: position for position, rank in enumerate(sender_ranks)}
    for to_position, to_rank in enumerate(receiver_ranks):
        samples_needed = receiver_mesh.samples(to_position, num_samples)
        tokens_needed = receiver_mesh.border_tokens(to_position, tokens)
        near = _positions_of(sender_mesh, samples_needed, num_samples)
        for position in _sender_positions(sender_mesh, near, to_position, places.get(to_rank)):
            samples = intersect(sender_mesh.samples(position, num_samples), samples_needed)
            held = sender_mesh.border_tokens(position, tokens)
            shared = tuple(sorted(r for a in held for b in tokens_needed if (r := intersect(a, b)).size))
            if samples.size and shared:
                found.append(Transfer(sender_ranks[position], to_rank, samples, shared))
    return tuple(found)


def _positions_of(mesh: Mesh, samples: Range, num_samples: int) -> range:
    """Positions whose data coordinate may hold one of ``samples``: sample s is in part ((s+1)*data - 1) // n."""
    if not samples.size:
        return range(0)
    first, last = (((sample + 1) * mesh.data - 1) // num_samples for sample in (samples.first, samples.end - 1))
    ranks = mesh.context * mesh.tensor
    return range(first * ranks, (last + 1) * ranks)


def _sender_positions(mesh: Mesh, near: range, to_position: int, own: int | None) -> list[int]:
    """Of ``near`` those that may serve a receiver: with equal copies (whole border) one tensor coordinate.

    ``own``: the receiver's position among the senders, where it is one of them.
    """
    if mesh.border == "sharded":
        return list(near)
    chosen = []
    for position in near:
        coordinates = mesh.coordinates(position)
        tensor = to_position % mesh.tensor
        if own is not None and mesh.coordinates(own)[:2] == coordinates[:2]:
            tensor = mesh.coordinates(own).tensor
        if coordinates.tensor == tensor:
            chosen.append(position)
    return chosen
