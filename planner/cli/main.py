"""The entry of the command ``planner``: builds the application and turns its outcome into an exit code.

Commands import what they need when they run, so that ``planner --help`` loads neither torch nor a solver.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from planner import __version__
from planner.cli import (
    check,
    cluster,
    explain,
    partition,
    profile,
    revalidate,
    run,
    schedule,
    schema,
    search,
    serve,
    show,
    simulate,
    verify,
)
from planner.cli.exit_codes import DONE, INVALID, UNEXPECTED, InterruptedCommandError, exit_code
from planner.cli.talk import error_lines, json_error, say
from planner.errors import Fault, PlannerError

__all__ = ["app", "main", "run_command"]


class _Commands(TyperGroup):
    """Ctrl-C in any command is an error of ours with a line of its own; typer would end without a word."""

    def invoke(self, ctx: Any) -> Any:  # typer keeps its Context type to itself
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedCommandError("stopped by Ctrl-C before it was done", code="interrupted") from None


app = typer.Typer(
    name="planner",
    cls=_Commands,
    help="Find, check, simulate and run parallel training plans.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(profile.app, name="profile")
app.add_typer(cluster.app, name="cluster")
app.add_typer(schedule.app, name="schedule")
for command in (
    search.search,
    partition.partition,
    show.show,
    check.check,
    simulate.simulate,
    explain.explain,
    revalidate.revalidate,
    verify.verify,
    serve.serve,
    schema.schema,
):
    app.command()(command)
app.command(context_settings=run.CONTEXT_SETTINGS)(run.run)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and say what went wrong; the exit code."""
    try:
        code = app(list(arguments), prog_name="planner", standalone_mode=False)
        sys.stdout.flush()
    except PlannerError as error:
        _report(error.faults, error_lines(error), arguments)
        return exit_code(error)
    except TyperException as error:
        _report((Fault("usage", "", error.format_message()),), _usage_lines(error), arguments)
        return INVALID
    except BrokenPipeError:  # the reader of our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    except Exception as error:  # a defect of ours: where it happened, then one line
        logging.getLogger(__name__).exception("unexpected error")
        fault = Fault("internal", "", f"{type(error).__name__}: {error}")
        _report((fault,), [f"error[internal]: {fault.message}"], arguments)
        return UNEXPECTED
    return code if isinstance(code, int) else DONE


def _report(faults: tuple[Fault, ...], lines: list[str], arguments: Sequence[str]) -> None:
    for line in [json_error(faults)] if "--json" in arguments else lines:
        say(line)


def _usage_lines(error: TyperException) -> list[str]:
    text = error.format_message()
    if not text:  # no arguments: the help is printed already
        return []
    return [f"error[usage]: {text}", "planner COMMAND --help lists the options"]


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
