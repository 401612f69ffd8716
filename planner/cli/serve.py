"""``planner serve``: the HTTP service on this machine."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    host: Annotated[str | None, typer.Option(help="A loopback address. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="0: any free port. [default: 8000]")] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SQLite file, on a local disk. [default: planner.sqlite3]")
    ] = None,
    num_runners: Annotated[
        int | None, typer.Option("--runners", help="Solver children at the same time. [default: 1]")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Accepted as everywhere; the log is JSON lines in any case.")
    ] = False,
) -> None:
    """Serve plans over HTTP. Options replace the environment variables PLANNER_HOST, PLANNER_PORT ..."""
    from planner.cli.extras import require_extra

    require_extra("api", "fastapi")
    from api.serve import serve as serve_forever
    from api.settings import read_settings

    given = {"host": host, "port": port, "store": store, "num_runners": num_runners}
    serve_forever(read_settings(**{name: value for name, value in given.items() if value is not None}))
