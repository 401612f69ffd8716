"""Schedule families as tables for people and as JSON for programs."""

from collections.abc import Sequence

from rich.console import RenderableType

from planner.cli.drawing import draw_timeline
from planner.cli.output import terminal_columns
from planner.cli.plan_tables import facts_table, new_table
from planner.cli.schedule_rows import Drawn
from planner.plan.pieces import staleness
from planner.schedules.families import FAMILIES
from planner.schedules.family import FamilyShape
from planner.simulate.bounds import BOUND_MODEL
from planner.simulate.scores import GroupCost, Measures, Score
from planner.units import counted, time_text

__all__ = ["drawn_json", "families_json", "families_table", "scores_json", "scores_tables", "timeline_tables"]

_OPTION_OF_FIELD = {"num_stages": "--stages", "num_slices": "--slices"}
_LEGEND = (
    "F forward, B backward; split: I gradient of the input, W of the weights; R recompute, U update\n"
    "small letters: the second of two stages of a group; 3F0: stage 3 of more\n"
    "a number is a micro-batch, .1 its slice; dots: idle"
)
_NUMBERS = (
    "bubble_units",
    "span_units",
    "memory_units",
    "messages",
    "bound_units",
    "bubble_share",
    "weight_copies",
    "step_ns",
)


def families_json() -> list[dict[str, object]]:
    """The registry."""
    return [
        {
            "family": spec.name,
            "placement": spec.placement,
            "summary": spec.summary,
            "source": spec.source,
            "options": sorted(spec.options),
            "changes_results": spec.changes_results,
        }
        for spec in FAMILIES.values()
    ]


def drawn_json(family: str, found: Drawn) -> dict[str, object]:
    """A drawn family: its streams, and when each instruction runs, ``[start_ns, end_ns]`` in its order."""
    return {
        "family": family,
        "step_ns": found.timeline.step_ns,
        "bubble": found.timeline.bubble,
        "streams": list(found.plan.streams),
        "times_ns": [[[event.start_ns, event.end_ns] for event in events] for events in found.timeline.events],
    }


def families_table() -> RenderableType:
    """One row a family."""
    table = new_table("schedule families", ["family", "stages lie", "what it does", "options", "source"])
    for spec in FAMILIES.values():
        options = ", ".join(_OPTION_OF_FIELD[name] for name in sorted(spec.options) if name in _OPTION_OF_FIELD)
        table.add_row(spec.name, spec.placement, spec.summary, options or "-", spec.source)
    return table


def scores_json(scores: Sequence[Score]) -> list[dict[str, object]]:
    """Candidates first, the best first of all; numbers are null where a family has no plan for the shape."""
    best = scores[0].family if scores and scores[0].is_candidate else None
    return [
        {
            "family": score.family,
            **_numbers(score.measures),
            "bound_model": BOUND_MODEL,
            "fits": score.is_candidate,
            "reason": score.reason,
            "best": score.family == best,
        }
        for score in scores
    ]


def _numbers(found: Measures | None) -> dict[str, object]:
    return {name: None if found is None else getattr(found, name) for name in _NUMBERS}


def scores_tables(
    scores: Sequence[Score], shape: FamilyShape, cost: GroupCost, *, memory_units: float | None
) -> list[RenderableType]:
    """The shape, the candidates with the best marked, the others with the reason."""
    candidates = [score for score in scores if score.is_candidate]
    others = [score for score in scores if not score.is_candidate]
    tables: list[RenderableType] = [facts_table("shape", _facts(shape, cost, memory_units)), ""]
    if candidates:
        tables += [_score_table("schedules, the best first", candidates, ""), ""]
    else:
        tables += ["no family is a candidate", ""]
    if others:
        tables += [_score_table("no candidates", others, "why not"), ""]
    unit = f"bubble, span, bound in forwards of {time_text(cost.forward_ns)}"
    return [*tables, f"{unit}; memory in micro-batches; bound = {BOUND_MODEL}, for every order"]


def _facts(shape: FamilyShape, cost: GroupCost, memory_units: float | None) -> list[tuple[str, str]]:
    times = [
        f"{name} {time_text(time_ns)}"
        for name, time_ns in zip(("forward", "input", "weight", "message"), cost, strict=True)
    ]
    ideal_ns = shape.num_micro_batches * cost.work_ns
    return [
        ("pipeline", f"{counted(shape.num_groups, 'group')}, {counted(shape.num_micro_batches, 'micro-batch')}"),
        ("times", ", ".join(times)),
        ("memory", "no limit" if memory_units is None else f"at most {memory_units:g} micro-batches a group"),
        ("step without a bubble", time_text(ideal_ns)),
    ]


def _score_table(title: str, scores: Sequence[Score], last_column: str) -> RenderableType:
    columns = ["", "family", "#step", "#bubble", "#share", "#span", "#memory", "#messages", "#bound", "#weights"]
    table = new_table(title, [*columns, last_column])
    for number, score in enumerate(scores):
        mark = "*" if number == 0 and score.is_candidate else ""
        table.add_row(mark, score.family, *_cells(score.measures), score.reason or "")
    return table


def _cells(found: Measures | None) -> list[str]:
    if found is None:
        return ["-"] * 8
    return [
        time_text(found.step_ns),
        _short(found.bubble_units),
        f"{found.bubble_share:.1%}",
        _short(found.span_units),
        _short(found.memory_units),
        str(found.messages),
        _short(found.bound_units),
        f"{_short(found.weight_copies)}x",
    ]


def _short(value: float) -> str:
    return f"{round(value, 2):g}"


def timeline_tables(family: str, found: Drawn, cost: GroupCost) -> list[RenderableType]:
    """What the plan is, and its timeline."""
    plan, timeline = found
    ideal_ns = len(plan.micro_batches) * cost.work_ns
    bubble_units = (timeline.step_ns - ideal_ns) / cost.forward_ns
    facts = [
        (
            "stages of each group",
            "  ".join(",".join(map(str, plan.stages_of_group(g))) for g in range(len(plan.groups))),
        ),
        ("routes", ", ".join("-".join(map(str, route)) for route in plan.routes)),
        ("step", f"{time_text(timeline.step_ns)}, bubble {_short(bubble_units)} forwards ({timeline.bubble:.1%})"),
    ]
    stale = max(staleness(plan))
    if stale:
        facts.append(("results", f"change: weights are up to {counted(stale, 'update')} older than their gradients"))
    return [facts_table(family, facts), "", draw_timeline(timeline, width=terminal_columns()), "", _LEGEND]
