"""The prices of one plan, as plain numbers: what the simulator, the memory walk and the search agree on.

``planner/costs/price.py`` makes them from a problem; tests make them by hand. Prices are of the *fullest or slowest
rank* of a group, whole nanoseconds and whole bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from planner.plan.plan import VisitShape

__all__ = ["BorderPrice", "PlanPrices", "VisitPrice"]


class VisitPrice(NamedTuple):
    """One visit of a given shape on one stage.

    ``kept_bytes`` lives from F to the visit's last backward (without a backward: to the end of F). What recompute
    drops is not in it: ``restored_bytes`` are back from R on, or inside the first backward where there is no R.
    ``forward_transient_bytes`` and ``backward_transient_bytes`` live while that instruction runs.
    ``backward_ns`` of a stage that recomputes without R contains the recompute.
    """

    forward_ns: int
    backward_ns: int
    backward_input_ns: int
    backward_weight_ns: int
    recompute_ns: int = 0
    kept_bytes: int = 0
    restored_bytes: int = 0
    forward_transient_bytes: int = 0
    backward_transient_bytes: int = 0


class BorderPrice(NamedTuple):
    """What crosses from one stage to another for a visit of a given shape; 0 ns and 0 bytes for a hand-over.

    ``message_bytes`` is what the fullest receiver holds, and sends back as gradient.
    """

    forward_ns: int
    backward_ns: int
    message_bytes: int


@dataclass(frozen=True)
class PlanPrices:
    """Everything that a plan costs."""

    visits: Mapping[tuple[int, VisitShape], VisitPrice]  # (stage, shape)
    borders: Mapping[tuple[int, int, VisitShape], BorderPrice]  # (sender stage, receiver stage, shape) of activations
    sum_ns: tuple[int, ...]  # of each piece, in the order of planner.plan.pieces.pieces
    update_ns: tuple[int, ...]  # of each stage; 0 for a stage without an update
    state_bytes: tuple[int, ...]  # of each group: weights, gradients, optimizer, buffers; shared weights once
    limit_bytes: tuple[int, ...]  # of each group: what one rank may use
    costs: str  # worst provenance of the parts
