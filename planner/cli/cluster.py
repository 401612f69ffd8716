"""``planner cluster``: measure the links, show a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import JsonOption

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
