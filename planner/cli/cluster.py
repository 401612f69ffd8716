"""``planner cluster``: measure the links, show a cluster."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.cli.options import ForceOption, JsonOption, OutputOption

__all__ = ["app"]

app = typer.Typer(help="Describe the devices and the links between them.", no_args_is_help=True)


@app.command()
def show(
    cluster_file: Annotated[Path, typer.Argument(metavar="CLUSTER", help="A cluster/1 file, - for stdin.")],
    json_output: JsonOption = False,
) -> None:
    """Show a cluster: node groups and links."""
    from planner.cli.files import read_cluster
    from planner.cli.output import emit_json, show_tables
    from planner.cli.problem_tables import cluster_tables

    cluster = read_cluster(cluster_file)
    if json_output:
        emit_json({"digest": cluster.digest, "num_ranks": cluster.num_ranks} | cluster.model_dump(mode="json"))
    else:
        show_tables(*cluster_tables(cluster))


@app.command()
def probe(
    ranks: Annotated[int, typer.Option(min=1, max=1024, help="Ranks of this machine.")] = 2,
    name: Annotated[str, typer.Option(help="Name of the node group.")] = "local",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Whose links to measure.")] = "cpu",
    kind: Annotated[str | None, typer.Option(help="Device kind. [default: the device's own name]")] = None,
    usable: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of a rank, for example 16GB.")] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure the messages between the ranks of this machine and describe it as a cluster."""
    from planner.cli.extras import require_extra
    from planner.cli.output import Destination, check_destination, emit_document
    from planner.cli.parsing import size_bytes
    from planner.cli.problem_tables import cluster_tables

    destination = Destination(output, force)
    check_destination(destination)
    usable_bytes = size_bytes(usable, "--usable")
    require_extra("torch", "torch")
    from profiles.links import ProbeOptions
    from profiles.links import probe as probe_links

    options = ProbeOptions(num_ranks=ranks, name=name, device=device, device_kind=kind, usable_bytes=usable_bytes)
    cluster = probe_links(options)
    emit_document(cluster, destination, tables=cluster_tables(cluster), json_output=json_output)
