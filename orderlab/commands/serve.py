"""`orderlab serve`: a simulated Redis node behind a port, for clients in any language."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from orderlab.sim.redis.wire.served_node import ServedNode


class ServedClock(StrEnum):
    """What time a served node goes by."""

    REAL = "real"
    VIRTUAL = "virtual"


def serve(
    port: Annotated[int, typer.Option(min=0, help="Where to listen; 0: any port that is free.")] = 6379,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond the loopback interface with --password alone.")
    ] = "127.0.0.1",
    password: Annotated[str, typer.Option(help="What clients must say (AUTH) before anything else.")] = "",
    clock: Annotated[ServedClock, typer.Option(help="virtual: time moves by command alone.")] = ServedClock.REAL,
) -> None:
    """Serve a simulated Redis node to real clients, until Ctrl-C."""
    import asyncio

    from orderlab.sim.redis.wire.served_node import ServeSettings
    from orderlab.sim.redis.wire.served_node import serve as serve_node

    settings = ServeSettings(host, port, clock is ServedClock.VIRTUAL, password.encode())
    settings.check()
    asyncio.run(serve_node(settings, _tell))


def _tell(node: ServedNode) -> None:
    from orderlab.sim.redis.commands.connection import VERSION

    host, clock = node.settings.host, "virtual" if node.settings.virtual_clock else "real"
    print(f"serving a simulated Redis {VERSION.decode()} on {host}:{node.port} ({clock} clock); Ctrl-C ends it")
    print(f"  redis-cli -h {host} -p {node.port}", flush=True)
