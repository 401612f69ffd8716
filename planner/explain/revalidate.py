"""Keep a plan under new facts, or change it: the step as it is now, the best plan at hand, and what the move costs.

Nothing is searched here. The plans at hand are those near the plan (``planner.explain.changes``) and the ones that the
caller found. A plan that cannot run any more is to be replaced whatever it costs; else the gain of a step must reach
``smallest_gain`` and the move must have paid before the job ends. A plan that is slower than it stated by more than
``MOST_DRIFT``, with nothing better at hand, is worth a search.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.costs.price import ProblemCosts
from planner.errors import PriceError
from planner.explain.documents import Move, Revalidation
from planner.explain.explain import near_plans, require_same_work
from planner.explain.moving import move_between
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.simulate.simulate import require_in_range, simulate
from planner.units import bytes_text, counted, time_text

__all__ = ["MOST_DRIFT", "SMALLEST_GAIN", "STEPS_LEFT", "Thresholds", "revalidate"]

SMALLEST_GAIN = 0.05  # of the step; below it a change is not worth the risk
STEPS_LEFT = 10_000  # of the job, over which a move may pay
MOST_DRIFT = 0.1  # slower than stated by more than this: search


@dataclass(frozen=True)
class Thresholds:
    """When a change is worth it."""

    smallest_gain: float = SMALLEST_GAIN
    steps_left: int = STEPS_LEFT


class _Now(NamedTuple):
    """The plan under the new facts: its step, or why it has none."""

    step_ns: int | None
    code: str
    reason: str


class _Better(NamedTuple):
    """The best plan at hand."""

    plan: Plan
    step_ns: int


def revalidate(
    plan: Plan, problem: Problem, *, found: Sequence[Plan] = (), thresholds: Thresholds = Thresholds()
) -> Revalidation:
    """``problem``: the new facts. ``found``: other plans for them.

    Raises ``PlanError`` for a plan of another model or of other work: its step says nothing about this one.
    """
    require_same_work(plan, problem)
    for number, other in enumerate(found):
        require_same_work(other, problem, f"/plans/{number}")
    costs = ProblemCosts(problem)
    now = _now(plan, costs)
    better = _best_at_hand(plan, costs, found)
    if better is not None and now.step_ns is not None and better.step_ns >= now.step_ns:
        better = None
    return _verdict(plan, problem, now=now, better=better, thresholds=thresholds)


def _now(plan: Plan, costs: ProblemCosts) -> _Now:
    missing = _missing_nodes(plan, costs.problem)
    if missing:
        return _Now(None, "missing_nodes", missing)
    try:
        prices = costs.price(plan)
    except PriceError as error:
        return _Now(None, "not_priced", error.message)
    timeline = simulate(plan, prices)
    require_in_range(timeline)
    for group, (need, have) in enumerate(zip(timeline.peak_bytes or (), prices.limit_bytes, strict=False)):
        if need > have:
            return _Now(None, "memory", f"group {group} needs {bytes_text(need)}, it has {bytes_text(have)}")
    return _Now(timeline.step_ns, "", "")


def _missing_nodes(plan: Plan, problem: Problem) -> str:
    """Which nodes the cluster does not have any more; empty where it has all."""
    have = {group.name: group for group in problem.cluster.node_groups}
    for name, number in Counter(node.node_group for node in plan.nodes).items():
        group = have.get(name)
        if group is None:
            return f"the cluster has no node group {name!r}, the plan uses {counted(number, 'node')} of it"
        if group.num_nodes < number:
            return f"node group {name!r} has {counted(group.num_nodes, 'node')}, the plan uses {number}"
        most = max(node.num_ranks for node in plan.nodes if node.node_group == name)
        if group.ranks_per_node < most:
            return f"nodes of {name!r} have {counted(group.ranks_per_node, 'rank')}, the plan uses {most}"
    return ""


def _best_at_hand(plan: Plan, costs: ProblemCosts, found: Sequence[Plan]) -> _Better | None:
    fitting: list[_Better] = []
    if not _missing_nodes(plan, costs.problem):
        fitting += [_Better(near.plan, near.step_ns) for near in near_plans(plan, costs, []) if near.fits()]
    for other in found:
        state = _now(other, costs)
        if state.step_ns is not None and other.digest != plan.digest:
            fitting.append(_Better(other, state.step_ns))
    return min(fitting, key=lambda better: (better.step_ns, better.plan.digest), default=None)


def _verdict(
    plan: Plan, problem: Problem, *, now: _Now, better: _Better | None, thresholds: Thresholds
) -> Revalidation:
    move = None if better is None else move_between(plan, better.plan, problem)
    gain = None if better is None or not now.step_ns else (now.step_ns - better.step_ns) / now.step_ns
    pays = _pays_after(now, better, move)
    code = _code(plan, now, gain=gain, pays=pays, thresholds=thresholds)
    stated = plan.prediction.step_ns if plan.prediction is not None else None
    fields: dict[str, Any] = {
        "schema_version": "revalidation/1",
        "plan": plan.digest,
        "problem": problem.digest,
        "verdict": "keep" if code in ("fits_best", "small_gain", "late_gain") else "replan",
        "code": code,
        "step_ns": now.step_ns,
        "stated_step_ns": stated,
        "new_plan": None if better is None else better.plan,
        "new_step_ns": None if better is None else better.step_ns,
        "gain": gain,
        "move": move,
        "even_after_steps": pays,
        "smallest_gain": thresholds.smallest_gain,
        "steps_left": thresholds.steps_left,
    }
    return Revalidation(message=_message(code, now, fields), **fields)


def _pays_after(now: _Now, better: _Better | None, move: Move | None) -> int | None:
    """Steps after which the time of the move is won back."""
    if better is None or move is None or now.step_ns is None:
        return None
    return -(-move.moving_ns // (now.step_ns - better.step_ns))


def _code(plan: Plan, now: _Now, *, gain: float | None, pays: int | None, thresholds: Thresholds) -> str:
    if now.step_ns is None:
        return now.code
    if gain is not None and pays is not None and gain >= thresholds.smallest_gain:
        return "gain" if pays <= thresholds.steps_left else "late_gain"
    if plan.prediction is not None and now.step_ns > (1 + MOST_DRIFT) * plan.prediction.step_ns:
        return "slower"
    return "fits_best" if gain is None else "small_gain"


def _message(code: str, now: _Now, fields: dict[str, Any]) -> str:
    if now.step_ns is None:
        return f"the plan cannot run as it is: {now.reason}"
    step, gain = time_text(now.step_ns), fields["gain"]
    if code == "slower":
        stated = time_text(fields["stated_step_ns"])
        return f"the step takes {step}, the plan stated {stated}: more than {MOST_DRIFT:.0%} slower, search again"
    if code == "fits_best":
        return f"the step takes {step}; no plan at hand is shorter"
    new, pays = time_text(fields["new_step_ns"]), counted(fields["even_after_steps"], "step")
    moved = bytes_text(fields["move"].moved_bytes)
    text = f"the step takes {step}, another plan's {new} ({gain:.1%} less); moving {moved} pays after {pays}"
    if code == "small_gain":
        return f"{text}; a change is worth it from {fields['smallest_gain']:.1%}"
    return f"{text} of {fields['steps_left']}"
