"""Write what a server says of its commands and settings to ``orderlab/sim/redis/facts/``, from the server that
``ORDERLAB_REDIS_SERVER`` names or that is in the path: ``python -m tests.laboratory.server_facts``."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import orderlab.sim.redis
from orderlab import exit_codes
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.unsupported import SERVER_SUBCOMMANDS
from orderlab.sim.redis.wire import Connection, encode_command
from tests.laboratory.conformance.bytes_on_wire import RawConnection

FACTS = Path(orderlab.sim.redis.__file__).parent / "facts"
OF_A_PROCESS = frozenset(
    (b"dir", b"port", b"save", b"bind", b"dbfilename", b"logfile", b"pidfile", b"enable-debug-command")
)
"""Settings of this server process, none of a server as it comes."""


def _tagged(data: bytes, at: int) -> tuple[Any, int]:
    """A reply of RESP3 as JSON, its kinds kept and its maps and sets in order, and where it ends."""
    end = data.index(b"\r\n", at)
    kind, rest, after = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b"$":
        stop = after + int(rest)
        return "$" + data[after:stop].decode("latin1"), stop + 2
    if kind == b"+":
        return "+" + rest.decode("latin1"), after
    if kind in b"*~%":
        items: list[Any] = [kind.decode()]
        for _ in range(int(rest) * (2 if kind == b"%" else 1)):
            item, after = _tagged(data, after)
            items.append(item)
        return items, after
    assert kind in b":_", kind
    return (int(rest) if kind == b":" else None), after


def main() -> None:
    """Write the files."""
    with ServerProcess() as process:
        raw = RawConnection(process.host, process.port)
        raw.send(
            encode_command([b"HELLO", b"3"]) + encode_command([b"COMMAND"]) + encode_command([b"COMMAND", b"DOCS"])
        )
        hello, *tables = raw.replies(3)
        raw.close()
        connection = Connection(process.host, process.port)
        settings = connection.demand(b"CONFIG", b"GET", b"*")
        connection.close()
    assert b"7.0.15" in hello, hello
    with ServerProcess({"cluster-enabled": "yes"}) as process:  # for CLUSTER HELP
        connection = Connection(process.host, process.port)
        help_of = {name: connection.demand(name, b"HELP") for name in (*SERVER_SUBCOMMANDS, b"debug")}
        connection.close()
    for name, table in zip(("commands", "docs"), tables, strict=True):
        text = json.dumps(_tagged(table, 0)[0]).encode()
        (FACTS / f"{name}.json.xz").write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    pages = {name.decode(): [line.decode() for line in page] for name, page in help_of.items()}
    (FACTS / "help.json.xz").write_bytes(lzma.compress(json.dumps(pages).encode(), preset=9 | lzma.PRESET_EXTREME))
    assert isinstance(settings, list)
    pairs = sorted(zip(settings[::2], settings[1::2], strict=True))
    lines = [b"%b %b\n" % pair for pair in pairs if pair[0] not in OF_A_PROCESS]
    (FACTS / "settings.txt").write_bytes(b"".join(lines))


if __name__ == "__main__":
    exit_codes.run(main, "server_facts")
