"""What would have to give so that a problem without a plan has one; every relaxation that is named was tried.

Tried, the cheapest for the user first: one constraint dropped, or all of them; more memory on every device, the
smallest amount that a bisection finds; more nodes of one node group. Trying means searching until the first plan.
"""

from collections.abc import Callable, Iterator

from planner.errors import PriceError, ProblemError, SolverError
from planner.plan.answer import Reason, Relaxation
from planner.problem.cluster import MOST_RANKS, Cluster, NodeGroup
from planner.problem.options import Constraints, SearchOptions
from planner.problem.problem import Problem
from planner.units import bytes_text, counted

__all__ = ["HasPlan", "relaxations"]

HasPlan = Callable[[Problem, SearchOptions], bool]

_MOST_TRIES = 24  # of amounts of memory
_CLOSE = 1_000  # the amount of memory is found to a thousandth
_LARGEST_BYTES = 2**52
_NODE_FACTORS = (2, 4)
_RELAXED = (
    "num_stages",
    "most_stages",
    "families",
    "recompute",
    "micro_batch_sizes",
    "data_degrees",
    "pins",
    "unused_kinds",
)


def relaxations(
    problem: Problem, options: SearchOptions, why: tuple[Reason, ...], has_plan: HasPlan
) -> tuple[Relaxation, ...]:
    """``why``: the reasons that were found; their missing bytes are where the bisection begins."""

    def works(changed: Problem, changed_options: SearchOptions) -> bool:
        try:
            return has_plan(changed, changed_options)
        except (PriceError, ProblemError, SolverError):  # no price, no link, no time: not known to work
            return False

    found = list(_constraints(problem, options, works))
    found += _memory(problem, options, why, works)
    found += _nodes(problem, options, works)
    return tuple(found)


def _constraints(problem: Problem, options: SearchOptions, works: HasPlan) -> Iterator[Relaxation]:
    free, stated = Constraints(), options.constraints
    names = [name for name in _RELAXED if getattr(stated, name) != getattr(free, name)]
    any_works = False
    for name in names:
        looser = stated.model_copy(update={name: getattr(free, name)})
        if works(problem, options.model_copy(update={"constraints": looser})):
            any_works = True
            message = f"without the constraint {name} there is a plan"
            yield Relaxation(code="constraint", message=message, pointer=f"/constraints/{name}")
    if len(names) > 1 and not any_works and works(problem, options.model_copy(update={"constraints": free})):
        message = f"without the constraints {', '.join(names)} together there is a plan"
        yield Relaxation(code="constraint", message=message, pointer="/constraints")


def _memory(problem: Problem, options: SearchOptions, why: tuple[Reason, ...], works: HasPlan) -> Iterator[Relaxation]:
    """The smallest amount, the same on every device, to a thousandth of it."""
    short = [(reason.need_bytes or 0) - (reason.have_bytes or 0) for reason in why if reason.code == "memory"]
    if not short:
        return

    def enough(more_bytes: int) -> bool:
        return works(_with_memory(problem, more_bytes), options)

    too_little, amount, tries = 0, max(1, *short), 2
    if not enough(amount - 1):  # several stages a group may need less than the reason says
        too_little = amount - 1
        while not enough(amount):
            too_little, amount, tries = amount, amount + max(1, (amount - too_little) * 2, amount // 64), tries + 1
            if tries > _MOST_TRIES or amount > _LARGEST_BYTES:
                return
    while amount - too_little > max(1, amount // _CLOSE) and tries < _MOST_TRIES:
        middle, tries = (too_little + amount) // 2, tries + 1
        too_little, amount = (too_little, middle) if enough(middle) else (middle, amount)
    message = f"with {bytes_text(amount)} ({amount} bytes) more on every device there is a plan"
    yield Relaxation(code="memory", message=message, pointer="/cluster/node_groups", more_bytes=amount)


def _nodes(problem: Problem, options: SearchOptions, works: HasPlan) -> Iterator[Relaxation]:
    for number, group in enumerate(problem.cluster.node_groups):
        for nodes in dict.fromkeys((group.num_nodes + 1, *(group.num_nodes * factor for factor in _NODE_FACTORS))):
            cluster = _with_group(problem.cluster, number, group.model_copy(update={"num_nodes": nodes}))
            if cluster.num_ranks <= MOST_RANKS and works(_with_cluster(problem, cluster), options):
                message = (
                    f"with {counted(nodes, 'node')} of {group.name!r} instead of {group.num_nodes} there is a plan"
                )
                pointer = f"/cluster/node_groups/{number}/num_nodes"
                yield Relaxation(code="nodes", message=message, pointer=pointer, device_kind=group.device_kind)
                break


def _with_memory(problem: Problem, more_bytes: int) -> Problem:
    cluster = problem.cluster
    for number, group in enumerate(cluster.node_groups):
        larger = group.model_copy(update={"usable_bytes": group.usable_bytes + more_bytes})
        cluster = _with_group(cluster, number, larger)
    return _with_cluster(problem, cluster)


def _with_group(cluster: Cluster, number: int, group: NodeGroup) -> Cluster:
    groups = list(cluster.node_groups)
    groups[number] = group
    return cluster.model_copy(update={"node_groups": tuple(groups)})


def _with_cluster(problem: Problem, cluster: Cluster) -> Problem:
    return Problem(problem.profiles, cluster, problem.workload)
