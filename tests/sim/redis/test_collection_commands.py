"""Random commands on sorted sets, hashes, lists and sets: the kernel and a real server must agree on every reply, on
the count of changes, and on the keyspace with its encodings and deadlines; and a rollback takes every one of them back.

``GRAMMAR`` says what is drawn: per line a weight, a command and its arguments. A lower-case word is a choice from
``CHOICES``; an upper-case word is itself, in odd cases; ``x?`` is optional, ``x{a,b}`` repeated, ``(x y)`` a group,
``x|y`` a choice, and ``n#x`` stands for a count followed by that many ``x``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.keyspace import TYPE_NAMES
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.values import EncodingLimits, Hash, Set, SortedSet
from orderlab.sim.redis.values.hash_order import in_hash_order
from orderlab.sim.redis.wire import Connection

Argv = tuple[bytes, ...]
Make = Callable[[random.Random], list[bytes]]

COMMANDS_COMPARED = 2500
LIMITS = {
    "hash-max-listpack-entries": 6,
    "hash-max-listpack-value": 12,
    "zset-max-listpack-entries": 6,
    "zset-max-listpack-value": 12,
    "set-max-intset-entries": 6,
}
FAR_FUTURE_MS = 4_000_000_000_000
KEYS = {kind: [b"%b%d" % (kind.encode(), number) for number in range(4)] for kind in "zhls"}
ALL_KEYS = [key for keys in KEYS.values() for key in keys]

GRAMMAR = """
14 ZADD z zoption{0,2} (float m){1,4}
14 ZADD z float m
 3 ZINCRBY z float m
 4 ZREM z m{1,3}
 2 ZSCORE z m
 1 ZMSCORE z m{1,3}
 1 ZCARD z
 2 ZRANK z m
 1 ZREVRANK z m
 2 ZCOUNT z score score
 2 ZLEXCOUNT z lex lex
 3 ZRANGE z i i (REV|BYSCORE|BYLEX|LIMIT i i){0,2} WITHSCORES?
 4 ZRANGE z score score (REV|BYLEX|) BYSCORE (LIMIT i i)? WITHSCORES?
 4 ZRANGE z lex lex BYLEX (REV|BYSCORE|) (LIMIT i i)? (WITHSCORES|||)
 2 ZRANGESTORE z z i i (REV|BYSCORE|BYLEX|WITHSCORES|LIMIT i i|){1,2}
 2 ZRANGESTORE z z score score BYSCORE REV? (LIMIT i i)?
 2 ZRANGESTORE z z lex lex BYLEX REV? (LIMIT i i)?
 3 ZRANGEBYSCORE z score score (LIMIT i i)? WITHSCORES?
 3 ZREVRANGEBYSCORE z score score (WITHSCORES|LIMIT i i){0,2}
 3 ZRANGEBYLEX z lex lex (LIMIT i i)?
 3 ZREVRANGEBYLEX z lex lex (LIMIT i i|WITHSCORES)?
 3 ZREVRANGE z i i WITHSCORES?
 1 ZREMRANGEBYRANK z i i
 1 ZREMRANGEBYSCORE z score score
 1 ZREMRANGEBYLEX z lex lex
 2 ZPOPMIN z n? (n|)
 2 ZPOPMAX z n?
 2 ZMPOP n#z (MIN|MAX|where) (COUNT n)?
 2 BZMPOP time n#z (MIN|MAX|where) (COUNT n)?
 1 BZPOPMIN z{1,2} time
 1 BZPOPMAX z{1,2} time
 3 ZUNION n#zs zcombine{0,2}
 3 ZINTER n#zs zcombine{0,2}
 2 ZDIFF n#zs (WITHSCORES|zcombine|)
 2 ZINTERCARD n#zs (LIMIT i|zcombine|)
 3 ZUNIONSTORE z n#zs (WEIGHTS float{1,3}|AGGREGATE way|zcombine|){1,2}
 3 ZINTERSTORE z n#zs (WEIGHTS float{1,3}|AGGREGATE way|zcombine|){1,2}
 2 ZDIFFSTORE z n#zs (WITHSCORES|)
 2 ZRANDMEMBER z (i|i WITHSCORES|i m|)
