"""``planner profile``: measure a model's layers, show, scale and calibrate profiles."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import JsonOption

__all__ = ["app"]

app = typer.Typer(help="Measure what a model's layers cost.", no_args_is_help=True)

_ProfileArgument = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile/1 file, - for stdin.")]


@app.command()
def show(profile_file: _ProfileArgument, json_output: JsonOption = False) -> None:
    """Show a profile: where it comes from and what the layers cost."""
    from planner.cli.files import read_profile
    from planner.cli.output import emit_json, show_tables
    from planner.cli.problem_tables import profile_tables

    profile = read_profile(profile_file)
    if json_output:
        emit_json({"digest": profile.digest} | profile.model_dump(mode="json"))
    else:
        show_tables(*profile_tables(profile))
