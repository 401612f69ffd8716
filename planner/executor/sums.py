"""Gradients summed over all ranks that hold a weight, once each (docs/plan-contract.md section 5).

Inside a piece the weights are dealt into buckets by their exact holders and type; a bucket is one flat tensor whose
parts are the weights' ``grad``. The list places the sum of a piece at the same moment for all members, so every rank
sees one order.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from planner.executor.messages import ConnectionLostError
from planner.executor.team import Circle
from planner.executor.weights import Weight, WeightTable
from planner.plan.graph import LayerGraph
from planner.plan.pieces import Piece

__all__ = ["BucketPlan", "GradientSums", "bucket_plans"]


@dataclass(frozen=True)
class BucketPlan:
    """Weights of one piece with equal holders and type."""

    piece: int
    weights: tuple[Weight, ...]

    @property
    def holders(self) -> tuple[int, ...]:
        return self.weights[0].holders

    @property
    def num_elements(self) -> int:
        return sum(_num_elements(weight) for weight in self.weights)

    @property
    def text(self) -> str:
        """What both sides must agree on."""
        first = self.weights[0]
        return f"{first.name} and {len(self.weights) - 1} more, {self.num_elements} of {first.dtype} on {self.holders}"


def _num_elements(weight: Weight) -> int:
    return torch.Size(weight.shape).numel()


def bucket_plans(pieces: tuple[Piece, ...], table: WeightTable, graph: LayerGraph) -> tuple[BucketPlan, ...]:
    """All buckets that need a sum, in the one order that all ranks follow."""
    piece_of = {weight: number for number, piece in enumerate(pieces) for weight in piece.weights}
    dealt: dict[tuple[int, tuple[int, ...], str], list[Weight]] = defaultdict(list)
    for weight in table.weights.values():
        if pieces and weight.trained and len(weight.holders) > 1:  # no pieces: gradients stay where they are
            piece = piece_of[graph.weight_of[weight.layers[0]]]
            dealt[piece, weight.holders, str(weight.dtype)].append(weight)
    return tuple(BucketPlan(piece, tuple(weights)) for (piece, _, _), weights in sorted(dealt.items(), key=_key))


def _key(item: tuple[tuple[int, tuple[int, ...], str], list[Weight]]) -> tuple[int, tuple[int, ...], str]:
    return item[0]


@dataclass
class _Bucket:
    flat: Tensor
    circle: Circle
    parts: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)


class GradientSums:
    """The buckets of one rank, and the sums that are under way."""

    def __init__(
        self,
        plans: tuple[BucketPlan, ...],
        parameters: dict[str, nn.Parameter],
        *,
        circles: dict[tuple[int, ...], Circle],
    ) -> None:
        self._alone = [parameter for parameter in parameters.values() if parameter.requires_grad]
        self._buckets: dict[int, list[_Bucket]] = defaultdict(list)
        self._works: list[dist.Work] = []
        for plan in plans:
            if plan.weights[0].name in parameters:
                self._buckets[plan.piece].append(self._bucket(plan, parameters, circles[plan.holders]))

    def _bucket(self, plan: BucketPlan, parameters: dict[str, nn.Parameter], circle: Circle) -> _Bucket:
        first = parameters[plan.weights[0].name]
        flat = torch.zeros(plan.num_elements, dtype=first.dtype, device=first.device)
        bucket, begin = _Bucket(flat, circle), 0
        for weight in plan.weights:
            size = _num_elements(weight)
            parameter = parameters[weight.name]
            bucket.parts.append((parameter, flat[begin : begin + size].view(weight.shape)))
            self._alone = [other for other in self._alone if other is not parameter]
            begin += size
        return bucket

    def begin(self) -> None:
        """Gradients of the step before are gone; shared ones live in their bucket from here on."""
        for parameter in self._alone:
            parameter.grad = None
        for buckets in self._buckets.values():
            for bucket in buckets:
                bucket.flat.zero_()
                for parameter, part in bucket.parts:
                    if parameter.grad is not part:
                        parameter.grad = part

    def go_on(self) -> None:
        """Gradients that no update has taken yet stay, and move into their bucket."""
        for buckets in self._buckets.values():
            for bucket in buckets:
                for parameter, part in bucket.parts:
                    if parameter.grad is None:
                        part.zero_()
                    elif parameter.grad is not part:
                        part.copy_(parameter.grad)
                    parameter.grad = part

    def start(self, piece: int) -> None:
        """The piece's gradients are ready on this rank."""
        for bucket in self._buckets.get(piece, ()):
            try:
                work = bucket.circle.allreduce([bucket.flat])
            except RuntimeError as error:
                raise ConnectionLostError(None, error) from error
            self._works.append(work)

    def finish(self) -> None:
        """All sums are done."""
        try:
            for work in self._works:
                work.wait()
        except RuntimeError as error:
            raise ConnectionLostError(None, error) from error
        finally:
            self._works.clear()
