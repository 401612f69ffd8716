"""The entry of the command ``planner``: builds the application and turns its outcome into an exit code.

Commands import what they need when they run, so that ``planner --help`` loads neither torch nor a solver.
"""

from typing import Annotated

import typer

from planner import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="planner",
    help="Find, check, simulate and run parallel training plans.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Find, check, simulate and run parallel training plans."""
