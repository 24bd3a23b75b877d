"""Servers of other versions: what a client and a script are told there, as those servers say it."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path

import pytest
import redis

from orderlab.model.errors import InputError
from orderlab.properties.plugin.served import ServedRedis
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.replies import SYNTAX_ERROR, WRONG_TYPE, ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.versions import DEFAULT, VERSIONS, version_named
from tests.in_process import orderlab

REFUSED_BY_6_2 = b"ERR unknown command `LMPOP`, with args beginning with: `1`, `k`, `LEFT`, "
POP = b"return redis.call('LMPOP', 1, KEYS[1], 'LEFT')"


def said(server: str, *argv: str) -> Reply:
    """The reply of a node of that version."""
    reply = Shard(version=VERSIONS[server]).execute([word.encode() for word in argv])
    return reply.message.decode() if isinstance(reply, ErrorReply) else reply


@pytest.mark.parametrize(
    ("server", "script", "message"),
    [
        (
            "6.2",
            "return redis.call('lmpop')",
            "ERR Error running script (call to f_2b2d8d7ac8ee7d9a1e8b3c8fd0ae7e3b2fdd8f4a): @user_script:1: "
            "@user_script: 1: Unknown Redis command called from Lua script",
        ),
        ("6.2", "return redis.pcall('lmpop')", "@user_script: 1: Unknown Redis command called from Lua script"),
        ("6.2", "return redis.error_reply('x')", "x"),
        ("6.2", "return redis.error_reply()", "@user_script: 1: wrong number or type of arguments"),
        (
            "6.2",
            "#!lua flags=no-writes\nreturn 1",
            "ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
        ),
        ("7.4", "return redis.pcall('x')", "ERR Unknown Redis command called from script"),
        ("valkey-8", "return redis.pcall('x')", "ERR Unknown command called from script"),
    ],
)
def test_a_script_is_told_in_the_words_of_its_server(server: str, script: str, message: str) -> None:
    told = said(server, "EVAL", script, "0")
    assert isinstance(told, str)
    assert told.split("f_")[0] == message.split("f_")[0]
    assert told.split(": ")[-1] == message.split(": ")[-1]


def test_a_command_is_unknown_before_its_release() -> None:
    assert said("6.2", "LMPOP", "1", "k", "LEFT") == REFUSED_BY_6_2.decode()
    assert said("7.0", "LMPOP", "1", "k", "LEFT") is None
    assert said("6.2", "EXPIRE", "k", "1", "NX") == "ERR wrong number of arguments for 'expire' command"
    told = said("6.2", "CLIENT", "FOO")
    assert told == "ERR Unknown subcommand or wrong number of arguments for 'FOO'. Try CLIENT HELP."


def test_commands_that_wait_may_be_called_by_scripts_of_7_2() -> None:
    assert said("7.2", "EVAL", "return redis.call('BLPOP', 'k', 1)", "0") is None
    assert "not allowed" in str(said("7.0", "EVAL", "return redis.call('BLPOP', 'k', 1)", "0"))


def test_a_server_says_who_it_is() -> None:
    assert said("7.4", "EVAL", "return redis.REDIS_VERSION", "0") == b"7.4.1"
    assert said("valkey-8", "EVAL", "return redis.REDIS_VERSION", "0") == b"7.2.4"
    assert said("6.2", "EVAL", "return redis.REDIS_VERSION", "0") is None
    information = said("valkey-8", "INFO", "server")
    assert b"redis_version:7.2.4\r\n" in bytes(information)
    assert b"valkey_version:8.1.8\r\n" in bytes(information)


def test_nodes_of_different_versions_share_no_lua_state() -> None:
    backends = [KernelBackend(version=VERSIONS[name]) for name in ("6.2", "7.0", "6.2")]
    replies = [backend.eval(POP, [b"k"]) for backend in backends]
    assert isinstance(replies[0], ErrorReply)
    assert replies == [replies[0], None, replies[0]]


def test_a_version_is_one_object_in_every_process() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) is DEFAULT
    with pytest.raises(InputError, match=r"--server 5: .* give one of 6\.2, 7\.0, 7\.2, 7\.4, 8\.0, valkey-8"):
        version_named("5")


@pytest.mark.orderlab_redis(server="6.2")
def test_the_fixture_serves_another_version(orderlab_redis: ServedRedis) -> None:
    client = orderlab_redis.client()
    with pytest.raises(redis.ResponseError) as refused:
        client.execute_command("LMPOP", 1, "k", "LEFT")
    assert REFUSED_BY_6_2.removeprefix(b"ERR ").decode().strip() in str(refused.value)
    assert client.info()["redis_version"] == "6.2.14"


def test_validate_runs_scripts_on_the_server_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "pop.lua").write_bytes(POP)
    newer = orderlab("validate", tmp_path, "--effort", "0.01", "--backend", "kernel")
    assert "2 hold: one-slot, bounded" in newer.stdout
    older = orderlab("validate", tmp_path, "--effort", "0.01", "--backend", "kernel", "--server", "6.2")
    assert "pop.lua could not be run" in older.stdout
    assert "LMPOP came with Redis 7.0" in older.stdout
    assert "assumed: the server is Redis 6.2.14" in older.stdout


def test_validate_takes_the_server_from_the_store(tmp_path: Path) -> None:
    store = tmp_path / "lock"
    store.mkdir()
    for file in Path("orderlab/lua/lock").iterdir():
        if file.is_file():
            (store / file.name).write_bytes(file.read_bytes())
    binding = store / "store.toml"
    binding.write_text('server = "6.2"\n' + binding.read_text())
    told = orderlab(
        "validate", store, "--trust-adapter", "--effort", "0.01", "--backend", "kernel", "--law", "one-slot"
    )
    assert "assumed: the server is Redis 6.2.14" in told.stdout
    binding.write_text(binding.read_text().replace('"6.2"', '"6.1"'))
    told = orderlab("validate", store, "--trust-adapter")
    assert told.returncode == 2
    assert 'server: unknown value "6.1"' in told.stderr


def test_a_script_with_a_first_line_for_newer_servers_is_told_so(tmp_path: Path) -> None:
    store = tmp_path / "limiter"
    shutil.copytree("orderlab/lua/limiter", store)
    script = next(store.glob("*.lua"))
    script.write_text("#!lua flags=no-writes\n" + script.read_text())
    told = orderlab("validate", store, "--trust-adapter", "--backend", "kernel", "--server", "6.2")
    assert told.returncode == 2
    assert "name a newer server: a first line #! came with Redis 7.0, and this is Redis 6.2.14" in told.stderr


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("validate", "lua/lock"), ("lint", "lua/lock")])
def test_an_unknown_server_is_one_line(command: tuple[str, ...]) -> None:
    told = orderlab(*command, "--server", "nine")
    assert told.returncode == 2
    assert re.fullmatch("orderlab: --server nine: .*valkey-8\n", told.stderr)


SAID_TO_SCRIPTS = [
    ("6.2", "return redis.call('CLIENT', 'FOO')", "This Redis command is not allowed from scripts"),
    ("6.2", "return redis.call('XGROUP', 'A')", "ERR Unknown subcommand or wrong number of arguments for 'A'."),
    ("6.2", "error({err = 'x'})", "err_handler_def:9: attempt to concatenate local 'err' (a table value)"),
    ("7.0", "return os.clock()", "nonexistent global variable 'os'"),
    ("7.4", "return os.clock() >= 0", 1),
    ("7.4", "return os.time()", "attempt to call field 'time' (a nil value)"),
    ("7.4", "return redis.call('ECHO', 0.1)", b"0.1"),
    ("7.0", "return redis.call('ECHO', 0.1)", b"0.10000000000000001"),
    ("7.0", "return server.call('PING')", "nonexistent global variable 'server'"),
    ("valkey-8", "return server.call('ECHO', server.SERVER_NAME)", b"valkey"),
    ("valkey-8", "return redis == server", 1),
    ("valkey-8", "server.call = 1", "Attempt to modify a readonly table"),
    ("6.2", "return {big_number = '1'}", []),
    ("7.2", "return redis.set_repl()", "redis.set_repl() requires one argument."),
]  # fmt: skip


@pytest.mark.parametrize(("server", "script", "reply"), SAID_TO_SCRIPTS)
def test_a_script_finds_what_its_server_has(server: str, script: str, reply: object) -> None:
    told = said(server, "EVAL", script, "0")
    assert told == reply or (isinstance(told, str) and isinstance(reply, str) and reply in told), told


def test_functions_of_valkey_are_registered_by_its_name() -> None:
    shard = Shard(version=VERSIONS["valkey-8"])
    library = b"#!lua name=l\nserver.register_function('f', function() return server.call('ECHO', 'x') end)"
    assert shard.execute((b"FUNCTION", b"LOAD", library)) == b"l"
    assert shard.execute((b"FCALL", b"f", b"0")) == b"x"


SAID = [
    ("6.2", "SET k v NX GET", "ERR syntax error"),
    ("6.2", "XADD x 1-* f v", "ERR Invalid stream ID specified as stream command argument"),
    ("6.2", "SETEX k 0 v", "ERR invalid expire time in setex"),
    ("6.2", "ZPOPMAX z -1", []),
    ("7.0", "ZPOPMAX z -1", "ERR value is out of range, must be positive"),
    ("6.2", "GEODIST g a b KM", "ERR unsupported unit provided. please use m, km, ft, mi"),
    ("7.0", "ZADD z INCR 0.1 m", b"0.10000000000000001"),
    ("7.4", "ZADD z INCR 0.1 m", b"0.1"),
    ("7.4", "ZADD z INCR 1e17 m", b"100000000000000000"),
    ("valkey-8", "ZADD z INCR 1e-7 m", b"1e-7"),
    ("7.4", "SSCAN s -1", "ERR invalid cursor"),
    ("7.4", "ZRANK z m WITHSCORE", None),
    ("7.0", "ZRANK z m WITHSCORE", "ERR wrong number of arguments for 'zrank' command"),
    ("7.4", "XREAD STREAMS x +", None),
    ("valkey-8", "SCAN 0 TYPE x", "ERR unknown type name 'x'"),
    ("valkey-8", "SET k v IFEQ w", None),
    ("7.4", "SET k v IFEQ w", "ERR syntax error"),
    ("valkey-8", "EVALSHA x 0", "NOSCRIPT No matching script."),
    ("7.4", "HEXPIRE h 1 FIELDS 1 f", [-2]),
    ("valkey-8", "HEXPIRE h 1 FIELDS 1 f", "ERR unknown command 'HEXPIRE', with args beginning with: 'h' '1' 'FIELDS' "
     "'1' 'f' "),
    ("7.4", "HGETDEL h FIELDS 1 f", "ERR unknown command 'HGETDEL', with args beginning with: 'h' 'FIELDS' '1' 'f' "),
    ("8.0", "HGETDEL h FIELDS 1 f", [None]),
]  # fmt: skip
"""Replies of the servers that `notes/servers.md` names."""


@pytest.mark.parametrize(("server", "line", "reply"), SAID, ids=[f"{server} {line}" for server, line, _ in SAID])
def test_a_command_replies_as_its_server_does(server: str, line: str, reply: object) -> None:
    assert said(server, *line.split()) == reply


def test_valkey_sets_a_key_that_holds_what_is_given() -> None:
    backend = KernelBackend(version=VERSIONS["valkey-8"])
    lines = (
        "SET k a;SET k b IFEQ x;SET k b IFEQ a EX 9;GET k;TTL k;SET k c GET IFEQ b;SET k d IFEQ c NX;LPUSH l a;"
        "SET l b IFEQ a"
    )
    replies = [backend.execute(*line.encode().split()) for line in lines.split(";")]
    assert replies[:6] == [b"OK", None, b"OK", b"b", 9, b"b"]
    assert [str(reply) for reply in replies[6::2]] == [str(ErrorReply(text)) for text in (SYNTAX_ERROR, WRONG_TYPE)]


def test_fields_of_a_hash_end_at_their_deadlines() -> None:
    backend = KernelBackend(version=VERSIONS["7.4"])

    def call(line: str) -> Reply:
        return backend.execute(*line.encode().split())

    call("HSET h a 1 b 2 c 3")
    assert call("HEXPIRE h 100 FIELDS 2 b z") == [1, -2]
    assert call("HPEXPIRE h 50 LT FIELDS 2 b a") == [1, 1]
    assert call("HGETALL h") == [b"a", b"1", b"b", b"2", b"c", b"3"]
    assert call("HPTTL h FIELDS 3 a c z") == [50, -1, -2]
    assert call("OBJECT ENCODING h") == b"listpackex"
    before = backend.keyspace()
    assert list(backend.deadlines_ms()) == [backend.now_ms + 50] * 2
    with backend.undone():
        for line in ("HSET h a 9", "HINCRBY h b 2", "HPERSIST h FIELDS 1 b", "HDEL h a", "HEXPIRE h 0 FIELDS 2 b c"):
            call(line)
        assert backend.keyspace() == {}
    assert backend.keyspace() == before
    backend.advance(51)
    assert backend.keyspace() == {b"h": ("hash", ("listpack", ((b"c", b"3"),)), None)}
    assert call("HGETALL h") == [b"c", b"3"]
    backend.load(before)
    assert call("EXISTS h") == 1
    assert call("HLEN h") == 1


def test_setting_a_field_ends_its_deadline_and_adding_to_it_does_not() -> None:
    backend = KernelBackend(version=VERSIONS["8.0"])
    lines = ["HSETEX h EX 9 FIELDS 1 f 1", "HINCRBY h f 1", "HTTL h FIELDS 1 f", "HSET h f 1", "HTTL h FIELDS 1 f"]
    assert [backend.execute(*line.encode().split()) for line in lines] == [1, 2, [9], 0, [-1]]
