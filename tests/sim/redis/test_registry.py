"""The table of commands is the server's: names, arity, flags, key positions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis import unsupported
from orderlab.sim.redis.lua.script_run import ScriptRun
from orderlab.sim.redis.registry import COMMANDS, Command, find, load_commands, numbered_keys
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

load_commands()


def kernel_table() -> Iterator[Command]:
    for found in COMMANDS.values():
        if not found.subcommands:
            yield found
        yield from found.subcommands.values()


@pytest.fixture(scope="module")
def server_table() -> dict[bytes, Reply]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        rows = connection.demand(b"COMMAND")
        connection.close()
    return {row[0]: row for one in rows for row in (one, *one[9])}


@pytest.mark.server
@pytest.mark.parametrize("command", list(kernel_table()), ids=lambda command: command.name.decode())
def test_a_command_is_as_the_server_describes_it(command: Command, server_table: dict[bytes, Reply]) -> None:
    _, arity, flags, first, last, step, *_ = server_table[command.name]
    assert command.arity == arity
    assert sorted(command.flags) == sorted(map(bytes.decode, flags))
    assert command.positions == (first, last, step)


@pytest.mark.server
def test_every_command_of_the_server_is_either_carried_out_or_named_as_lacking(
    server_table: dict[bytes, Reply],
) -> None:
    names = {name for name in server_table if b"|" not in name}
    assert names == unsupported.SERVER_COMMANDS
    subcommands = {b"%b|%b" % (name, sub) for name, subs in unsupported.SERVER_SUBCOMMANDS.items() for sub in subs}
    assert {name for name in server_table if b"|" in name} == subcommands
    assert set(COMMANDS) <= names


@pytest.mark.parametrize(
    "argv",
    [
        *(
            (name, b"k")
            for name in sorted(
                unsupported.SERVER_COMMANDS
                - {*COMMANDS, *unsupported.NOT_FROM_SCRIPTS, *unsupported.SERVER_SUBCOMMANDS}
            )
        ),
        (b"MEMORY", b"STATS"),
        (b"cluster", b"Meet", b"x"),
        (b"MODULE",),
    ],
)
def test_a_lacking_command_is_an_error_that_names_the_other_backends(argv: tuple[bytes, ...]) -> None:
    shard = Shard()
    for call in (shard.execute, ScriptRun.begin(shard, None, False).call):
        with pytest.raises(unsupported.UnsupportedCommand, match=r"does not implement it; use --backend .*redis://"):
            call(argv)


@pytest.mark.server
def test_what_a_server_refuses_to_every_script_is_refused_by_the_kernel_too(server_table: dict[bytes, Reply]) -> None:
    refused = {name: row[1] for name, row in server_table.items() if b"noscript" in row[2]}
    known = {command.name for command in kernel_table()}
    assert {name: arity for name, arity in refused.items() if name not in known} == unsupported.NOT_FROM_SCRIPTS
    run = ScriptRun.begin(Shard(), None, False)
    for name, arity in unsupported.NOT_FROM_SCRIPTS.items():
        words = name.upper().split(b"|")
        wrong = arity + 1 if arity > 0 else max(-arity - 1, len(words))
        for size in {abs(arity), wrong}:
            with pytest.raises(ErrorReply) as raised:
                run.call([*words, *[b"x"] * (size - len(words))])
            said = b"not allowed from script" if size in (arity, -arity) else b"Wrong number"
            assert said in raised.value.message, (name, size)


def test_a_lacking_command_stays_one_sentence_on_its_way_between_processes() -> None:
    error = unsupported.UnsupportedCommand("GEOADD")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("argv", [(b"xadd2",), (b"CLIENT",), (b"CLIENT", b"nonsense"), (b"\xff",)])
def test_a_command_that_no_server_has_is_an_error_reply(argv: tuple[bytes, ...]) -> None:
    assert Shard().execute(argv).message.startswith(b"ERR ")


def test_a_name_is_found_in_whatever_case() -> None:
    assert find([b"gEt"]) is find([b"GET"]) is COMMANDS[b"get"]
    assert find([b"Config", b"gET"]) is COMMANDS[b"config"].subcommands[b"get"]
    assert find([b"config"]) is COMMANDS[b"config"]
    assert find([b"config", b"nonsense"]) is None


@pytest.mark.parametrize(
    ("argv", "keys"),
    [
        (b"EVAL s 2 a b c", [b"a", b"b"]),
        (b"EVAL s x a b c", []),
        (b"EVAL s -1 a", []),
        (b"EVAL s 9 a", []),
        (b"EVAL s 1x a", [b"a"]),
        (b"EVAL s 4294967297 a", [b"a"]),
        (b"EVAL s 99999999999999999999 a", []),
        (b"EVAL", []),
    ],
)
def test_keys_behind_their_number(argv: bytes, keys: list[bytes]) -> None:
    assert list(numbered_keys(2)(argv.split())) == keys


def test_keys_at_fixed_positions_come_with_numbered_ones() -> None:
    assert list(numbered_keys(2, 1)(b"ZUNIONSTORE d 2 a b WEIGHTS 1 2".split())) == [b"d", b"a", b"b"]
    assert list(numbered_keys(2, 1)([b"ZUNIONSTORE", b"d", b" 2", b"a", b"b"])) == [b"a", b"b", b"d"], (
        "as a server does"
    )
