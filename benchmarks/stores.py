"""Session stores side by side on a real server: commands and µs of a single-message save, bytes of a waiting message.

``python -m benchmarks.stores FOLDER...``. Each store gets the same messages in the same order (62 bytes of payload, a
topic of 16), first for many clients with few messages each, then for few clients with many. µs are the server's own
count (``INFO commandstats``, EVALSHA), bytes what its memory grew by: both without the network and without the client.
At the end the operations that block a node longest, at the default limit: on a full queue of 10,000.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding import Binding, Message, Result, load_binding

SAVES = 50_000
LIMIT = 10_000
SHAPES = {"many clients, 50 messages each": 1000, "few clients, 5000 messages each": 10}
PIPELINE = 500
PAYLOAD = b"x" * 62


def statistics_of(connection: Connection, section: bytes) -> dict[str, str]:
    """One section of INFO."""
    lines = connection.demand(b"INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def measure(binding: Binding, connection: Connection, clients: int) -> tuple[float, float, float]:
    """(inner commands per save, µs per save, bytes per message that waits)."""
    connection.demand(b"FLUSHALL")
    for script in binding.scripts:
        connection.demand(b"SCRIPT", b"LOAD", script.source)
    names = [b"client-%05d" % number for number in range(clients)]
    if "open" in binding.operations:
        for name in names:
            connection.demand(*_argv(binding, "open", name))
    used = int(statistics_of(connection, b"memory")["used_memory"])
    connection.demand(b"CONFIG", b"RESETSTAT")
    saves = []
    for number in range(SAVES):
        name = names[number % clients]
        messages = (Message(PAYLOAD, b"device/%09d" % (number % clients)),)
        saves.append(_argv(binding, "save", name, producer=b"7", batch=number + 1, messages=messages))
    for start in range(0, SAVES, PIPELINE):
        connection.pipeline(saves[start : start + PIPELINE])
    told = statistics_of(connection, b"commandstats")
    counts = {
        name.removeprefix("cmdstat_"): dict(part.split("=") for part in text.split(",")) for name, text in told.items()
    }
    spent = float(counts.pop("evalsha")["usec_per_call"])
    inner = sum(int(count["calls"]) for name, count in counts.items() if not name.startswith(("config", "info")))
    grown = int(statistics_of(connection, b"memory")["used_memory"]) - used
    return inner / SAVES, spent, grown / SAVES


def measure_longest(binding: Binding, connection: Connection) -> dict[str, float]:
    """ms of single operations on a full queue."""
    times: dict[str, float] = {}

    def run(what: str, operation: str, **fields: object) -> None:
        connection.demand(b"CONFIG", b"RESETSTAT")
        connection.demand(*_argv(binding, operation, b"c", **fields))
        spent = statistics_of(connection, b"commandstats")["cmdstat_evalsha"]
        times[what] = float(spent.split("usec=")[1].split(",")[0]) / 1000

    batch_max = binding.operation("save").batch_max or LIMIT
    size = min(1000, batch_max)
    connection.demand(b"FLUSHALL")
    if "open" in binding.operations:
        run("open", "open", epoch=1)
    for number in range(LIMIT // size):
        run("fill", "save", batch=number + 1, messages=(Message(PAYLOAD),) * size)
    run(f"save of {size}, trimming as many", "save", batch=LIMIT + 1, messages=(Message(PAYLOAD),) * size)
    run("fetch of everything", "fetch", count=LIMIT)
    if "open" in binding.operations:
        run("clean start over it", "open", epoch=2, clean_start=1)
    else:
        run("clear", "clear")
    return {what: spent for what, spent in times.items() if what not in ("open", "fill")}


def _argv(binding: Binding, operation: str, client: bytes, **fields: object) -> tuple[bytes, ...]:
    call = binding.call(operation, client=client, **fields)
    assert not isinstance(call, Result)
    return call.argv


def main(folders: list[str]) -> None:
    """Print one line for each store and shape."""
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        print(f"{server.binary}; per single-message save, and per message that waits")
        for shape, clients in SHAPES.items():
            for folder in folders:
                commands, spent, size = measure(load_binding(Path(folder)), connection, clients)
                print(f"{shape:32} {folder:24} {commands:5.2f} commands {spent:6.1f} µs {size:7.0f} bytes")
        for folder in folders:
            for what, milliseconds in measure_longest(load_binding(Path(folder)), connection).items():
                print(f"{LIMIT} messages wait: {what:32} {folder:24} {milliseconds:6.2f} ms")
        connection.close()


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(lambda: main(sys.argv[1:] or ["lua/session", "lua/pending", "lua/specimens/published"]), "stores")
