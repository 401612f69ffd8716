"""The best schedule of an order problem that can be found with a given effort; never worse than a named family.

1. Portfolio: every named family that serves the placement, re-timed; periodic templates and plain rules through the
   list scheduler.
2. Shakes: the best ones once more through the list scheduler, from both ends of time, with changed priorities.
3. Walks from the best ones along their critical paths.

It ends where a schedule equals the bound. Deterministic; plain and compiled loops give the same schedule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from planner.errors import Fault, InfeasibleError
from planner.plan.instruction import Instruction
from planner.search.synthesis.bounds import StepBound, best_step_bound
from planner.search.synthesis.engine import Engine, OnWork, Schedule, WalkEffort, nobody
from planner.search.synthesis.kernels import Kernels, quickest_kernels
from planner.search.synthesis.layout import Manner
from planner.search.synthesis.named import named_schedules
from planner.search.synthesis.order_problem import OrderProblem
from planner.search.synthesis.shakes import best_shaken
from planner.search.synthesis.templates import plain_keys, template_keys, templates

__all__ = ["Effort", "Synthesis", "default_effort", "synthesise"]

_SPARING = Manner(reserves=0)  # room for later legs only where they hold nothing
_NAMED_UP_TO = 250_000  # instructions: above it the plain rules and templates stand in for the families' generators
_STARTS = 6  # schedules that are shaken
_WALKS = 3
_HEATS = (0.2, 0.1)  # the largest allowance of each walk, in mean instructions


@dataclass(frozen=True)
class Effort:
    """``templates``: two list schedules each; ``shakes``: one each; ``moves``: of all walks; ``seed``: of chance."""

    templates: int
    shakes: int
    moves: int
    seed: int = 0

    def work(self, num_instructions: int) -> int:
        """Instructions handled."""
        return (2 + 2 * self.templates + self.shakes + self.moves) * num_instructions


def default_effort(problem: OrderProblem) -> Effort:
    """Less for larger problems: a few seconds in plain Python, up to a point."""
    count = problem.num_instructions
    return Effort(
        templates=min(216, max(2, 200_000 // count)),
        shakes=min(300, 200_000 // count),
        moves=min(20_000, 5_000_000 // count),
    )


@dataclass(frozen=True)
class Synthesis:
    """``streams``: one a group; numbers count the micro-batches of the route. ``named``: re-timed families by name."""

    step_ns: int
    streams: tuple[tuple[Instruction, ...], ...]
    method: str
    bound: StepBound
    named: dict[str, int]


def synthesise(
    problem: OrderProblem,
    effort: Effort | None = None,
    *,
    starts: Sequence[Sequence[Sequence[Instruction]]] = (),
    kernels: Kernels | None = None,
    on_work: OnWork = nobody,
) -> Synthesis:
    """The best schedule found. Raises ``InfeasibleError`` where the limits let no order end.

    ``starts``: more streams for the portfolio, numbered as those of the answer; ``kernels``: default the quickest;
    ``on_work``: as of ``Engine``.
    """
    effort = effort or default_effort(problem)
    engine = Engine(problem, kernels or quickest_kernels(effort.work(problem.num_instructions)), on_work)
    bound = best_step_bound(problem)
    named = list(named_schedules(engine)) if problem.num_instructions <= _NAMED_UP_TO else []
    given = _given(engine, starts)
    found = _best_first([*named, *given, *_templated(engine, effort.templates, bound.step_ns)])
    if not found:
        found = [_slowest(engine)]
    found = _best_first([*_all_shaken(engine, found[:_STARTS], effort, bound.step_ns), *found])
    best = _best_first([*_all_walked(engine, found[:_WALKS], effort, bound.step_ns), *found])[0]
    return Synthesis(
        step_ns=best.step_ns,
        streams=tuple(tuple(stream) for stream in engine.streams(best)),
        method=best.name,
        bound=bound,
        named={schedule.name: schedule.step_ns for schedule in named},
    )


def _given(engine: Engine, starts: Sequence[Sequence[Sequence[Instruction]]]) -> Iterator[Schedule]:
    for streams in starts:
        order = engine.order_of(streams)
        schedule = engine.of_order(order, "given") if order is not None else None
        if schedule is not None:
            yield schedule


def _best_first(schedules: list[Schedule]) -> list[Schedule]:
    """The best of each name; of equal ones the first stays first."""
    found: dict[str, Schedule] = {}
    for schedule in sorted(schedules, key=lambda schedule: schedule.step_ns):
        found.setdefault(schedule.name, schedule)
    return list(found.values())


def _templated(engine: Engine, most: int, floor_ns: int) -> Iterator[Schedule]:
    """Plain rules and templates until one reaches the bound."""
    for schedule in _through_list(engine, most):
        if schedule is not None:
            yield schedule
            if schedule.step_ns <= floor_ns:
                return


def _through_list(engine: Engine, most: int) -> Iterator[Schedule | None]:
    for template in islice(templates(engine.problem), most):
        keys = template_keys(engine, template)
        yield engine.by_priority(keys, template.name)
        yield engine.by_priority(keys, template.name, _SPARING)
    for name, keys in plain_keys(engine):
        yield engine.by_priority(keys, name)


def _all_shaken(engine: Engine, starts: list[Schedule], effort: Effort, floor_ns: int) -> Iterator[Schedule]:
    for number, start in enumerate(starts):
        times = effort.shakes // len(starts)
        yield best_shaken(engine, start, times=times, floor_ns=floor_ns, seed=effort.seed + number)


def _all_walked(engine: Engine, starts: list[Schedule], effort: Effort, floor_ns: int) -> Iterator[Schedule]:
    """From each start some walks, each from the best so far."""
    moves = effort.moves // (len(starts) * len(_HEATS))
    for number, start in enumerate(starts):
        best = start
        for turn, heat in enumerate(_HEATS):
            heat_ns = max(1, round(heat * best.step_ns * engine.problem.num_groups / engine.num_instructions))
            walk = WalkEffort(moves, heat_ns, effort.seed + number * len(_HEATS) + turn)
            best = engine.walked(best, walk, floor_ns=floor_ns)
        yield best


def _slowest(engine: Engine) -> Schedule:
    """What is left where memory locks every list schedule."""
    found = engine.one_at_a_time()
    if found is None:
        limits = engine.problem.limit[:8]
        message = f"found limits {limits}, expected room for one micro-batch on every stage of a group"
        raise InfeasibleError((Fault("memory", "/groups", message),))
    return found