12 HSET h (m m|m int|m float){1,3} (m||||||)
 2 HMSET h (m m){1,3} (m||||)
 3 HSETNX h m m
 2 HGET h m
 2 HMGET h m{1,3}
 2 HGETALL h
 1 HKEYS h
 1 HVALS h
 5 HDEL h m{1,4}
 1 HLEN h
 1 HSTRLEN h m
 1 HEXISTS h m
 5 HINCRBY h m int
 5 HINCRBYFLOAT h m float
 2 HRANDFIELD h (i|i WITHVALUES|i m|)
 4 LPUSH l m{1,3}
 6 RPUSH l m{1,4}
 1 LPUSHX l m{1,2}
 1 RPUSHX l m{1,2}
 3 LPOP l n? (n|)
 3 RPOP l n?
 4 LRANGE l i i
 2 LINDEX l i
 2 LSET l i m
 3 LINSERT l (BEFORE|AFTER|where) m m
 2 LREM l (i|i|int) m
 1 LTRIM l i i
 1 LLEN l
 4 LPOS l m (RANK i|COUNT n|MAXLEN n|RANK int|MAX i){0,3}
 3 LMOVE l l (LEFT|RIGHT|LEFT|where) (LEFT|RIGHT)
 2 BLMOVE l l (LEFT|RIGHT) (LEFT|RIGHT|RIGHT|where) time
 2 RPOPLPUSH l l
 2 BRPOPLPUSH l l time
 2 LMPOP n#l (LEFT|RIGHT|LEFT|where) (COUNT n){0,2}
 2 BLMPOP time n#l (LEFT|RIGHT|LEFT|where) (COUNT n)?
 1 BLPOP l{1,2} time
 1 BRPOP l{1,2} time
 8 SADD s (m|int){1,3}
 4 SREM s (m|int){1,3}
 1 SISMEMBER s m
 1 SMISMEMBER s m{1,3}
 2 SMEMBERS s
 1 SCARD s
 3 SMOVE s s (m|int)
 2 SINTER s{1,3}
 2 SUNION s{1,3}
 2 SDIFF s{1,4}
 2 SINTERSTORE s s{1,3}
 2 SUNIONSTORE s s{1,3}
 2 SDIFFSTORE s s{1,4}
 2 SINTERCARD n#s (LIMIT i|LIMIT|)
 2 SRANDMEMBER s i? (i||||)
 2 SPOP s n? (n|||)
 1 HSCAN h cursor COUNT all (MATCH glob|TYPE glob|MATCH|)
 1 SSCAN s cursor (MATCH glob|) COUNT all
 1 ZSCAN z cursor COUNT all (MATCH glob|COUNT odd|)
