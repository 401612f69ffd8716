"""``planner partition``: a layer graph over devices so that the fullest device is as empty as can be."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.options import ForceOption, JsonOption, OutputOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.attempts.partition import PartitionWatch
    from planner.plan.partition import Partition
    from planner.problem.graph import GraphDocument, GraphRequest

__all__ = ["partition"]


def partition(
    graph_file: Annotated[Path, typer.Argument(metavar="GRAPH", help="A graph/1 file, - for stdin.")],
    parts: Annotated[
        Literal["contiguous", "any"], typer.Option(help="contiguous: in order along the forward graph.")
    ] = "contiguous",
    time_limit: Annotated[str, typer.Option("--time-limit", help="1s..1h, for example 10s.")] = "60s",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Equal seeds give equal parts.")] = 0,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Lay a layer graph over devices: the smallest largest load, with a proven bound.

    Ctrl-C ends the search early: the best parts so far are shown and the exit code is 130.
    """
    from planner.attempts.partition import PartitionWatch
    from planner.cli.exit_codes import DONE, INTERRUPTED
    from planner.cli.extras import require_extra
    from planner.cli.files import make_contract, read_contract
    from planner.cli.output import Destination, check_destination, emit, emit_json, show_tables
    from planner.cli.parsing import duration_ns
    from planner.problem.canonical import document_bytes
    from planner.problem.graph import GraphDocument, GraphRequest

    destination = Destination(output, force)
    check_destination(destination, inputs=[graph_file])
    graph = read_contract(graph_file, GraphDocument)
    limit_ns = duration_ns(time_limit, "--time-limit")
    schema = "graph-request/1"
    request = make_contract(GraphRequest, schema=schema, graph=graph, parts=parts, time_limit_ns=limit_ns, seed=seed)
    require_extra("solver", "ortools")
    _check(graph, graph_file)
    watch = PartitionWatch()
    found = _found(request, watch, graph_file)
    if output is not None:
        emit(document_bytes(found), destination)
    if json_output and not (output is not None and destination.is_stdout):
        emit_json(found.model_dump(mode="json"))
    elif output is None:
        show_tables(*_tables(graph, found))
    raise typer.Exit(INTERRUPTED if watch.stop.is_set() else DONE)


def _check(graph: "GraphDocument", path: Path) -> None:
    """Raises what is wrong with the graph before a child is started."""
    from planner.errors import InfeasibleError, ProblemError
    from planner.search.graphs.documents import problem_of

    try:
        problem_of(graph)
    except ProblemError as error:
        raise ProblemError(error.message, code=error.code, pointer=f"{path}#{error.pointer}") from None
    except InfeasibleError as error:
        reasons = tuple(fault._replace(pointer=f"{path}#{fault.pointer}") for fault in error.reasons)
        raise InfeasibleError(reasons) from None


def _found(request: "GraphRequest", watch: "PartitionWatch", path: Path) -> "Partition":
    """Raises ``InfeasibleError`` where nothing fits."""
    from planner.attempts.partition import run_partition
    from planner.cli.local_search import stop_on_interrupt
    from planner.errors import Fault, InfeasibleError

    with stop_on_interrupt(watch.stop):
        found = run_partition(request, watch=watch)
    if found.reasons:
        raise InfeasibleError(tuple(Fault(reason.code, f"{path}#/layers", reason.message) for reason in found.reasons))
    return found


def _tables(graph: "GraphDocument", found: "Partition") -> list["RenderableType"]:
    from planner.cli.plan_tables import facts_table, new_table
    from planner.units import bytes_text, time_text

    facts = [("largest load", time_text(found.value_ns or 0)), ("bound", time_text(found.bound_ns))]
    facts += [("gap", f"{found.gap:.2%}"), ("limit", found.limit or "")]
    table = new_table("parts", ["part", "device kind", "layers", "load", "memory", "first layers"])
    for number, part in enumerate(found.parts):
        names = ", ".join(graph.layers[layer].name for layer in part.layers[:3])
        more = ", ..." if len(part.layers) > 3 else ""
        row = [str(number), graph.kinds[part.kind].name, str(len(part.layers)), time_text(part.load_ns)]
        table.add_row(*row, bytes_text(part.memory_bytes), names + more)
    return [facts_table("partition", facts), table]
