"""What binds the step of a plan, what other conditions would give, and the plans near it.

Everything is simulated: the numbers of an explanation are those that ``planner simulate`` gives for the changed plan or
the changed problem. Only the sentences are made here.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.check.problem import work_fault
from planner.costs.layers import RankShape
from planner.costs.price import ProblemCosts
from planner.costs.prices import PlanPrices
from planner.errors import PlanError, PriceError
from planner.explain.changes import ChangedPlan, conditions, plans_near
from planner.explain.critical import critical_path
from planner.explain.documents import Alternative, Binding, Explanation, Share, WhatIf
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.simulate.simulate import require_in_range, simulate
from planner.simulate.timeline import Timeline
from planner.units import bytes_text, counted, time_text

__all__ = ["NearPlan", "explain", "near_plans", "require_same_work"]

_SMALL = 0.01  # shares of the step that are not worth a sentence
_UNEVEN = 1.05  # a stage this much above the mean
_FULL = 0.9  # of the memory
_MORE_MEMORY = 1.1
_MOST_ALTERNATIVES = 8


@dataclass(frozen=True)
class NearPlan:
    """A plan near another one, priced and simulated."""

    change: str
    plan: Plan
    step_ns: int
    peak_bytes: tuple[int, ...]
    limit_bytes: tuple[int, ...]

    @property
    def short_bytes(self) -> int:
        """By how much the worst group exceeds its limit."""
        return max(0, *(peak - limit for peak, limit in zip(self.peak_bytes, self.limit_bytes, strict=True)))

    def fits(self, factor: float = 1.0) -> bool:
        return all(peak <= limit * factor for peak, limit in zip(self.peak_bytes, self.limit_bytes, strict=True))


@dataclass(frozen=True)
class _Case:
    """A plan with all that is known of it."""

    plan: Plan
    costs: ProblemCosts
    prices: PlanPrices
    timeline: Timeline

    @property
    def step_ns(self) -> int:
        return self.timeline.step_ns


def explain(plan: Plan, problem: Problem) -> Explanation:
    """Raises ``PriceError`` (no price, or a step out of range), ``PlanError`` (deadlock, or other work)."""
    require_same_work(plan, problem)
    costs = ProblemCosts(problem)
    prices = costs.price(plan)
    case = _Case(plan, costs, prices, simulate(plan, prices))
    require_in_range(case.timeline)
    path = critical_path(plan, prices)
    refused: list[str] = []
    near = list(near_plans(plan, costs, refused))
    return Explanation(
        schema_version="explanation/1",
        plan=plan.digest,
        problem=problem.digest,
        step_ns=case.step_ns,
        bubble=case.timeline.bubble,
        critical_path=path,
        bindings=tuple(sorted(_bindings(case, path), key=lambda found: -(found.cost_ns or 0))),
        what_if=tuple(_what_if(case, near)),
        alternatives=tuple(_alternative(case, found) for found in _best(near)[:_MOST_ALTERNATIVES]),
        not_priced=tuple(refused),
    )


def require_same_work(plan: Plan, problem: Problem, place: str = "") -> None:
    """Raises ``PlanError`` for another model, or where the workload asks for other samples, tokens or precision."""
    if plan.graph.model != problem.profiles[0].model.fingerprint:
        message = "the plan and the profiles are of different models"
        raise PlanError(message, code="model_mismatch", pointer=f"{place}/graph/model")
    fault = work_fault(plan, problem)
    if fault is not None:
        message = f"the plan does other work than the workload asks for: {fault.message}"
        raise PlanError(message, code=fault.code, pointer=f"{place}{fault.pointer}")


def near_plans(plan: Plan, costs: ProblemCosts, refused: list[str]) -> Iterator[NearPlan]:
    """Plans near ``plan``, simulated; what the profiles cannot price goes to ``refused``."""
    for change, changed in plans_near(plan, costs.problem):
        try:
            yield _simulated(ChangedPlan(change, changed), costs)
        except PriceError as error:
            refused.append(f"{change}: {error.message}"[:1024])


def _simulated(changed: ChangedPlan, costs: ProblemCosts) -> NearPlan:
    prices = costs.price(changed.plan)
    timeline = simulate(changed.plan, prices)
    require_in_range(timeline)
    return NearPlan(
        changed.change,
        changed.plan,
        timeline.step_ns,
        timeline.peak_bytes or (0,) * len(prices.limit_bytes),
        prices.limit_bytes,
    )


def _best(near: Sequence[NearPlan]) -> list[NearPlan]:
    """Those that fit first, then the shorter step."""
    return sorted(near, key=lambda found: (found.short_bytes > 0, found.step_ns, found.change))


def _alternative(case: _Case, found: NearPlan) -> Alternative:
    gain = _gain(case, found.step_ns)
    return Alternative(change=found.change, step_ns=found.step_ns, gain=gain, short_bytes=found.short_bytes)


def _gain(case: _Case, step_ns: int) -> float:
    return (case.step_ns - step_ns) / case.step_ns if case.step_ns else 0.0


def _what_if(case: _Case, near: Sequence[NearPlan]) -> Iterator[WhatIf]:
    for change, problem in conditions(case.costs.problem):
        step_ns = simulate(case.plan, ProblemCosts(problem).price(case.plan)).step_ns
        yield WhatIf(change=change, step_ns=step_ns, gain=_gain(case, step_ns))
    yield _with_more_memory(case, near)


def _with_more_memory(case: _Case, near: Sequence[NearPlan]) -> WhatIf:
    """Only what today's memory forbids counts, against the best of what it allows."""
    words = "every device has 10 % more memory"
    allowed_ns = min([case.step_ns, *(found.step_ns for found in near if found.fits())])
    freed = [found for found in near if found.fits(_MORE_MEMORY) and found.step_ns < allowed_ns]
    best = min(freed, key=lambda found: found.step_ns, default=None)
    if best is None:
        return WhatIf(change=f"{words}: no plan near this one needs it", step_ns=case.step_ns, gain=0.0)
    gain = (allowed_ns - best.step_ns) / case.step_ns
    return WhatIf(change=f"{words}: {best.change}", step_ns=best.step_ns, gain=gain)


