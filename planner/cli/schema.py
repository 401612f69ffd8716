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
    from planner.cli.documents import all_documents
    from planner.cli.output import Destination, emit, emit_json
    from planner.plan.schema import json_schema

    destination = Destination(output, force)
    documents = all_documents()
    names = sorted(documents)
    if name is None:
        if json_output:
            emit_json(names, destination)
        else:
            emit("\n".join(names).encode(), destination)
        return
    full_name = name if name in names else f"{name}/1"
    if full_name not in names:
        raise typer.BadParameter(f"found {name!r}, expected one of {', '.join(names)}", param_hint="NAME")
    emit_json(json_schema(documents[full_name]), destination)
