"""The fixture ``orderlab_redis`` and fakeredis, asked the same as a server is: rows of
``notes/fixture-and-fakeredis.md``.

``python -m tests.laboratory.beside_fakeredis`` prints the rows; ``tests/sim/redis/wire/test_beside_fakeredis.py`` holds
the page against them. Speed is measured by ``--speed`` and held by nothing.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import fakeredis
import redis

from orderlab import exit_codes
from orderlab.properties.plugin.served import ServedRedis
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.unsupported import SERVER_COMMANDS

Ask = Callable[[Any], Any]
_APART: Final = frozenset(
    b"""
    shutdown quit monitor sync psync subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe
    """.split()
)
"""Commands that end a connection, or after which it waits for what is pushed."""


_PLACES: Final = re.compile(
    r"Error running script \(call to \w+\): |@?user_script:\S+ |\[string \S+:\d+: | script: \w+, on @.*"
)
TEXT_MAX: Final = 48
"""Letters of an error that the page shows."""
WAITERS: Final = 12
"""Clients that wait at one list: so many that an order which is left to chance is not that of their coming."""


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that a test may ask for, and how it is shown."""

    topic: str
    question: str
    ask: Ask


def _eval(script: str, *keys: str) -> Ask:
    return lambda client: client.eval(script, len(keys), *keys)


def _say(line: str) -> Ask:
    return lambda client: client.execute_command(*line.split())


def _known_commands(client: Any) -> int:
    """Of a server's commands, those that are not unknown. Each is called without arguments."""
    known = 0
    for name in sorted(SERVER_COMMANDS - _APART):
        try:
            client.execute_command(name.decode())
        except redis.RedisError as error:
            known += "unknown command" not in str(error) and "orderlab:" not in str(error)
        else:
            known += 1
    client.flushall()
    return known


def _script_under_user(client: Any) -> Any:
    client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~job:*", "+@all")
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command("AUTH", "worker", "pw")
        connection.read_response()
        connection.send_command("EVAL", "return redis.call('GET', 'other')", "0")
        return connection.read_response()
    finally:
        connection.disconnect()


def _encodings(client: Any) -> list[Any]:
    client.rpush("e:list", *range(600))
    client.sadd("e:set", 1, 2)
    client.hset("e:hash", "f", "v")
    return [client.execute_command("OBJECT", "ENCODING", key) for key in ("e:list", "e:set", "e:hash")]


def _restored(client: Any) -> Any:
    client.set("d", "value")
    with ServerProcess() as process:
        server = redis.Redis(port=process.port)
        server.restore("d", 0, client.dump("d"))
        return server.get("d")


def _out_of_memory(client: Any) -> Any:
    client.execute_command("CONFIG", "SET", "maxmemory", "1")
    try:
        return client.set("m", "x")
    finally:
        client.execute_command("CONFIG", "SET", "maxmemory", "0")


def _notified(client: Any) -> Any:
    client.config_set("notify-keyspace-events", "KEA")
    heard = client.pubsub()
    heard.psubscribe("__keyevent@0__:*")
    heard.get_message(timeout=1)
    client.set("n", "x")
    message = heard.get_message(timeout=3)
    heard.close()
    return None if message is None else message["channel"]


def _served_in_order(client: Any) -> Any:
    served: dict[int, int] = {}

    def wait(number: int) -> None:
        served[number] = int(client.blpop("w", timeout=10)[1])

    waiters = [threading.Thread(target=wait, args=(number,)) for number in range(WAITERS)]
    for number, waiter in enumerate(waiters, 1):
        waiter.start()
        _await_blocked(client, number)
    client.rpush("w", *range(WAITERS))
    for waiter in waiters:
        waiter.join()
    return "as they came" if all(number == element for number, element in served.items()) else "in another order"


