"""What a layer costs on ``t`` tensor ranks when its profile was measured on one: a stated rule, not a measurement.

Rule (Megatron's cut of a transformer, Korthikanti et al. 2022; cost model, sections 4.2 and 5):

* time: every phase takes 1/t, and the sums over the tensor ranks come on top, one after the other. A block sums its
  output twice in the forward and its input's gradient twice in the backward. Cut in three, ``pre`` sums once in the
  backward, ``attention`` never, ``post`` twice in the forward and once in the backward. An embedding sums its output, a
  head its input's gradient and, for the loss, three numbers of four bytes a token in the forward. In a split backward
  the sums belong to I.
* kept bytes, and those above them: 1/t where the border is sharded; where it is whole, 10 of 34 parts stay on every
  rank (Table 2 there: s b h (10 + 24/t), without scores).
* input and output: 1/t where the border is sharded, the same where it is whole. State: ``layer_state_bytes``.

It errs on the fast side where smaller products run less efficiently; ``scaled:tensor-t`` says that the rule was used. A
layer of the kind ``other`` has no rule.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from planner.costs.layers import LayerPrice
from planner.problem.profile import LayerKind

__all__ = ["TENSOR_KINDS", "SumBytes", "scaled_to_tensor", "tensor_provenance", "tensor_sums"]

TENSOR_KINDS: frozenset[LayerKind] = frozenset({"block", "pre", "attention", "post", "embedding", "head"})
_WHOLE_PARTS, _CUT_PARTS = 10, 24  # of what a block keeps: on every rank, and cut over the tensor ranks
_LOSS_BYTES_PER_TOKEN = 3 * 4  # largest logit, sum of exponentials, logit of the label


class SumBytes(NamedTuple):
    """Sizes of the sums over the tensor ranks in one visit of a layer."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]


def tensor_provenance(tensor: int) -> str:
    """The tag of a price that the rule gave."""
    return f"scaled:tensor-{tensor}"


def tensor_sums(kind: LayerKind, price: LayerPrice, *, num_tokens: int) -> SumBytes:
    """What a layer of one of ``TENSOR_KINDS`` sums; ``price`` of one rank, ``num_tokens`` of all its samples."""
    given, back = price.output_bytes, price.input_bytes
    rules: dict[LayerKind, SumBytes] = {
        "block": SumBytes((given, given), (back, back)),
        "pre": SumBytes((), (back,)),
        "attention": SumBytes((), ()),
        "post": SumBytes((given, given), (given,)),
        "embedding": SumBytes((given,), ()),
        "head": SumBytes((num_tokens * _LOSS_BYTES_PER_TOKEN,), (back,)),
    }
    return rules[kind]


def scaled_to_tensor(
    price: LayerPrice, sums: SumBytes, *, tensor: int, border: str, sum_ns: Callable[[int], int]
) -> LayerPrice:
    """``price``, of one rank, for each of ``tensor`` ranks; ``border`` as in ``Mesh``.

    ``sum_ns``: how long the sum of so many bytes over the tensor ranks takes.
    """
    if tensor == 1:
        return price
    forward_ns, backward_ns = (sum(sum_ns(size) for size in sizes) for sizes in sums)
    if not price.backward_ns:
        backward_ns = 0  # frozen, and nothing before it wants a gradient
    kept = Fraction(1, tensor)
    if border == "whole":
        kept = Fraction(_WHOLE_PARTS * tensor + _CUT_PARTS, (_WHOLE_PARTS + _CUT_PARTS) * tensor)
    at_border = Fraction(1) if border == "whole" else Fraction(1, tensor)
    input_ns, weight_ns = price.backward_input_ns, price.backward_weight_ns
    return LayerPrice(
        forward_ns=-(-price.forward_ns // tensor) + forward_ns,
        backward_ns=-(-price.backward_ns // tensor) + backward_ns,
        backward_input_ns=None if input_ns is None else -(-input_ns // tensor) + backward_ns,
        backward_weight_ns=None if weight_ns is None else -(-weight_ns // tensor),
        saved_bytes=_up(price.saved_bytes * kept),
        input_bytes=_up(price.input_bytes * at_border),
        output_bytes=_up(price.output_bytes * at_border),
        forward_transient_bytes=_up(price.forward_transient_bytes * kept),
        backward_transient_bytes=_up(price.backward_transient_bytes * kept),
        split_forward_ns=-(-price.split_forward_ns // tensor) + forward_ns,
        split_saved_bytes=_up(price.split_saved_bytes * kept),
        split_transient_bytes=_up(price.split_transient_bytes * kept),
        provenance=tensor_provenance(tensor),
    )


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
