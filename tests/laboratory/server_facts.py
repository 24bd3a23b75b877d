"""Write what a server says of its commands and settings to ``orderlab/sim/redis/facts/``, from the server that
``ORDERLAB_REDIS_SERVER`` names or that is in the path: ``python -m tests.laboratory.server_facts``."""

from __future__ import annotations

import lzma
from pathlib import Path

import orderlab.sim.redis
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import Connection, encode_command
from tests.laboratory.conformance.bytes_on_wire import RawConnection

FACTS = Path(orderlab.sim.redis.__file__).parent / "facts"
OF_A_PROCESS = frozenset(
    (b"dir", b"port", b"save", b"bind", b"dbfilename", b"logfile", b"pidfile", b"enable-debug-command")
)
"""Settings of this server process, none of a server as it comes."""


def main() -> None:
    """Write both files."""
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
    for name, table in zip(("commands", "docs"), tables, strict=True):
        packed = lzma.compress(table, preset=9 | lzma.PRESET_EXTREME)
        (FACTS / f"{name}.resp.xz").write_bytes(packed)
    assert isinstance(settings, list)
    pairs = sorted(zip(settings[::2], settings[1::2], strict=True))
    lines = [b"%b %b\n" % pair for pair in pairs if pair[0] not in OF_A_PROCESS]
    (FACTS / "settings.txt").write_bytes(b"".join(lines))


if __name__ == "__main__":
    main()
