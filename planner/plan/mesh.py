"""How a stage is spread over the ranks of its group: coordinates, and what of samples and tokens each rank holds.

``cut(n, k, i) = [n*i // k, n*(i+1) // k)``: any n, sizes differ by at most one. Position j in a group's list is
``j = (a*context + b)*tensor + e``: data coordinate a, context b, tensor e; tensor runs fastest.
"""

from typing import Literal, NamedTuple

from planner.problem.contract import Contract, Count

__all__ = ["Border", "Coordinates", "Exchange", "Mesh", "Range", "Sharded", "cut", "intersect"]

Sharded = Literal["nothing", "optimizer", "gradients", "parameters"]
Exchange = Literal["none", "ring", "zigzag", "all_to_all"]
Border = Literal["whole", "sharded"]


class Range(NamedTuple):
    """Half-open: ``[first, end)``."""

    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first

    def shifted(self, by: int) -> "Range":
        return Range(self.first + by, self.end + by)


def cut(size: int, parts: int, index: int) -> Range:
    """Part ``index`` of ``parts`` of ``[0, size)``."""
    return Range(size * index // parts, size * (index + 1) // parts)


def intersect(one: Range, other: Range) -> Range:
    """What both hold; empty (``size`` 0) where they do not meet."""
    first = max(one.first, other.first)
    return Range(first, max(first, min(one.end, other.end)))


class Coordinates(NamedTuple):
    """Where a rank stands in the mesh of a stage."""

    data: int
    context: int
    tensor: int


class Mesh(Contract):
    """Data x context x tensor ranks; experts and state are cut inside data x context."""

    data: Count = 1
    context: Count = 1
    tensor: Count = 1
    experts: Count = 1  # expert weights are dealt over this many data x context ranks
    shards: Count = 1  # state is cut over this many data x context ranks
    sharded: Sharded = "nothing"
    exchange: Exchange = "none"  # attention between context ranks; zigzag = ring, balanced for causal masks
    border: Border = "whole"  # at borders a tensor rank holds all tokens of its context rank, or its part

    @property
    def num_ranks(self) -> int:
        return self.data * self.context * self.tensor

    def coordinates(self, position: int) -> Coordinates:
        """Of the rank at ``position`` in the group's list."""
        rest, tensor = divmod(position, self.tensor)
        data, context = divmod(rest, self.context)
        return Coordinates(data, context, tensor)

    def position(self, coordinates: Coordinates) -> int:
        return (coordinates.data * self.context + coordinates.context) * self.tensor + coordinates.tensor

    def samples(self, position: int, num_samples: int) -> Range:
        """The samples of a micro-batch, counted from its first, that the rank at ``position`` holds."""
        return cut(num_samples, self.data, self.coordinates(position).data)

    def work_tokens(self, position: int, tokens: Range) -> tuple[Range, ...]:
        """The tokens of a slice that the rank works on, ascending: one range, or two with zigzag."""
        context = self.coordinates(position).context
        if self.exchange != "zigzag":
            return (cut(tokens.size, self.context, context).shifted(tokens.first),)
        pieces = (context, 2 * self.context - 1 - context)
        return tuple(cut(tokens.size, 2 * self.context, piece).shifted(tokens.first) for piece in pieces)

    def border_tokens(self, position: int, tokens: Range) -> tuple[Range, ...]:
        """The tokens of a slice that the rank holds at a border: its part of the work tokens if sharded."""
        held = self.work_tokens(position, tokens)
        if self.border == "whole":
            return held
        tensor = self.coordinates(position).tensor
        return tuple(cut(piece.size, self.tensor, tensor).shifted(piece.first) for piece in held)