"""
CHOICES: dict[str, list[bytes]] = {
    "m": [b"", b"a", b"b", b"ab", b"c", b"d", b"e", b"\0", b"\xff\x80", b"long member text", b"1", b"2", b"-3", b"07"],
    "int": [b"%d" % number for number in (0, 1, 2, 3, 5, 8, 13, -1, -7, 40, 2**40, -(2**63), 2**63 - 1)],
    "float": b"0 1 2 3 -1 1.5 0.1 1e3 -0 0x1p4 inf -inf 1e17 3.0000000001".split(),
    "i": [b"0", b"1", b"2", b"3", b"4", b"7", b"-1", b"-2", b"-5"],
    "n": [b"0", b"1", b"2", b"3", b"5", b"100"],
    "time": [b"0", b"1", b"0.5", b"1e-9", b"-1", b"-0.0000001", b"9e18"],
    "odd": [b"", b"x", b"1x", b" 1", b"+1", b"01", b"nan", b"1e400", b"9223372036854775808", b"1_0", b"-0", b"1\0"],
    "where": [b"AT", b"", b"MIDDLE", b"LEFTY"],
    "way": [b"SUM", b"MIN", b"max", b"AVG"],
    "cursor": [b"0", b"0", b"0", b"0", b"", b"x", b"0x", b"18446744073709551616"],
    "all": [b"1000", b"1000", b"1000", b"0", b"-5"],
    "glob": [b"*", b"a*", b"?", b"[^a]", b"*b", b"\\a", b"[a-c]"],
}
RULES = {
    "zoption": "NX|XX|GT|LT|CH|INCR",
    "zcombine": "WEIGHTS float{1,3}|AGGREGATE way|WITHSCORES|LIMIT i",
    "zs": "z|z|s",
    "score": "float|open|end",
    "lex": "(lexend|lexopen)",
}
CHOICES |= {
    "open": [b"(" + number for number in CHOICES["float"]],
    "end": [b"-inf", b"+inf", b"-inf", b"+inf", b"(", b"", b" 2", b"2\0x"],
    "lexend": [b"-", b"+", b"-", b"+", b"[", b"(", b"", b"a", b"+x", b"-\0y"],
    "lexopen": [sign + member for sign in (b"[", b"(") for member in CHOICES["m"]],
}
NUMBERS = {"int", "float", "i", "n", "time"}
TOKEN = re.compile(r"\(|\)|\||\?|\{\d,\d\}|n#|[A-Za-z]+")


def one_of(name: str) -> Make:
    """A word of the grammar: a key, a choice, or the word itself."""

    def make(draw: random.Random) -> list[bytes]:
        if name in KEYS:
            strange = [b"text", b"missing", b"z0", b"h0", b"l0", b"s0"]
            return [draw.choice(KEYS[name] if draw.random() < 0.92 else strange)]
        if name in NUMBERS and draw.random() < 0.06:
            return [draw.choice(CHOICES["odd"])]
        return [draw.choice(CHOICES[name])]

    def literal(draw: random.Random) -> list[bytes]:
        word = name.encode()
        return [draw.choice([word, word, word.lower(), word.capitalize(), word + b"\0z"])]

    return literal if name.isupper() else make


def counted(make: Make) -> Make:
    def build(draw: random.Random) -> list[bytes]:
        keys = [key for _ in range(draw.randint(1, 3)) for key in make(draw)]
        wrong = draw.choice([b"0", b"1", b"4", b"-1", b"x", b"01"])
        return [b"%d" % len(keys) if draw.random() < 0.9 else wrong, *keys]

    return build


def repeated(make: Make, low: int, high: int) -> Make:
    return lambda draw: [part for _ in range(draw.randint(low, high)) for part in make(draw)]


@cache
def rule(text: str) -> Make:
    tokens = TOKEN.findall(text)
    make = alternatives(tokens)
    assert not tokens, text
    return make


def alternatives(tokens: list[str]) -> Make:
    choices = [sequence(tokens)]
    while tokens and tokens[0] == "|":
        tokens.pop(0)
        choices.append(sequence(tokens))
    return choices[0] if len(choices) == 1 else lambda draw: draw.choice(choices)(draw)


def sequence(tokens: list[str]) -> Make:
    parts: list[Make] = []
    while tokens and tokens[0] not in "|)":
        token = tokens.pop(0)
        is_counted = token == "n#"
        if is_counted:
            token = tokens.pop(0)
        if token == "(":
            part = alternatives(tokens)
            assert tokens.pop(0) == ")"
        else:
            part = rule(RULES[token]) if token in RULES else one_of(token)
        if is_counted:
            part = counted(part)
        elif tokens and tokens[0] == "?":
            tokens.pop(0)
            part = repeated(part, 0, 1)
        elif tokens and tokens[0][0] == "{":
            part = repeated(part, *map(int, tokens.pop(0)[1:-1].split(",")))
        parts.append(part)
    return lambda draw: [word for part in parts for word in part(draw)]


LINES = [line.split(None, 2) for line in GRAMMAR.strip().splitlines()]
WEIGHTS = [int(weight) for weight, _, _ in LINES]


def random_command(draw: random.Random) -> Argv:
    [(_, name, arguments)] = draw.choices(LINES, WEIGHTS)
    words = rule(arguments)(draw)
    if draw.random() < 0.01:
        words.pop()
    return (name.encode(), *words)


RANDOM = {b"ZRANDMEMBER", b"HRANDFIELD", b"SRANDMEMBER", b"SPOP"}
UNORDERED = {b"HGETALL", b"HKEYS", b"HVALS", b"SMEMBERS", b"SINTER", b"SUNION", b"SDIFF", b"HSCAN", b"SSCAN", b"ZSCAN"}
PAIRED = {b"HGETALL", b"HSCAN", b"ZSCAN"}
BLOCKING = {b"BZMPOP", b"BZPOPMIN", b"BZPOPMAX", b"BLMOVE", b"BRPOPLPUSH", b"BLMPOP", b"BLPOP", b"BRPOP"}
CONTENTS: dict[bytes, Argv] = {
    b"zset": (b"ZRANGE", b"0", b"-1", b"WITHSCORES"),
    b"hash": (b"HGETALL",),
    b"list": (b"LRANGE", b"0", b"-1"),
    b"set": (b"SMEMBERS",),
}


def is_hashed(value: object) -> bool:
    if isinstance(value, Hash):
        return value.hashtable
    if isinstance(value, SortedSet):
        return value.skiplist
    return isinstance(value, Set) and not value.intset


def members_of(value: object) -> set[bytes]:
    if isinstance(value, Hash):
        return set(value.fields)
    if isinstance(value, SortedSet):
        return set(value.scores)
    return set(value.members) if isinstance(value, Set) else set()


def without_order(name: bytes, reply: Reply) -> Reply:
    if not isinstance(reply, list):
        return reply
    if len(reply) == 2 and isinstance(reply[1], list):  # a page of a scan
        return [reply[0], without_order(name, reply[1])]
    if name in PAIRED:
        return sorted(zip(reply[::2], reply[1::2], strict=True))
    return sorted(reply)


def lex_is_undefined(shard: Shard, argv: Argv) -> bool:
    """Ranges by member over unequal scores: the server's skiplist answers by its random levels."""
    words = {part.upper().partition(b"\0")[0] for part in argv}
    if not (b"LEX" in argv[0] or b"BYLEX" in words):
        return False
    values = [shard.data.get(key) for key in argv[1:3]]
    return any(isinstance(value, SortedSet) and value.skiplist and len(set(value.order_scores)) > 1 for value in values)


