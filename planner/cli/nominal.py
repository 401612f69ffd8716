"""Prices for a plan without a problem: enough to draw the order of its instructions, no prediction.

A layer's forward takes one unit for each token, backward two; messages, sums and updates take nothing.
"""

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.dependencies import Dependencies
from planner.plan.pieces import pieces
from planner.plan.plan import Plan, VisitShape
from planner.units import NS_PER_US

__all__ = ["nominal_prices"]


def nominal_prices(plan: Plan) -> PlanPrices:
    """Unit prices for every visit and border of ``plan``."""
    dependencies = Dependencies(plan)
    visits: dict[tuple[int, VisitShape], VisitPrice] = {}
    borders: dict[tuple[int, int, VisitShape], BorderPrice] = {}
    for number, batch in enumerate(plan.micro_batches):
        for part in range(batch.num_slices):
            shape = plan.visit_shape(number, part)
            for stage in plan.routes[batch.route]:
                visits[stage, shape] = _visit_price(plan, stage, shape)
                for source in dependencies.of_stage(number, stage).reads:
                    borders[source, stage, shape] = BorderPrice(0, 0, 0)
    return PlanPrices(
        visits=visits,
        borders=borders,
        sum_ns=(0,) * len(pieces(plan)),
        update_ns=(0,) * len(plan.stages),
        state_bytes=(0,) * len(plan.groups),
        limit_bytes=(0,) * len(plan.groups),
        costs="shrunk",
    )


def _visit_price(plan: Plan, stage: int, shape: VisitShape) -> VisitPrice:
    tokens = shape.samples * (shape.end_token - shape.first_token)
    forward_ns = max(1, len(plan.stages[stage].layers) * tokens * NS_PER_US // plan.stages[stage].mesh.num_ranks)
    backward_ns = 2 * forward_ns
    return VisitPrice(forward_ns, backward_ns, forward_ns, forward_ns, recompute_ns=forward_ns)
