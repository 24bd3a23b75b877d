"""`orderlab serve`: simulated Redis nodes behind ports, for clients in any language."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderlab.commands.options import ServerName
from orderlab.exit_codes import tell
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings


class WhoDebugs(StrEnum):
    """Who may call DEBUG."""

    YES = "yes"
    LOCAL = "local"
    NO = "no"


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
    cluster: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Serve a cluster of so many masters, on this port and those after it."),
    ] = 0,
    faults: Annotated[
        Path | None, typer.Option(help="Lines SECONDS FAULT [ARGUMENT ...]: what goes wrong when (first node).")
    ] = None,
    server: ServerName = "7.0",
    debug: Annotated[
        WhoDebugs,
        typer.Option(help="Who may call DEBUG, by which tests move time: no is what servers from 7.0 on begin with."),
    ] = WhoDebugs.YES,
    acl_file: Annotated[
        Path | None, typer.Option(help="Users, a line USER RULES for each, as aclfile names them to a server.")
    ] = None,
    lacks: Annotated[bool, typer.Option("--lacks", help="List what a server has and this one lacks, and end.")] = False,
) -> None:
    """Serve a simulated Redis node, or a cluster, to real clients, until Ctrl-C.

    Faults are asked for by the command ORDERLAB of any connection (ORDERLAB stall 300), or by a file.
    """
    from orderlab.exit_codes import run_asynchronously
    from orderlab.sim.redis.versions import version_named
    from orderlab.sim.redis.wire.served_faults import read_schedule
    from orderlab.sim.redis.wire.served_node import ServeSettings

    if lacks:
        _print_lacking()
        return
    settings = ServeSettings(
        host, port, clock is ServedClock.VIRTUAL, password.encode(), version_named(server), debug.value
    )
    settings.check()
    if acl_file is not None and password:
        raise InputError("--acl-file: says what the default user's password is; leave out --password")
    users = None if acl_file is None else _users_in(acl_file)
    schedule = read_schedule(faults) if faults is not None else []
    run_asynchronously(_serve(settings, cluster, schedule, users))


def _users_in(file: Path) -> bytes:
    """Where the file is. Raises InputError for one that a server would not start with."""
    from orderlab.sim.redis.acl_file import read_users
    from orderlab.sim.redis.replies import ErrorReply

    place = os.fsencode(file.resolve())
    try:
        read_users(place)
    except ErrorReply as error:
        raise InputError(f"--acl-file {file}: {error.message.decode(errors='replace').removeprefix('ERR ')}") from None
    return place


async def _serve(
    settings: ServeSettings, masters: int, schedule: list[tuple[float, list[str]]], acl_file: bytes | None
) -> None:
    import asyncio

    from orderlab.sim.redis.wire.served_cluster import ServedCluster
    from orderlab.sim.redis.wire.served_faults import strike_by
    from orderlab.sim.redis.wire.served_node import ServedNode

    served = ServedCluster(masters, settings) if masters else ServedNode(settings)
    nodes = served.nodes if isinstance(served, ServedCluster) else [served]
    if acl_file is not None:
        from orderlab.sim.redis.acl_file import read_users

        for node in nodes:
            node.permissions.install(read_users(acl_file))
            node.server_settings.note(b"aclfile", acl_file)
    await served.start()
    try:
        _tell(nodes, bool(masters))
        await strike_by(schedule, nodes[0].faults, lambda text: tell("orderlab", text))
        await asyncio.Event().wait()
    finally:
        await served.stop()


def _tell(nodes: list[ServedNode], is_cluster: bool) -> None:
    settings = nodes[0].settings
    clock = "virtual" if settings.virtual_clock else "real"
    what = f"a cluster of {len(nodes)} simulated masters," if is_cluster else "a simulated"
    ports = ", ".join(str(node.port) for node in nodes)
    print(f"serving {what} {settings.version} on {settings.host}:{ports} ({clock} clock); Ctrl-C ends it")
    print(f"  redis-cli {'-c ' if is_cluster else ''}-h {settings.host} -p {nodes[0].port}", flush=True)


def _print_lacking() -> None:
    import textwrap

    from orderlab.sim.redis.versions import DEFAULT
    from orderlab.sim.redis.wire.lacking import fixed_settings, lacking_commands

    for title, names in (
        (f"commands of {DEFAULT} that are an error here, by name", lacking_commands()),
        ("settings that CONFIG SET does not change here", fixed_settings()),
    ):
        print(f"{title} ({len(names)}):")
        print(textwrap.fill(", ".join(names), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
