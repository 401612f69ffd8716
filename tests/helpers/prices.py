"""Random prices for any plan."""

import random
from dataclasses import replace

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.plan import Plan
from tests.helpers.plans import make_prices

__all__ = ["random_prices"]


def random_prices(source: random.Random, plan: Plan, *, longest_ns: int = 10**9) -> PlanPrices:
    """A price of its own for everything, between a tenth of ``longest_ns`` and all of it.

    With the default no two moments meet by chance.
    """
    base = make_prices(plan, lambda stage: VisitPrice(0, 0, 0, 0), message_ns=lambda a, b: 1, message_bytes=1)

    def time_ns() -> int:
        return source.randint(longest_ns // 10, longest_ns)

    def size() -> int:
        return source.randint(0, 1000)

    return replace(
        base,
        visits={key: VisitPrice(*(time_ns() for _ in range(5)), *(size() for _ in range(4))) for key in base.visits},
        borders={
            key: BorderPrice(time_ns(), time_ns(), size()) if price.forward_ns else price
            for key, price in base.borders.items()
        },
        sum_ns=tuple(time_ns() for _ in base.sum_ns),
        update_ns=tuple(time_ns() for _ in base.update_ns),
        state_bytes=tuple(size() for _ in base.state_bytes),
    )