def _bindings(case: _Case, path: Sequence[Share]) -> Iterator[Binding]:
    yield from _compute(case, path)
    yield from _heavy_layer(case)
    yield from _links(case, path)
    yield from _few_micro_batches(case)
    yield from _sums(case, path)
    yield from _memory(case)


def _visit_ns(case: _Case, stage: int) -> int:
    """All compute of one micro-batch of the first shape on a stage, forward and backward."""
    shape = next(
        case.plan.visit_shape(number, 0)
        for number, batch in enumerate(case.plan.micro_batches)
        if stage in case.plan.route_members[batch.route]
    )
    price = case.prices.visits[stage, shape]
    return price.forward_ns + price.backward_ns


def _group_visit_ns(case: _Case, group: int) -> int:
    return sum(_visit_ns(case, stage) for stage in case.plan.stages_of_group(group))


def _compute(case: _Case, path: Sequence[Share]) -> Iterator[Binding]:
    """The stage that computes longest on the critical path, and whether its group is above the mean."""
    share = next((found for found in path if found.kind == "compute"), None)
    if share is None or share.stage is None or share.group is None:
        return
    stage, kind = case.plan.stages[share.stage], case.plan.group_kind(share.group)
    where = f"stage {share.stage} (layers {stage.first_layer} to {stage.end_layer - 1}, group {share.group}, {kind})"
    text = f"{where} computes {time_text(share.time_ns)} of the critical path, {share.share:.1%} of the step"
    yield Binding(code="stage", message=text, cost_ns=share.time_ns, group=share.group, stage=share.stage)
    each = [_group_visit_ns(case, group) for group in range(len(case.plan.groups))]
    mean, most = sum(each) / len(each), max(each)
    if len(each) > 1 and most > _UNEVEN * mean:
        group = each.index(most)
        text = (
            f"group {group} ({case.plan.group_kind(group)}) works {time_text(most)} on a micro-batch, "
            f"the mean group {time_text(round(mean))}: {most / mean - 1:.0%} more"
        )
        batches = len(case.plan.micro_batches) // len(case.plan.routes)
        cost_ns = min(case.step_ns, round((most - mean) * batches))
        yield Binding(code="uneven_stages", message=text, cost_ns=cost_ns, group=group)