def changes_in(info: bytes) -> int:
    return int(info.split(b"rdb_changes_since_last_save:")[1].split(b"\r\n")[0])


class Pair:
    """A shard and a server that get the same commands."""

    def __init__(self, connection: Connection, resp: int, seed: int) -> None:
        self.server = connection
        self.shard = Shard()
        self.draw = random.Random(seed)
        self.resp = resp
        self.server.demand(b"FLUSHALL")
        for name, value in LIMITS.items():
            self.server.demand(b"CONFIG", b"SET", name.encode(), b"%d" % value)
            setattr(self.shard.encoding_limits, name.replace("-", "_"), value)
        self.server.demand(b"HELLO", b"%d" % resp)
        self.shard.client.resp = resp
        self.on_both((b"SET", b"text", b"abc"))

    def on_both(self, argv: Argv) -> tuple[Reply, Reply]:
        """The kernel's reply and the server's; the count of changes is compared here, and whether WATCH notices."""
        watch = (b"WATCH", self.draw.choice(sorted({b"z0", *set(argv).intersection(ALL_KEYS)})))
        inside = (b"MULTI",), argv, (b"EXEC",)  # there neither side waits
        commands = inside if argv[0] in BLOCKING else (watch, argv, (b"MULTI",), (b"EXEC",))
        persistence = (b"INFO", b"persistence")
        before, *replies, after = self.server.pipeline([persistence, *commands, persistence])
        changes = self.shard.dirty
        if argv[0] in BLOCKING:
            theirs = replies[2][0] if isinstance(replies[2], list) else replies[1]
            ours = self.shard.execute(argv)
        else:
            theirs = replies[1]
            _, ours, _, transaction = map(self.shard.execute, commands)
            assert transaction == replies[3], f"{argv} under {watch}"
        assert self.shard.dirty - changes == changes_in(after) - changes_in(before), f"{argv}: changes"
        return ours, theirs

    def step(self) -> Argv | None:
        """One random command on both; None if its outcome is not defined."""
        argv = random_command(self.draw)
        if lex_is_undefined(self.shard, argv):
            return None
        order_free = argv[0] in UNORDERED and any(is_hashed(self.shard.data.get(key)) for key in argv[1:])
        there = members_of(self.shard.data.get(argv[1])) if len(argv) > 1 else set()
        ours, theirs = self.on_both(argv)
        if argv[0] in RANDOM and not isinstance(theirs, ErrorReply):
            self.check_random(argv, ours, theirs, there)
        elif order_free:
            assert without_order(argv[0], ours) == without_order(argv[0], theirs), argv
        else:
            assert ours == theirs, argv
            assert type(ours) is type(theirs), argv
        return argv

    def check_random(self, argv: Argv, ours: Reply, theirs: Reply, there: set[bytes]) -> None:
        """The same shape, and nothing that was not there."""
        assert type(ours) is type(theirs), argv
        if isinstance(ours, (list, set)):
            assert len(ours) == len(theirs), argv
            members = list(ours)
            if len(argv) == 4:
                members = [pair[0] for pair in ours] if self.resp == 3 else members[::2]
        else:
            members = [] if ours is None else [ours]
        assert there.issuperset(members), argv
        if argv[0] == b"SPOP":
            self.remove(argv[1])

    def remove(self, *keys: bytes) -> None:
        for key in keys:
            self.shard.remove(key)
        self.server.demand(b"DEL", *keys)

    def set_deadline(self, key: bytes) -> None:
        """A deadline that replaced keys must lose and changed keys must keep."""
        if key in self.shard.data:
            self.shard.set_deadline(key, FAR_FUTURE_MS)
        self.server.demand(b"PEXPIREAT", key, b"%d" % FAR_FUTURE_MS)

    def compare_states(self) -> None:
        """Type, encoding, deadline and contents of every key."""
        for key in sorted({*self.shard.data, *self.server.demand(b"KEYS", b"*")}):
            kind = self.server.demand(b"TYPE", key)
            value = self.shard.data.get(key)
            assert value is not None, f"{key!r} is only on the server"
            assert TYPE_NAMES[type(value)].encode() == kind, key
            assert self.shard.deadlines_ms.get(key, -1) == self.server.demand(b"PEXPIRETIME", key), key
            if isinstance(value, bytes):
                continue
            assert value.encoding == self.server.demand(b"OBJECT", b"ENCODING", key), key
            name, *rest = CONTENTS[kind]
            ours, theirs = self.shard.execute((name, key, *rest)), self.server.execute(name, key, *rest)
            if is_hashed(value) and not isinstance(value, SortedSet):
                ours, theirs = without_order(name, ours), without_order(name, theirs)
            assert ours == theirs, key

    def run(self, commands: int) -> None:
        history: list[Argv] = []
        for index in range(commands):
            try:
                argv = self.step()
                if argv is not None:
                    history.append(argv)
                if index % 10 == 0:
                    self.compare_states()
                if index % 50 == 0:
                    self.set_deadline(self.draw.choice(ALL_KEYS))
                if index % 400 == 399:
                    self.remove(*ALL_KEYS)
            except AssertionError as error:
                raise AssertionError(f"command {index} after {history[-12:]}: {error}") from error
        self.compare_states()


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        yield connection
        connection.close()


