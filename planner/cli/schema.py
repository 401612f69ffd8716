"""``planner schema``: the JSON Schema of a document."""

from typing import Annotated

import typer

from planner.cli.options import ForceOption, JsonOption, OutputOption

__all__ = ["schema"]


def schema(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="plan/1, profile ...; without it: a list.")] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Print the JSON Schema of a document, or the names of all documents."""
    from planner.cli.output import Destination, emit, emit_json
    from planner.plan.schema import DOCUMENTS, json_schema

    destination = Destination(output, force)
    if name is None:
        names = sorted(DOCUMENTS)
        if json_output:
            emit_json(names, destination)
        else:
            emit("\n".join(names).encode(), destination)
        return
    full_name = name if name in DOCUMENTS else f"{name}/1"
    if full_name not in DOCUMENTS:
        raise typer.BadParameter(f"found {name!r}, expected one of {', '.join(sorted(DOCUMENTS))}", param_hint="NAME")
    emit_json(json_schema(full_name), destination)
