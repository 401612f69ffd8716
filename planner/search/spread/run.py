"""The spread search as the normal search runs it: when it is worth its time, and what it leaves behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.costs.price import ProblemCosts
from planner.plan.answer import Limit
from planner.problem.options import SearchOptions
from planner.search.spread.search import Spread, SpreadSearch, reach_of

__all__ = ["SpreadRun", "is_worthwhile"]

_MOST_ORDERS = 1024  # of node groups along a route, that the search of blocks looks through itself
_MOST_RANKS = 512  # of a cluster whose blocks are looked at one by one


@dataclass
class SpreadRun:
    """``best``: None before ``run``, and where it is not worthwhile or found nothing. ``bound_ns``: any schedule."""

    costs: ProblemCosts
    options: SearchOptions
    deadline_s: float  # of ``time.monotonic``
    stop: Callable[[], bool]
    best: Spread | None = None
    bound_ns: int | None = None
    was_ended: bool = False

    def run(self) -> None:
        """Look for the best spread plan until the deadline."""
        if not is_worthwhile(self.costs, self.options):
            return
        reach = reach_of(self.costs, self.options.constraints, self.options.target)
        search = SpreadSearch(self.costs, self.options.constraints, reach, self._goes_on)
        arms = search.arms()
        self.bound_ns = min((arm.bound_ns for arm in arms), default=None)
        self.best = search.best(arms)
        self.was_ended = search.was_ended

    def _goes_on(self) -> bool:
        return time.monotonic() < self.deadline_s and not self.stop()

    @property
    def stands_alone(self) -> bool:
        """The cluster is too large to look at its blocks one by one, and there is a plan."""
        return self.best is not None and self.costs.problem.cluster.num_ranks > _MOST_RANKS

    def limit_with(self, limit: Limit) -> Limit:
        """What ended the whole search: spread plans are of one family, so no optimum is proven beside them."""
        if self.bound_ns is None or limit != "optimal":
            return limit
        return "wall" if self.was_ended else "deterministic"


def is_worthwhile(costs: ProblemCosts, options: SearchOptions) -> bool:
    """Whether the search of single blocks would leave something out: tensor degrees, or orders of node groups."""
    families, profile = options.constraints.families, costs.problem.profiles[0]
    is_trained = all(layer.num_trained_params for layer in profile.layers)
    if profile.model.reads or not is_trained or (families and "1f1b" not in families):
        return False
    cluster, size = costs.problem.cluster, len(profile.layers)
    orders = len(cluster.node_groups) ** min(size, cluster.num_ranks)
    reach = reach_of(costs, options.constraints, options.target)
    return orders > _MOST_ORDERS or any(max(degrees, default=1) > 1 for degrees in reach.tensor.values())