def _heavy_layer(case: _Case) -> Iterator[Binding]:
    """A layer that is heavier than the mean group: no cut evens it out."""
    if len(case.plan.groups) < 2:
        return
    mean = sum(_group_visit_ns(case, group) for group in range(len(case.plan.groups))) / len(case.plan.groups)
    time_ns, layer, number = max(
        (_layer_ns(case, number, layer), layer, number)
        for number, stage in enumerate(case.plan.stages)
        for layer in stage.layers
    )
    if time_ns > mean:
        name = case.costs.problem.profiles[0].layers[layer].id
        text = (
            f"layer {layer} ({name!r}) alone takes {time_text(time_ns)} of a micro-batch on stage {number}, "
            f"the mean group {time_text(round(mean))}: no cut between layers evens that out"
        )
        batches = len(case.plan.micro_batches) // len(case.plan.routes)
        cost_ns = min(case.step_ns, round((time_ns - mean) * batches))
        yield Binding(code="heavy_layer", message=text, cost_ns=cost_ns, stage=number, layer=layer)


def _layer_ns(case: _Case, number: int, layer: int) -> int:
    stage, batch = case.plan.stages[number], case.plan.micro_batches[0]
    mesh, tokens = stage.mesh, batch.tokens(0)
    if mesh.context > 1:  # whose share of the tokens is the fullest depends on the exchange
        return 0
    shape = RankShape(-(-batch.samples // mesh.data), tokens.first, tokens.end, mesh.tensor, mesh.context, mesh.experts)
    price = case.costs.kinds[case.plan.group_kind(stage.group)].layer(layer, shape)
    return price.forward_ns + price.backward_ns


def _links(case: _Case, path: Sequence[Share]) -> Iterator[Binding]:
    """Messages of the critical path between two groups, both ways together."""
    times_ns: Counter[tuple[int, int]] = Counter()
    for share in path:
        if share.kind == "message" and share.group is not None and share.to_group is not None:
            times_ns[min(share.group, share.to_group), max(share.group, share.to_group)] += share.time_ns
    for (one, other), time_ns in times_ns.items():
        part = time_ns / case.step_ns
        if part >= _SMALL:
            text = f"messages between groups {one} and {other} take {time_text(time_ns)} of the critical path"
            yield Binding(code="link", message=f"{text}, {part:.1%} of the step", cost_ns=time_ns, group=one)


def _few_micro_batches(case: _Case) -> Iterator[Binding]:
    """What the busiest group waits: the pipeline fills and drains, however even its stages are."""
    busy_ns = max(case.timeline.busy_ns)
    idle_ns, groups = case.step_ns - busy_ns, len(case.plan.groups)
    if groups > 1 and idle_ns > _SMALL * case.step_ns:
        batches = counted(len(case.plan.micro_batches), "micro-batch")
        text = (
            f"{batches} over {groups} groups: the busiest group waits {time_text(idle_ns)} "
            f"of the step ({idle_ns / case.step_ns:.1%}) while the pipeline fills and drains"
        )
        yield Binding(
            code="few_micro_batches", message=text, cost_ns=idle_ns, group=case.timeline.busy_ns.index(busy_ns)
        )


def _sums(case: _Case, path: Sequence[Share]) -> Iterator[Binding]:
    sums_ns = sum(share.time_ns for share in path if share.kind == "sum")
    if sums_ns > _SMALL * case.step_ns:
        text = f"sums of gradients take {time_text(sums_ns)} after the last backward, {sums_ns / case.step_ns:.1%}"
        yield Binding(code="sum", message=text, cost_ns=sums_ns)
    updates_ns = sum(share.time_ns for share in path if share.kind == "update")
    if updates_ns > _SMALL * case.step_ns:
        text = f"updates of the weights take {time_text(updates_ns)}, {updates_ns / case.step_ns:.1%} of the step"
        yield Binding(code="update", message=text, cost_ns=updates_ns)


def _memory(case: _Case) -> Iterator[Binding]:
    """Groups that are nearly full, the fullest first."""
    peaks, limits = case.timeline.peak_bytes or (), case.prices.limit_bytes
    order = sorted(range(len(peaks)), key=lambda group: (limits[group] - peaks[group], group))
    for group in order:
        need, have = peaks[group], limits[group]
        if need > _FULL * have:
            stages = ", ".join(map(str, case.plan.stages_of_group(group)))
            left = f"{bytes_text(have - need)} are left" if need <= have else f"{bytes_text(need - have)} too much"
            text = f"memory of stage {stages} (group {group}): {bytes_text(need)} of {bytes_text(have)}, {left}"
            yield Binding(code="memory", message=text, group=group, need_bytes=need, have_bytes=have)
