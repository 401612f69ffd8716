"""``planner run``: a training script with a plan, as one rank that torchrun has started."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import JsonOption
from planner.errors import ExecutorError, PlannerError

if TYPE_CHECKING:
    from planner.executor.current import CheckpointWish

__all__ = ["CONTEXT_SETTINGS", "run"]

# What follows SCRIPT belongs to the script, also what looks like an option of ours.
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file that makes an Executor.")],
    plan_file: Annotated[Path, typer.Option("--plan", metavar="FILE", help="A plan/1 file, the same on every rank.")],
    digest: Annotated[
        str | None, typer.Option("--digest", metavar="HEX", help="The plan must have this digest.")
    ] = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="Run a plan for other devices all the same.")] = False,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="Checkpoints of the script's executor.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option("--save-every", metavar="N", min=1, help="Save after every N steps.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Of all checkpoints the newest N.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest complete checkpoint, if any.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Run SCRIPT with the plan at hand; the arguments after SCRIPT are the script's own.

    Started by torchrun on every host: planner show PLAN prints the line. A plan of one rank needs no torchrun.
    """
    from planner.cli.extras import require_extra
    from planner.cli.files import read_bytes, read_plan, require_digest

    wish = _checkpoint_wish(checkpoint, save_every=save_every, keep=keep, resume=resume)
    plan = read_plan(plan_file)
    if digest is not None:
        require_digest(plan_file, plan, digest)
    read_bytes(script)
    require_extra("torch", "torch")
    _run(plan_file, script, context.args, digest=plan.digest, emulate=emulate, checkpoints=wish)


def _checkpoint_wish(
    folder: Path | None, *, save_every: int | None, keep: int | None, resume: bool
) -> "CheckpointWish | None":
    from planner.executor.current import CheckpointWish

    if folder is None:
        if save_every is not None or keep is not None or resume:
            raise typer.BadParameter("--save-every, --keep and --resume need --checkpoint DIR")
        return None
    if save_every is None and not resume:
        raise typer.BadParameter("--checkpoint needs --save-every N, --resume or both")
    return CheckpointWish(folder, save_every, keep, resume)


def _run(
    plan_file: Path,
    script: Path,
    arguments: list[str],
    *,
    digest: str,
    emulate: bool,
    checkpoints: "CheckpointWish | None",
) -> None:
    from planner.executor.launch import RunWish, run_script

    if checkpoints is not None:
        _show_checkpoints()
    try:
        run_script(plan_file, script, arguments, wish=RunWish(digest, emulate, checkpoints))
    except PlannerError:
        raise
    except Exception as error:
        logging.getLogger(__name__).exception("%s failed", script)
        raise ExecutorError(f"{script}: {type(error).__name__}: {error}", code="script_failed") from error


def _show_checkpoints() -> None:
    """What is saved and loaded, on rank 0's stderr; scripts set up the logging of their own."""
    log = logging.getLogger("planner.executor.checkpoints")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    log.propagate = False
