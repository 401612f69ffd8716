"""``planner simulate``: what a plan would take on a problem, without a search."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from planner.cli.options import (
    ClusterOption,
    ForceOption,
    JsonOption,
    PlanArgument,
    ProfilesOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.costs.prices import PlanPrices
    from planner.plan.plan import Plan
    from planner.simulate.timeline import Timeline

__all__ = ["simulate"]

_DURATIONS_AT_ONCE = 8_000_000  # 64 MB


def simulate(
    plan_file: PlanArgument,
    profiles: ProfilesOption,
    cluster: ClusterOption,
    workload: WorkloadOption,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the timeline for Perfetto or Chrome.")
    ] = None,
    shared_adapters: Annotated[
        bool, typer.Option("--shared-adapters", help="Messages that leave, or enter, one node wait for each other.")
    ] = False,
    draws: Annotated[
        int, typer.Option("--draws", min=0, max=100_000, metavar="N", help="Also N steps with noisy durations.")
    ] = 0,
    spread: Annotated[
        float, typer.Option("--spread", min=0, max=1, metavar="X", help="Standard deviation of the noise, 0.05 = 5 %.")
    ] = 0.05,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Predict the step of a plan: time, bubble, peak memory of each group."""
    from planner.cli.files import read_plan
    from planner.cli.output import Destination, check_destination, emit, emit_json, show_tables
    from planner.cli.problem_files import read_problem
    from planner.costs.price import price_plan
    from planner.simulate.links import node_adapters, simulate_on_links
    from planner.simulate.simulate import simulate as simulate_plan

    destination = Destination(trace, force)
    check_destination(destination, inputs=[plan_file, *profiles, cluster, workload])
    plan = read_plan(plan_file)
    prices = price_plan(plan, read_problem(profiles, cluster, workload))
    timeline = simulate_plan(plan, prices)
    if shared_adapters:
        timeline = simulate_on_links(plan, prices, node_adapters(plan))
    steps = _drawn_steps(plan, prices, draws, spread) if draws else None
    if trace is not None:
        from planner.simulate.trace import chrome_trace

        emit(chrome_trace(plan, timeline), destination)
    if json_output:
        emit_json(_as_json(plan, prices, timeline) | ({} if steps is None else {"drawn": steps._asdict()}))
    else:
        show_tables(*_tables(plan, prices, timeline, steps))


class _DrawnSteps(NamedTuple):
    """Of all draws."""

    num_draws: int
    spread: float
    median_ns: int
    percentile_95_ns: int
    longest_ns: int


def _drawn_steps(plan: "Plan", prices: "PlanPrices", num_draws: int, spread: float) -> _DrawnSteps:
    """Every duration times its own log-normal factor; adapters are not shared in draws."""
    import numpy as np

    from planner.simulate.arrays import instruction_arrays
    from planner.simulate.batch import ProgramBatch, noise_draws
    from planner.simulate.program import make_program

    arrays = instruction_arrays(plan, prices)
    batch = ProgramBatch(make_program(plan, arrays, prices), num_groups=len(plan.groups))
    at_once = max(1, _DURATIONS_AT_ONCE // batch.num_instructions)
    parts = [
        batch.steps(
            noise_draws(arrays.duration_ns, spread=spread, num_draws=min(at_once, num_draws - first), seed=first)
        )
        for first in range(0, num_draws, at_once)
    ]
    steps_ns = np.concatenate([part.step_ns for part in parts])
    median_ns, high_ns = np.percentile(steps_ns, [50, 95], method="higher").tolist()
    return _DrawnSteps(num_draws, spread, median_ns, high_ns, int(steps_ns.max()))


def _as_json(plan: "Plan", prices: "PlanPrices", timeline: "Timeline") -> dict[str, object]:
    return {
        "plan": plan.digest,
        "step_ns": timeline.step_ns,
        "bubble": timeline.bubble,
        "busy_ns": list(timeline.busy_ns),
        "peak_bytes": None if timeline.peak_bytes is None else list(timeline.peak_bytes),
        "limit_bytes": list(prices.limit_bytes),
        "sum_ns": list(prices.sum_ns),
        "update_ns": list(prices.update_ns),
        "costs": prices.costs,
    }


def _tables(
    plan: "Plan", prices: "PlanPrices", timeline: "Timeline", steps: _DrawnSteps | None
) -> "list[RenderableType]":
    from planner.cli.drawing import draw_timeline
    from planner.cli.output import terminal_columns
    from planner.cli.plan_tables import facts_table, new_table
    from planner.units import bytes_text, time_text

    facts = [
        ("plan", plan.digest),
        ("predicted step", time_text(timeline.step_ns)),
        ("bubble", f"{timeline.bubble:.1%}"),
        ("costs", prices.costs),
    ]
    if steps is not None:
        high = f"95 of 100 within {time_text(steps.percentile_95_ns)}, longest {time_text(steps.longest_ns)}"
        facts.append((f"{steps.num_draws} noisy steps", f"median {time_text(steps.median_ns)}, {high}"))
    groups = new_table("groups", ["#group", "#busy", "#state", "#peak", "#limit"])
    peaks = timeline.peak_bytes or (0,) * len(plan.groups)
    for group, busy_ns in enumerate(timeline.busy_ns):
        sizes = (prices.state_bytes[group], peaks[group], prices.limit_bytes[group])
        groups.add_row(str(group), time_text(busy_ns), *map(bytes_text, sizes))
    drawing = draw_timeline(timeline, width=terminal_columns())
    return [facts_table("simulation", facts), "", groups, "", "timeline (predicted)", drawing]
