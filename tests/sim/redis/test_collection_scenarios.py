"""Corner cases of the commands, told as scenarios: the kernel and a real server must answer as written.

A file of ``scenarios/`` holds blocks: a title behind ``#``, then one command a line, its reply behind ``->``. In
commands ``{1..9}`` is all the numbers from 1 to 9, ``{m*65}`` is 65 times m, and quotes work as in a shell. Replies: an
integer, a "bulk string", nil, [an array], +a status, !an error, ,a double, (a set), {a map}, ? for whatever comes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.replies import ErrorReply, Reply, Status
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

FILES = sorted(Path(__file__).with_name("scenarios").glob("*.txt"))


@dataclass(frozen=True)
class Scenario:
    title: str
    steps: tuple[tuple[str, str], ...]


def read(path: Path) -> Iterator[Scenario]:
    for block in path.read_text().split("\n\n"):
        title, *lines = block.strip().splitlines()
        steps = tuple((command, reply) for command, _, reply in (line.partition(" -> ") for line in lines))
        yield Scenario(f"{path.stem}: {title.removeprefix('# ')}", steps)


SCENARIOS = [scenario for path in FILES for scenario in read(path)]


def arguments(command: str) -> tuple[bytes, ...]:
    words: list[str] = []
    for word in shlex.split(command):
        if numbers := re.fullmatch(r"\{(-?\d+)\.\.(-?\d+)\}", word):
            words += map(str, range(int(numbers[1]), int(numbers[2]) + 1))
        elif many := re.fullmatch(r"\{(.)\*(\d+)\}", word):
            words.append(many[1] * int(many[2]))
        else:
            words.append(word)
    if words[0] == "ZADD" and any(".." in word for word in shlex.split(command)):  # one score for all the numbers
        words = [*words[:3], *f" {words[2]} ".join(words[3:]).split()]
    return tuple(word.encode("latin1").decode("unicode_escape").encode("latin1") for word in words)


def shown(reply: Reply) -> str:
    """A reply in the notation of the scenarios."""
    if reply is None:
        return "nil"
    if isinstance(reply, ErrorReply):
        return "!" + reply.message.decode()
    if isinstance(reply, Status):
        return "+" + reply.decode()
    if isinstance(reply, bytes):
        return '"' + repr(reply)[2:-1] + '"'
    if isinstance(reply, float):
        return f",{reply:.17g}"
    if isinstance(reply, list):
        return "[" + " ".join(map(shown, reply)) + "]"
    if isinstance(reply, set):
        return "(" + " ".join(sorted(map(shown, reply))) + ")"
    if isinstance(reply, dict):
        return "{" + " ".join(f"{shown(key)}: {shown(value)}" for key, value in reply.items()) + "}"
    return str(reply)


def play(scenario: Scenario, execute: Callable[[tuple[bytes, ...]], Reply]) -> None:
    for command, expected in scenario.steps:
        reply = shown(execute(arguments(command)))
        assert expected in (reply, "?"), f"{command} -> {reply}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title)
def test_on_the_kernel(scenario: Scenario) -> None:
    shard = Shard()
    shard.now_ms = 1_700_000_000_000
    play(scenario, shard.execute)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


@pytest.mark.server
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title)
def test_on_a_server(scenario: Scenario, server: ServerProcess) -> None:
    connection = Connection(server.host, server.port)
    connection.demand(b"FLUSHALL")
    play(scenario, lambda argv: connection.execute(*argv))
    connection.close()


def test_a_wrong_answer_is_noticed() -> None:
    with pytest.raises(AssertionError, match="ZCARD k"):
        play(Scenario("wrong", (("ZADD k 1 a", "1"), ("ZCARD k", "2"))), Shard().execute)
