"""The rows of ``error_conditions``: each condition raises what it says, where it says, on a shard and on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.conditions import NodeCrashed, ScriptKilled
from orderlab.sim.redis.error_conditions import (
    BUSY,
    CONDITIONS,
    CRASHED,
    DISK_ERROR,
    KILLED,
    OUT_OF_MEMORY,
    READ_ONLY,
    SLOT_MIGRATES,
    STALE,
    WRONG_TYPE_FOUND,
    Argv,
    Condition,
    conditions,
    expects_a_type,
    imposed,
    strikes,
)
from orderlab.sim.redis.lua.script_run import ScriptRun
from orderlab.sim.redis.registry import COMMANDS, load_commands
from orderlab.sim.redis.replies import WRONG_TYPE, ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.wire import Connection

load_commands()
GET, SET, DEL, TIME = (b"GET", b"k"), (b"SET", b"k", b"v"), (b"DEL", b"k"), (b"TIME",)


@dataclass(frozen=True, slots=True)
class ArgumentError:
    """An error that lies in the arguments, or in what they meet: an example of it on an empty keyspace."""

    given: tuple[Argv, ...]
    """Commands that come before."""
    argv: Argv
    error: bytes


def argument_errors() -> Iterator[ArgumentError]:
    """The errors that arguments of commands can raise, at any call of a script. Nothing can impose them: whoever calls
    the script gives the arguments, and a script that checks them first is safe."""
    for line in (Path(__file__).parent / "argument_errors.txt").read_text().splitlines():
        calls, _, error = line.partition(" -> ")
        *given, argv = (tuple(call.encode().split()) for call in calls.split("; "))
        yield ArgumentError(tuple(given), argv, error.encode())


ARGUMENT_ERRORS = list(argument_errors())


def shown(argv: Sequence[bytes]) -> str:
    return b" ".join(argv).decode()


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        yield connection
        connection.close()


@pytest.mark.parametrize("example", ARGUMENT_ERRORS, ids=lambda example: shown(example.argv))
def test_an_argument_error_on_the_kernel(example: ArgumentError) -> None:
    shard = Shard()
    shard.now_ms = 1_700_000_000_000
    for argv in example.given:
        assert not isinstance(shard.execute(argv), ErrorReply)
    before = shard.freeze()
    assert shard.execute(example.argv) == ErrorReply(example.error)
    assert shard.freeze() == before, "an error leaves everything as it was"


@pytest.mark.server
def test_argument_errors_on_a_server(connection: Connection) -> None:
    for example in ARGUMENT_ERRORS:
        connection.demand(b"FLUSHALL")
        for argv in example.given:
            connection.demand(*argv)
        assert (example.argv, connection.execute(*example.argv)) == (example.argv, ErrorReply(example.error))


TYPED_ARGUMENTS = {b"set": (b"k", b"v", b"GET")}


def calls_of(name: bytes) -> Iterator[tuple[bytes, ...]]:
    """Plausible calls of a command on the key ``k``, with enough numbers to pass for any argument."""
    if name in (b"eval", b"evalsha", b"fcall", b"eval_ro", b"evalsha_ro", b"fcall_ro", b"debug", b"command"):
        return
    yield (name, *TYPED_ARGUMENTS.get(name, (b"k",)))
    for count in range(1, 6):
        yield (name, b"k", *[b"1"] * count)
        yield (name, b"1", *[b"k"] * count)
        yield (name, b"1", b"k", *[b"1"] * count)
        yield (name, b"1", b"k", *[b"MIN"] * count)
        yield (name, b"1", b"k", *[b"LEFT"] * count)
        yield (name, b"k", b"k", b"LEFT", b"LEFT", *[b"1"] * (count - 1))
        yield (name, b"k", b"BEFORE", *[b"1"] * count)
        yield (name, b"k", b"[a", *[b"[b"] * count)
        yield (name, b"AND", *[b"k"] * count)
        yield (name, b"k", b"GET", *[b"u8"] * count)
        yield (name, b"k", b"1", b"k", *[b"1"] * count)


def test_the_typed_commands_are_those_that_refuse_a_type() -> None:
    refusing = set()
    for name in COMMANDS:
        for argv in calls_of(name):
            for value in (("string", b"5", None), ("list", (b"5",), None)):
                shard = Shard()
                shard.load({b"k": value})
                with suppress(UnsupportedCommand):  # what only connections can ask
                    if shard.execute(argv) == ErrorReply(WRONG_TYPE):
                        refusing.add(name)
    said = {name for name, found in COMMANDS.items() if expects_a_type(found)}
    assert said - refusing <= {
        b"bitfield",
        b"bitfield_ro",
        b"lcs",
        b"lmpop",
        b"zmpop",
        b"blmpop",
        b"bzmpop",
        b"xread",
        b"xreadgroup",
        b"xtrim",
    }
    assert refusing <= said


def test_what_can_stop_which_command() -> None:
    def names(command: bytes) -> set[str]:
        return {condition.name for condition in conditions(command)}

    always = {"stale-replica", "busy", "killed", "crashed"}
    writes = {"read-only", "too-few-replicas", "disk-error", "disk-full"}
    assert names(b"TIME") == always
    assert names(b"get") == always | {"wrong-type", "slot-migrates"}
    assert names(b"EXISTS") == always | {"slot-migrates"}
    assert names(b"del") == always | writes | {"slot-migrates"}
    assert names(b"zrem") == always | writes | {"wrong-type", "slot-migrates"}
    assert names(b"zadd") == always | writes | {"wrong-type", "slot-migrates", "out-of-memory"}
    assert names(b"flushall") == always | writes
    with pytest.raises(KeyError):
        conditions(b"nonsense")


def test_what_can_still_strike_after_a_write() -> None:
    assert [condition.name for condition in CONDITIONS if strikes(condition, SET, wrote=True)] == [
        "wrong-type",
        "slot-migrates",
        "crashed",
    ]
    assert not strikes(CRASHED, (b"nonsense",), wrote=False)


SCRIPT = (TIME, GET, DEL, SET)
WRITES_NOTHING = (b"DEL", b"nothing")


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_a_condition_strikes_the_calls_that_it_says_and_no_others(condition: Condition) -> None:
    if condition in (STALE, BUSY):
        pytest.skip("refuses the script as a whole")
    for call in SCRIPT:
        assert_strikes(condition, (), call)
        if condition in (KILLED, CRASHED) or not strikes(condition, WRITES_NOTHING, wrote=False):
            assert_strikes(condition, (WRITES_NOTHING,), call)


def assert_strikes(condition: Condition, earlier: tuple[tuple[bytes, ...], ...], call: tuple[bytes, ...]) -> None:
    """Call ``call`` in a script that has made the ``earlier`` calls, with the condition imposed all the time."""
    shard = Shard()
    if condition is not SLOT_MIGRATES:
        shard.execute(SET)
    with imposed(shard, condition, key=b"k", before_call=len(earlier)):
        shard.execute((b"PING",))
        run = ScriptRun.begin(shard, None, False)
        for argv in earlier:
            run.call(argv)
        error = outcome(run.call, call)
    expected = strikes(condition, call, wrote=bool(earlier))
    if condition is WRONG_TYPE_FOUND and call == SET:
        expected = False  # SET expects a type only with GET
    assert (error is not None) == expected, (earlier, call, error)
    if expected and condition.error is not None:
        assert error == ErrorReply(condition.error)


def outcome(call: Callable[[Sequence[bytes]], object], argv: tuple[bytes, ...]) -> Exception | None:
    try:
        call(argv)
    except (ErrorReply, ScriptKilled, NodeCrashed) as error:
        return error
    return None


@pytest.mark.server
@pytest.mark.parametrize("condition", [one for one in CONDITIONS if one.enter], ids=lambda condition: condition.name)
def test_a_server_in_the_condition_says_the_same(condition: Condition, connection: Connection) -> None:
    connection.demand(b"FLUSHALL")
    body = b"local e = redis.pcall(unpack(ARGV)) return type(e) == 'table' and e.err or 'fine'"
    for argv in condition.enter:
        connection.demand(*argv)
    try:
        for call in SCRIPT:
            theirs = connection.execute(b"EVAL", body, b"0", *call)
            if condition.error is None:
                assert theirs == ErrorReply(condition.client_error or b"")
            elif strikes(condition, call, wrote=False):
                assert theirs == condition.error
            else:
                assert theirs == b"fine"
    finally:
        for argv in condition.leave:
            connection.demand(*argv)


def _attributes(shard: Shard) -> dict[str, object]:
    """All that a shard consists of; a compiled one has no ``vars``."""
    names = [name for name in dir(shard) if not name.startswith("__") and not callable(getattr(shard, name))]
    return {name: getattr(shard, name) for name in names} | {"config": repr(shard.config)}


def test_a_condition_leaves_no_trace() -> None:
    for condition in CONDITIONS:
        shard = Shard()
        shard.execute(SET)
        attributes = _attributes(shard)
        with imposed(shard, condition, key=b"k"):
            assert _attributes(shard) != attributes or condition is WRONG_TYPE_FOUND
        assert _attributes(shard) == attributes
        assert shard.execute(GET) == b"v"


def test_a_planted_value_that_was_replaced_stays_replaced() -> None:
    shard = Shard()
    shard.execute(SET)
    with imposed(shard, WRONG_TYPE_FOUND, key=b"k"):
        assert shard.execute(GET) == ErrorReply(WRONG_TYPE)
        shard.execute((b"SET", b"k", b"new"))
    assert shard.execute(GET) == b"new"
    with imposed(shard, WRONG_TYPE_FOUND, key=b"missing"):
        assert shard.execute((b"TYPE", b"missing")) == b"list"
    assert shard.execute((b"EXISTS", b"missing")) == 0


def test_a_crash_takes_the_script_back_and_a_kill_comes_too_late_after_a_write() -> None:
    shard = Shard()
    script = (b"EVAL", b"redis.call('SET', KEYS[1], 1) redis.call('INCR', KEYS[1]) return 1", b"1", b"k")
    with imposed(shard, CRASHED, before_call=1), pytest.raises(NodeCrashed):
        shard.execute(script)
    assert shard.freeze() == {}
    assert shard.undo is None
    with imposed(shard, KILLED, before_call=1):
        assert shard.execute(script) == 1
    assert shard.execute(GET) == b"2"
    with imposed(shard, KILLED, before_call=0):
        assert isinstance(shard.execute(script), ErrorReply)
    assert shard.execute(GET) == b"2"


@pytest.mark.parametrize(
    ("first", "second"), [(OUT_OF_MEMORY, READ_ONLY), (OUT_OF_MEMORY, DISK_ERROR), (DISK_ERROR, READ_ONLY)]
)
def test_conditions_can_be_imposed_together(first: Condition, second: Condition) -> None:
    shard = Shard()
    with imposed(shard, first), imposed(shard, second):
        shard.execute((b"PING",))
        error = outcome(ScriptRun.begin(shard, None, False).call, SET)
    winner = READ_ONLY if READ_ONLY in (first, second) else DISK_ERROR
    assert error == ErrorReply(winner.error or b"")
