"""The step of a 1F1B pipeline by formula, messages included: what a cut is worth before it is simulated.

Two micro-batches follow each other at the longest mean over neighbouring stages: k stages in a row form a cycle of
their work and the messages between them, which brings k micro-batches forward (each stage starts one more only when
one is back). ``step = (m-1) x longest mean + way of one micro-batch + sums and update``. The engine's chains know the
rows of stages that reach the end (exact there, a relaxation on the whole), or count both messages on every stage.
"""

from planner.search.partition import Cut
from planner.search.spread.arms import Arm

__all__ = ["model_step_ns"]


def model_step_ns(arm: Arm, cut: Cut) -> int:
    """Of a cut of the arm's chain."""
    chain, m = arm.chain, arm.degrees.num_micro_batches
    places = [(pick.option, pick.end_layer - pick.first_layer - 1, pick.first_layer) for pick in cut.stages]
    stages_ns = [int(chain.stage_ns[place]) for place in places]
    ways_ns = [int(chain.way_ns[place]) for place in places]
    period_ns = max(stages_ns)
    for first in range(len(places)):
        row_ns = stages_ns[first]
        for last in range(first + 1, min(len(places), first + m - 1)):
            row_ns += ways_ns[last]
            period_ns = max(period_ns, -(-row_ns // (last - first + 1)))
    return (m - 1) * period_ns + sum(ways_ns) + chain.largest_reduction_ns(cut)
