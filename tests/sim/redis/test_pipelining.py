"""Commands together give what they give one by one, whatever the node's condition."""

import hashlib

import pytest

from orderlab.sim.redis.shard import Shard, execute_all

PUSH = b"return redis.call('RPUSH', KEYS[1], ARGV[1])"
BREAK = b"return redis.call('INCR', KEYS[1])"
FLAGGED = b"#!lua flags=no-writes\nreturn redis.call('LLEN', KEYS[1])"


def sha(source):
    return hashlib.sha1(source).hexdigest().encode()


def call(source, *arguments, keys=b"1"):
    return (b"EVALSHA", sha(source), keys, b"list", *arguments)


COMMANDS = {
    "scripts": [call(PUSH, b"a"), call(PUSH, b"b"), call(FLAGGED)],
    "an error among them": [call(PUSH, b"a"), call(BREAK), call(PUSH, b"b")],
    "no such script": [call(PUSH, b"a"), call(b"return 1"), call(PUSH, b"b")],
    "a bad count of keys": [
        call(PUSH, keys=b"2"),
        call(PUSH, keys=b"x"),
        call(PUSH, keys=b"-1"),
        (b"EVALSHA", sha(PUSH)),
    ],
    "a transaction": [(b"MULTI",), call(PUSH, b"a"), call(PUSH, b"b"), (b"EXEC",)],
    "out of memory from the second on": [call(PUSH, b"a"), (b"CONFIG", b"SET", b"maxmemory", b"1"), call(PUSH, b"b")],
    "scripts forgotten in between": [call(PUSH, b"a"), (b"SCRIPT", b"FLUSH"), call(PUSH, b"b")],
}


def loaded():
    shard = Shard()
    for source in (PUSH, BREAK, FLAGGED):
        shard.execute((b"SCRIPT", b"LOAD", source))
    return shard


def condition_is_replica(shard):
    shard.is_replica = True


def condition_records_effects(shard):
    shard.effects = []


CONDITIONS = {"calm": lambda node: None, "replica": condition_is_replica, "effects": condition_records_effects}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("commands", COMMANDS)
def test_together_as_one_by_one(commands, condition):
    together, singly = loaded(), loaded()
    for shard in (together, singly):
        CONDITIONS[condition](shard)
    replies = execute_all(together, COMMANDS[commands])
    assert [repr(reply) for reply in replies] == [repr(singly.execute(argv)) for argv in COMMANDS[commands]]
    assert together.freeze() == singly.freeze()
    assert together.effects == singly.effects
