"""``planner schedule``: the named schedule families, compared on a shape, and one of them as a picture and a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import ForceOption, JsonOption, OutputOption

if TYPE_CHECKING:
    from planner.schedules.family import FamilyShape
    from planner.simulate.scores import GroupCost

__all__ = ["app"]

app = typer.Typer(help="Pipeline schedules: list, compare, draw.", no_args_is_help=True)

_MOST_WORK = 100_000  # groups x micro-batches

GroupsOption = Annotated[int, typer.Option("--groups", min=1, metavar="N", help="Groups of ranks in the pipeline.")]
BatchesOption = Annotated[int, typer.Option("--micro-batches", min=1, metavar="N", help="Micro-batches of a step.")]
StagesOption = Annotated[
    int | None, typer.Option("--stages", min=1, metavar="N", help="Stages of the route, for families that ask.")
]
SlicesOption = Annotated[
    int | None, typer.Option("--slices", min=1, metavar="N", help="Token slices of a micro-batch, likewise.")
]
ForwardOption = Annotated[
    str, typer.Option("--forward", metavar="TIME", help="Forward of a micro-batch on one group's share.")
]
InputOption = Annotated[str, typer.Option("--backward-input", metavar="TIME", help="Its gradient of the input.")]
WeightOption = Annotated[str, typer.Option("--backward-weight", metavar="TIME", help="Its gradient of the weights.")]
LinkOption = Annotated[str, typer.Option("--link", metavar="TIME", help="Every message between two groups.")]


@app.command("list")
def list_families(json_output: JsonOption = False) -> None:
    """List the named schedule families: where their stages lie, what they read, who described them."""
    from planner.cli.output import emit_json, show_tables
    from planner.cli.schedule_tables import families_json, families_table

    if json_output:
        emit_json(families_json())
    else:
        show_tables(families_table())


@app.command()
def compare(
    groups: GroupsOption,
    micro_batches: BatchesOption,
    forward: ForwardOption = "10ms",
    backward_input: InputOption = "10ms",
    backward_weight: WeightOption = "10ms",
    link: LinkOption = "0ms",
    memory: Annotated[
        float | None,
        typer.Option("--memory", min=0, metavar="N", help="Most that a group keeps, in micro-batches of its share."),
    ] = None,
    stages: StagesOption = None,
    slices: SlicesOption = None,
    synthesis: Annotated[
        bool, typer.Option("--synthesis/--no-synthesis", help="Also make orders for these times and this memory.")
    ] = True,
    json_output: JsonOption = False,
) -> None:
    """Compare all families on one shape: bubble, span, memory, messages, bound; the unit is the forward time."""
    from planner.cli.output import emit_json, show_tables
    from planner.cli.schedule_rows import compared, with_synthesised
    from planner.cli.schedule_tables import scores_json, scores_tables

    cost = _cost(forward, backward_input, backward_weight, link)
    shape = _shape(groups, micro_batches, stages, slices)
    scores = compared(shape, cost, memory_units=memory)
    if synthesis:
        scores = with_synthesised(scores, shape, cost, memory_units=memory)
    if json_output:
        emit_json(scores_json(scores))
    else:
        show_tables(*scores_tables(scores, shape, cost, memory_units=memory))


@app.command()
def draw(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="A name that `planner schedule list` prints.")],
    groups: GroupsOption,
    micro_batches: BatchesOption,
    forward: ForwardOption = "10ms",
    backward_input: InputOption = "10ms",
    backward_weight: WeightOption = "10ms",
    link: LinkOption = "0ms",
    stages: StagesOption = None,
    slices: SlicesOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the timeline for Perfetto or Chrome.")
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Draw the timeline of one family; -o writes its abstract plan (one rank a group, no model)."""
    from planner.cli.output import Destination, check_destination, emit, emit_json, require_different, show_tables
    from planner.cli.schedule_rows import drawn
    from planner.cli.schedule_tables import drawn_json, timeline_tables
    from planner.problem.canonical import document_bytes
    from planner.simulate.trace import chrome_trace

    plan_file, trace_file = Destination(output, force), Destination(trace, force)
    check_destination(plan_file)
    check_destination(trace_file)
    require_different(plan_file, trace_file)
    cost = _cost(forward, backward_input, backward_weight, link)
    found = drawn(family, _shape(groups, micro_batches, stages, slices), cost)
    if trace is not None:
        emit(chrome_trace(found.plan, found.timeline), trace_file)
    if output is not None:
        emit(document_bytes(found.plan), plan_file)
    if "-" in (str(output), str(trace)):
        return
    if json_output:
        emit_json(drawn_json(family, found))
    else:
        show_tables(*timeline_tables(family, found, cost))


def _cost(forward: str, backward_input: str, backward_weight: str, link: str) -> "GroupCost":
    from planner.cli.parsing import duration_ns
    from planner.simulate.scores import GroupCost

    cost = GroupCost(
        duration_ns(forward, "--forward"),
        duration_ns(backward_input, "--backward-input"),
        duration_ns(backward_weight, "--backward-weight"),
        duration_ns(link, "--link"),
    )
    if cost.forward_ns == 0:
        raise typer.BadParameter(f"found {forward!r}, expected more than 0: it is the unit", param_hint="--forward")
    return cost


def _shape(groups: int, micro_batches: int, stages: int | None, slices: int | None) -> "FamilyShape":
    from planner.schedules.family import FamilyShape

    if groups * micro_batches > _MOST_WORK:
        message = f"found {groups} x {micro_batches}, expected at most {_MOST_WORK} groups x micro-batches"
        raise typer.BadParameter(message, param_hint="--micro-batches")
    return FamilyShape(groups, micro_batches, num_stages=stages, num_slices=slices)
