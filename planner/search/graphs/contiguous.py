"""Contiguous parts of a layer graph, exact and at any moment: capped walks over all down-sets.

A first plan comes from the down-sets of a few topological orders alone. Then the cap rises from the lower bound: a walk
that ends empty lifts the bound above its cap, a walk that finds a plan has found the best. Layers that never part are
merged first.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import networkx as nx

from planner.errors import Fault, InfeasibleError
from planner.plan.answer import Limit
from planner.search.graphs.down_sets import DownSets, down_sets, prefixes
from planner.search.graphs.loads import KindLoads, kind_speeds, least_work_ns
from planner.search.graphs.merged import Merged, merge_for_contiguous, with_leaves_joined
from planner.search.graphs.plan import GraphAnswer, GraphPlan, plan_of
from planner.search.graphs.problem import GraphProblem
from planner.search.graphs.walk import NO_LOAD, Chain, StagePrices, Stopped, best_chain

__all__ = [
    "MOST_DOWN_SETS",
    "Certified",
    "certified_chains",
    "contiguous_answers",
    "first_contiguous",
    "least_load_ns",
    "never",
    "nothing_fits",
]

MOST_DOWN_SETS = 200_000
_MOST_VALUES = 40_000_000  # of a table: some 700 MB
_MOST_MEMBERS = 20_000_000  # vertices x down-sets: some 500 MB while the prices are made
_FIRST_STEP = 0.01  # of the bound: how far the first cap lies above it; every next one twice as far
_LAST_STEP = 1.0  # from here on no cap: often nothing fits at all


def never() -> bool:
    """Nobody asks to stop."""
    return False


def contiguous_answers(
    problem: GraphProblem, *, stop: Callable[[], bool] = never, most_down_sets: int = MOST_DOWN_SETS
) -> Iterator[GraphAnswer]:
    """Answers, each at least as good as the one before; the last says what ended the search.

    With more than ``most_down_sets`` down-sets the answer is that of a few topological orders, and the bound that of
    the work: limit ``deterministic``. Raises ``InfeasibleError`` where no contiguous plan fits.
    """
    merged = with_leaves_joined(merge_for_contiguous(problem))
    first, low_ns, work_ns = _first_chain(merged), least_load_ns(merged), least_work_ns(merged)
    yield GraphAnswer(_plan(merged, first), low_ns)
    most = min(most_down_sets, _MOST_VALUES // num_vectors(problem), _MOST_MEMBERS // len(merged.parts))
    sets = down_sets(merged.before, work_ns, most=most)
    if sets is None:
        yield GraphAnswer(_plan(merged, first), low_ns, "deterministic")
        return
    for found in certified_chains(sets, KindLoads(merged, sets), first=first, low_ns=low_ns, stop=stop):
        if found.chain is None and found.limit == "optimal":
            raise InfeasibleError((nothing_fits(problem, "contiguous parts"),))
        yield GraphAnswer(_plan(merged, found.chain), found.bound_ns, found.limit)


def first_contiguous(problem: GraphProblem) -> GraphPlan | None:
    """The best whose parts follow one of a few topological orders; None where none of them fits."""
    merged = with_leaves_joined(merge_for_contiguous(problem))
    return _plan(merged, _first_chain(merged))


def _first_chain(merged: Merged) -> Chain | None:
    few = prefixes(_orders(merged), least_work_ns(merged))
    if few.num_sets * num_vectors(merged.problem) > _MOST_VALUES:
        return None
    return best_chain(few, KindLoads(merged, few), cap_ns=NO_LOAD - 1, stop=never)


def num_vectors(problem: GraphProblem) -> int:
    """Ways to have used some of the devices; none of a kind is ever more than there are layers."""
    return math.prod(min(kind.num_devices, len(problem.layers)) + 1 for kind in problem.kinds)


class Certified(NamedTuple):
    """The best chain so far and what no chain can beat."""

    chain: Chain | None
    bound_ns: int
    limit: Limit | None


def certified_chains(
    sets: DownSets, prices: StagePrices, *, first: Chain | None, low_ns: int, stop: Callable[[], bool]
) -> Iterator[Certified]:
    """Rising caps from ``low_ns``, a proven bound, until the best chain is known; ``first``: one known before."""
    step = _FIRST_STEP
    try:
        while first is None or low_ns < first.value_ns:
            highest_ns = NO_LOAD - 1 if first is None else first.value_ns - 1
            cap_ns = min(highest_ns, math.floor(low_ns * (1 + step))) if step < _LAST_STEP else highest_ns
            found = best_chain(sets, prices, cap_ns=cap_ns, stop=stop)
            if found is not None:
                first, low_ns = found, found.value_ns
            elif cap_ns == highest_ns:
                low_ns = NO_LOAD if first is None else first.value_ns
                break
            else:
                low_ns, step = cap_ns + 1, 2 * step
                yield Certified(first, low_ns, None)
    except Stopped:
        yield Certified(first, low_ns, "wall")
        return
    yield Certified(first, low_ns, "optimal")


def least_load_ns(merged: Merged) -> int:
    """No plan has a smaller largest load: work over speed of all devices, and the longest vertex at its best."""
    work_ns = least_work_ns(merged)
    speed = sum(kind.num_devices * speed for kind, speed in zip(merged.problem.kinds, kind_speeds(merged), strict=True))
    shared_ns = math.floor(sum(work_ns) / speed * (1 - 1e-12)) if speed else 0
    return max(shared_ns, *work_ns)


def _orders(merged: Merged) -> list[list[int]]:
    """The vertices' own order, and depth first both ways: what belongs to one branch stays near."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(merged.parts)))
    graph.add_edges_from(merged.before)
    forward = list(reversed(list(nx.dfs_postorder_nodes(graph))))
    backward = list(nx.dfs_postorder_nodes(graph.reverse(copy=False)))
    return [list(range(len(merged.parts))), forward, backward]


def _plan(merged: Merged, chain: Chain | None) -> GraphPlan | None:
    if chain is None:
        return None
    plan = plan_of(merged.problem, [(taken.kind, merged.layers_of(taken.vertices)) for taken in chain.taken])
    assert plan.value_ns == chain.value_ns, f"loads add up to {plan.value_ns}, the walk said {chain.value_ns}"
    return plan


def nothing_fits(problem: GraphProblem, which: str) -> Fault:
    """Every class of layers fits somewhere, all of them together do not."""
    need_bytes = sum(layer.memory_bytes for layer in problem.layers)
    limited = [kind for kind in problem.kinds if kind.memory_bytes is not None]
    have_bytes = sum((kind.memory_bytes or 0) * kind.num_devices for kind in limited)
    message = (
        f"all layers need {need_bytes} bytes, {sum(kind.num_devices for kind in limited)} devices have {have_bytes}"
    )
    return Fault("memory", "/layers", f"{message}; no {which} of them fit")
