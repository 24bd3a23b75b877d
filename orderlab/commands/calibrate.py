"""`orderlab calibrate`: measure what commands cost on a real Redis server, and write a cost model of it."""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.sim.redis.backends.server import ServerBackend

HEAD = """What commands cost one Redis node, measured by `orderlab calibrate`; the other tables are those of
{base}.toml. Not measured: the append-only file, the network card, a cluster's bus, long queues, commands that the
scripts do not call."""


def calibrate(
    server: Annotated[
        str, typer.Argument(help="redis://HOST:PORT/DB of an empty database; auto: a server of our own.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the cost model there, for `simulate --set costs=FILE`.")
    ] = None,
    base: Annotated[str, typer.Option(help="The cost model that gives what is not measured.")] = "cluster",
    calls: Annotated[int, typer.Option(help="Of each operation.")] = 20_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the command costs of a server by its own statistics, through pipelines of the real scripts.

    The server has to be idle otherwise. Exit code 0: measured; 2: the server cannot be used.
    """
    from orderlab.model.files import checked_place, write_whole
    from orderlab.report.simulation import print_calibration
    from orderlab.sim.costs.cost_model import FOLDER, known_costs
    from orderlab.sim.costs.fit import cost_model, measure, to_toml

    if calls < 1000:
        raise InputError(f"--calls {calls}: at least 1000, or the counters' whole microseconds tell nothing")
    if out is not None and (out.suffix != ".toml" or not out.parent.is_dir()):
        raise InputError(f"--out {out}: not a place for a cost model; name a .toml file in a folder that exists")
    if out is not None:
        checked_place(f"--out {out}", out)
    if not (FOLDER / f"{base}.toml").is_file():
        raise InputError(f"--base {base}: no such cost model; it is one of {', '.join(known_costs())}")
    backend = _connect(server)
    try:
        show = (lambda name: typer.echo(f"measuring lua/{name} …", err=True)) if sys.stderr.isatty() else None
        measured = measure(backend, calls, show)
    finally:
        backend.close()
    content = cost_model(measured, base, calls, datetime.datetime.now(datetime.UTC).date())
    if out is not None:
        write_whole(out, to_toml(content, HEAD.format(base=base)).encode())
    if as_json:
        described = {name: asdict(found) for name, found in measured.items()}
        typer.echo(json.dumps({"server": server, "calls": calls, "measured": described, "cost_model": content}))
        return
    print_calibration(Console(), measured, content["redis"], base)
    typer.echo(f"written: {out}" if out is not None else "nothing written; --out FILE.toml keeps it")


def _connect(server: str) -> ServerBackend:
    from orderlab.sim.redis.backends.server import ServerBackend

    try:
        return ServerBackend.start() if server == "auto" else ServerBackend.from_url(server)
    except InputError as error:
        text = str(error).replace("--backend kernel", "calibrate auto").replace("--backend auto", "calibrate auto")
        raise InputError(text.replace("--backend ", "calibrate ")) from None