@pytest.mark.server
@pytest.mark.parametrize(("resp", "seed"), [(2, 1), (2, 2), (3, 3)])
def test_random_commands_agree_with_the_server(connection: Connection, resp: int, seed: int) -> None:
    Pair(connection, resp, seed).run(COMMANDS_COMPARED)


def test_every_command_is_drawn() -> None:
    draw = random.Random(5)
    assert {random_command(draw)[0] for _ in range(5000)} == {name.encode() for _, name, _ in LINES}


@pytest.mark.server
def test_limits_are_the_servers_by_default() -> None:
    with ServerProcess() as fresh:
        server = Connection(fresh.host, fresh.port)
        for name in LIMITS:
            [_, value] = server.demand(b"CONFIG", b"GET", name.encode())
            assert int(value) == getattr(EncodingLimits(), name.replace("-", "_"))
        server.close()


def assert_consistent(value: object) -> None:
    """What the columns and caches of a value must agree on."""
    if isinstance(value, SortedSet):
        entries = list(zip(value.order_scores, value.order_members, strict=True))
        assert entries == sorted((score, member) for member, score in value.scores.items())
        assert value.hash_order is None or value.hash_order == in_hash_order(value.scores)
    if isinstance(value, Hash):
        assert value.hash_order is None or value.hash_order == in_hash_order(value.fields)
    if isinstance(value, Set):
        assert set(value.in_order()) == value.members
        assert value.in_order() == Set.thaw(value.freeze()).in_order()
    if not isinstance(value, bytes):
        assert len(value) > 0  # type: ignore[arg-type]
        assert type(value).thaw(value.freeze()).freeze() == value.freeze() == value.copy().freeze()  # type: ignore[attr-defined]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 120), lengths=st.lists(st.integers(0, 25), max_size=4))
def test_a_rollback_takes_everything_back(seed: int, before: int, lengths: list[int]) -> None:
    shard, draw = Shard(), random.Random(seed)
    for name, value in LIMITS.items():
        setattr(shard.encoding_limits, name.replace("-", "_"), value)
    shard.execute((b"SET", b"text", b"abc"))
    for _ in range(before):
        shard.execute(random_command(draw))
    marks = []
    for length in lengths:
        marks.append((shard.snapshot(), shard.freeze(), shard.random_state))
        for _ in range(length):
            shard.execute(random_command(draw))
            for value in shard.data.values():
                assert_consistent(value)
    for mark, frozen, random_state in reversed(marks):
        shard.rollback(mark)
        assert shard.freeze() == frozen
        assert shard.random_state == random_state
        for value in shard.data.values():
            assert_consistent(value)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_thawed_keyspace_answers_like_the_frozen_one(seed: int) -> None:
    shard, draw = Shard(), random.Random(seed)
    for _ in range(100):
        shard.execute(random_command(draw))
    twin = Shard()
    twin.load(shard.freeze())
    twin.random_state = shard.random_state
    for _ in range(100):
        argv = random_command(draw)
        assert shard.execute(argv) == twin.execute(argv), argv
        assert shard.freeze() == twin.freeze()