def _await_blocked(client: Any, count: int) -> None:
    """Wait until so many clients wait, as INFO tells it; for a while, where it does not."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        try:
            if client.info("clients")["blocked_clients"] >= count:
                return
        except (redis.RedisError, KeyError):
            until_s = 0
        time.sleep(0.02)


def _longer_than_its_lease(client: Any) -> Any:
    client.set("t", "x", px=1)
    client.execute_command("DEBUG", "SLEEP", "0.01")
    return client.get("t")


POINTS: Final = (
    Point("commands", f"known, of {len(SERVER_COMMANDS - _APART)} asked for without arguments", _known_commands),
    Point("scripts", "`cmsgpack`", _eval("return #cmsgpack.pack({1, 2})")),
    Point("scripts", "`struct`", _eval("return #struct.pack('>I', 5)")),
    Point("scripts", "`bit`", _eval("return bit.bor(1, 2)")),
    Point("scripts", "`cjson`", _eval("return cjson.encode({1, {a = 1}})")),
    Point("scripts", "Python from a script: `python.eval`", _eval("return python.eval('1+1')")),
    Point("scripts", "an error of a command", _eval("redis.call('SET', 's', 'x') return redis.call('INCR', 's')")),
    Point("scripts", "a shebang with flags", _eval("#!lua flags=no-writes\nreturn redis.call('SET', 'a', 'b')")),
    Point("scripts", "EVAL_RO that writes", lambda c: c.eval_ro("return redis.call('SET','a','b')", 0)),
    Point("scripts", "FCALL", lambda c: (
        c.function_load("#!lua name=l\nredis.register_function('f', function(k, a) return 1 end)", replace=True),
        c.fcall("f", 0),
    )[1]),
    Point("scripts", "SCRIPT KILL", _say("SCRIPT KILL")),
    Point("users", "a script under a user without its key", _script_under_user),
    Point("users", "ACL DRYRUN", _say("ACL DRYRUN default GET k")),
    Point("keys", "OBJECT ENCODING of a long list, a set of numbers, a short hash", _encodings),
    Point("keys", "DUMP, restored on a server", _restored),
    Point("keys", "a deadline that passes in DEBUG SLEEP", _longer_than_its_lease),
    Point("keys", "MEMORY USAGE is a number", lambda c: (c.set("u", "x"), c.memory_usage("u") > 0)[1]),
    Point("conditions", "SET with maxmemory 1", _out_of_memory),
    Point("conditions", "a keyspace notification", _notified),
    Point("administration", "INFO commandstats", lambda c: "cmdstat_set" in c.info("commandstats")),
    Point("administration", "CONFIG GET maxmemory", lambda c: c.config_get("maxmemory")),
    Point("administration", "SLOWLOG LEN", lambda c: c.slowlog_len() >= 0),
    Point("administration", "COMMAND GETKEYS", lambda c: c.command_getkeys("SET", "a", "b")),
    Point("administration", "WAIT", _say("WAIT 0 0")),
    Point("waiting", f"{WAITERS} wait at a list, as many elements come", _served_in_order),
    Point("cluster", "CLUSTER KEYSLOT", _say("CLUSTER KEYSLOT a")),
    Point("lacking", "CLIENT TRACKING ON", _say("CLIENT TRACKING ON")),
    Point("versions", "HEXPIRE of a server that calls itself 7.0", _say("HEXPIRE h 10 FIELDS 1 f")),
)  # fmt: skip


def answered(client: Any, point: Point) -> str:
    """What is answered, as the page shows it."""
    try:
        reply = point.ask(client)
    except redis.RedisError as error:
        text = str(error)
        known = next((each for each in ("unknown command", "orderlab:") if each in text), None)
        text = _PLACES.sub("", text).split("\n")[0]
        return {"unknown command": "unknown command", "orderlab:": "refused by name"}.get(known or "", text[:TEXT_MAX])
    except (AttributeError, TypeError) as error:
        return f"{type(error).__name__} in fakeredis"
    return shown(reply)


def shown(reply: Any) -> str:
    """A reply in short."""
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    if isinstance(reply, list):
        return ", ".join(map(shown, reply))
    if isinstance(reply, dict):
        return ", ".join(f"{shown(key)}={shown(value)}" for key, value in reply.items())
    return str(reply)


def rows() -> list[tuple[str, str, str, str, str]]:
    """Topic, question, and the answers of a server, the fixture and fakeredis."""
    with ServerProcess() as process, ServedRedis() as served:
        clients = (redis.Redis(port=process.port), served.client(), fakeredis.FakeRedis(version=(7, 0)))
        return [
            (point.topic, point.question, *(answered(client, point) for client in clients))  # type: ignore[misc]
            for point in POINTS
        ]


def table() -> str:
    """The rows as the page has them."""
    lines = ["| topic | asked | a server | the fixture | fakeredis |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows()]
    return "\n".join(lines) + "\n"


def speeds(seconds: float = 2.0) -> dict[str, tuple[float, float, float]]:
    """Calls a second of one client, one after the other: a server, the fixture, fakeredis."""
    script = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    with ServerProcess() as process, ServedRedis() as served:
        clients = (redis.Redis(port=process.port), served.client(), fakeredis.FakeRedis(version=(7, 0)))
        asked: dict[str, Callable[[Any], Any]] = {
            "SET": lambda client: client.set("k", "v"),
            "EVALSHA of SET and GET": lambda client: client.evalsha(client.script_load(script), 1, "k", "v"),
        }
        return {name: tuple(_rate(client, ask, seconds) for client in clients) for name, ask in asked.items()}  # type: ignore[misc]


def _rate(client: Any, ask: Callable[[Any], Any], seconds: float) -> float:
    count, end_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        ask(client)
        count += 1
    return count / seconds


def main() -> None:
    """Print the table, or with ``--speed`` how many calls a second each answers."""
    if "--speed" in sys.argv:
        for asked, rates in speeds().items():
            print(asked, *(f"{rate:,.0f}/s" for rate in rates))
    else:
        print(table(), end="")


if __name__ == "__main__":
    exit_codes.run(main, "beside_fakeredis")
