"""Keyspace notifications: what ``notify-keyspace-events`` lets a node publish about its keys (``notify.c``).

Nothing is asked of commands: while notifications are wanted, every command goes through ``execution.carry_out``, which
asks here before and after it; what a command tells follows from its name, from the keys that it has changed and from
which of them are there afterwards. While nobody wants them nothing is paid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orderlab.sim.redis.database import name_in, place_of
from orderlab.sim.redis.node_state import Effect, NodeState
from orderlab.sim.redis.registry import Command
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.values import Set, SortedSet, Stream

_ONE_EVENT: Final = """
$ set: set setnx getset setex psetex mset msetnx bitop
$ append: append
$ incrby: incr decr incrby decrby
$ incrbyfloat: incrbyfloat
$ setrange: setrange
$ setbit: setbit bitfield
$ pfadd: pfadd pfmerge
g persist: persist
g expire: expire pexpire expireat pexpireat
g del: del unlink getdel
g restore: restore
l lpush: lpush lpushx
l rpush: rpush rpushx
l linsert: linsert
l lset: lset
l lrem: lrem
l ltrim: ltrim
l lpop: lpop blpop
l rpop: rpop brpop
l sortstore: sort
s sadd: sadd
s srem: srem
s spop: spop
s sinterstore: sinterstore
s sunionstore: sunionstore
s sdiffstore: sdiffstore
h hset: hset hmset hsetnx
h hincrby: hincrby
h hincrbyfloat: hincrbyfloat
h hdel: hdel
z zincr: zincrby
z zadd: geoadd
z zrem: zrem
z zremrangebyscore: zremrangebyscore
z zremrangebyrank: zremrangebyrank
z zremrangebylex: zremrangebylex
z zpopmin: zpopmin bzpopmin
z zpopmax: zpopmax bzpopmax
z zunionstore: zunionstore
z zinterstore: zinterstore
z zdiffstore: zdiffstore
z zrangestore: zrangestore
z georadiusstore: georadius georadiusbymember
z geosearchstore: geosearchstore
t xdel: xdel
t xtrim: xtrim
t xsetid: xsetid
t xgroup-create: xgroup|create
t xgroup-setid: xgroup|setid
t xgroup-destroy: xgroup|destroy
t xgroup-createconsumer: xgroup|createconsumer
t xgroup-delconsumer: xgroup|delconsumer
"""
"""Class, event and the commands that tell it of each key that they have changed."""
EVENTS: Final = {
    name.encode(): (line[0], line[2:].partition(":")[0].encode())
    for line in _ONE_EVENT.strip().splitlines()
    for name in line.partition(":")[2].split()
}
_DEL_ALONE: Final = frozenset(
    b"""
    bitop expire pexpire expireat pexpireat del unlink getdel getex sort sinterstore sunionstore sdiffstore zunionstore
    zinterstore zdiffstore zrangestore georadius georadiusbymember geosearchstore restore
    """.split()
)
"""Those that tell of a key that has gone nothing but ``del``; others tell it after their own event."""
_DELETES_FIRST: Final = frozenset(b"rename renamenx copy restore move".split())
"""Those whose destination is new even where something was before."""
_READS_FIRST: Final = frozenset(
    b"getset getdel getex copy sort xack xclaim xautoclaim georadius georadiusbymember".split()
)
"""Commands that write and look for their first key as a reader does."""
_READS_REST: Final = frozenset(
    b"bitop sinterstore sunionstore sdiffstore zunionstore zinterstore zdiffstore zrangestore geosearchstore".split()
)
"""The same of all keys but the first."""
_READS_NOTHING: Final = frozenset(
    b"object|encoding object|refcount object|freq object|idletime memory|usage scan randomkey dbsize keys".split()
)
_LOOKS_FIRST: Final = frozenset(
    b"""
    lcs zunion zinter zdiff zintercard zunionstore zinterstore zdiffstore xclaim xautoclaim georadius georadius_ro
    georadiusbymember georadiusbymember_ro geosearch geosearchstore
    """.split()
)
"""Commands that look for their keys before they look at anything else."""
_AFTER_LOOKING: Final = (b"WRONGTYPE", b"NOGROUP", b"ERR no such key")
"""Errors of those that have looked for keys."""
_TAKES: Final[dict[int, tuple[type, ...]]] = {
    ord("s"): (Set,), ord("z"): (SortedSet, Set), ord("x"): (Stream,), ord("b"): (bytes,), ord("p"): (bytes,),
}  # fmt: skip
"""Types that commands with several keys take, by the letter that they begin with."""
_ID: Final = re.compile(rb"[0-9]{1,20}(-[0-9]{1,20})?")
_BAD_ID: Final = (b"ERR Invalid stream ID", b"ERR The > ID", b"ERR The $ ID")
_CONTAINERS: Final = frozenset(b"exec eval evalsha eval_ro evalsha_ro fcall fcall_ro".split())
Told = Iterator[tuple[str, bytes, bytes]]
"""Class, event, and the name of a key among those of all databases."""


def follow(node: NodeState) -> None:
    """Begin or end to publish, as the setting of the node says. Without K and E nothing is."""
    if node.notifier is None:
        node.notifier = Notifier(node)
    flags = node.config.notify_keyspace_events
    node.notifier.want(flags if "K" in flags or "E" in flags else "")


@dataclass(slots=True)
class KeysBefore:
    """What is to be known from before a command."""

    there: dict[bytes, bool]
    """Names of the keys in its arguments: whether there was one."""
    size: int = 0
    """Entries of the stream of XADD."""
    consumers: frozenset[tuple[bytes, bytes, bytes]] = frozenset()
    """Key, group and consumer, where the command may make one."""
    lapsed: list[bytes] = field(default_factory=list)
    """Names of the keys that lapsed on the way."""


class Notifier:
    """Publishes what happens to keys of a node."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._flags = ""
        self._now: KeysBefore | None = None
        self.unkept: list[Effect] = []
        """The node's list of effects while nobody but this wants them; it stays empty."""

    def want(self, flags: str) -> None:
        """Publish these classes from now on."""
        node, self._flags = self._node, flags
        node.notifier = self if flags else None
        if flags and node.effects is None:
            node.effects = self.unkept
        elif not flags and node.effects is self.unkept:
            node.effects = None
        node.observe_changes()

    def begin(self, command: Command, argv: Sequence[bytes]) -> KeysBefore | None:
        """Before a command that is carried out; None for one that carries others out."""
        if command.name in _CONTAINERS:
            return None
        node, index = self._node, self._node.database
        keys = command.find_keys(argv)
        before = KeysBefore({name_in(index, key): self._is_there(key) for key in keys})
        if command.name == b"xadd":
            before.size = len(node.data.get(argv[1], b"") or b"")
        elif command.name in _MAKE_CONSUMERS:
            before.consumers = self._consumers(keys)
        self._now = before
        return before

    def end(
        self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes], reply: Reply
    ) -> None:
        """After it: ``changed`` names keys in their order."""
        self._now = None
        lapsed = before.lapsed
        if "m" in self._flags:
            for name in self._missed(command, argv, before, reply):
                if name in lapsed:
                    lapsed.remove(name)
                    self.tell("x", b"expired", name)
                self.tell("m", b"keymiss", name)
        for name in lapsed:
            self.tell("x", b"expired", name)
        if not changed and command.name not in _MAKE_CONSUMERS:
            return
        special = _SPECIAL.get(command.name)
        events: Told = (
            getattr(self, special)(command, argv, before, changed)
            if special is not None
            else self._usual(command.name, before, changed)
        )
        for kind, event, name in events:
            self.tell(kind, event, name)

    def tell(self, kind: str, event: bytes, name: bytes) -> None:
        """Publish an event of a key, by its name among those of all databases, if its class is wanted."""
        flags = self._flags
        if kind not in flags:
            return
        index, key = place_of(name)
        publish = self._node.subscribers.publish
        if "K" in flags:
            publish(b"__keyspace@%d__:%b" % (index, key), event)
        if "E" in flags:
            publish(b"__keyevent@%d__:%b" % (index, event), key)

    def lost(self, name: bytes, is_evicted: bool) -> None:
        """A key has lapsed, or was evicted."""
        if is_evicted:
            self.tell("e", b"evicted", name)
        elif self._now is not None:
            self._now.lapsed.append(name)
        else:
            self.tell("x", b"expired", name)

    # -- what commands tell --------------------------------------------------------------------------------

    def _is_there(self, key: bytes) -> bool:
        return key in self._node.data and not self._node.is_expired(key)

    def exists(self, name: bytes) -> bool:
        """Whether there is a key of this name now."""
        database, key = self._node.home_of(name)
        return key in database.data

    def _missed(self, command: Command, argv: Sequence[bytes], before: KeysBefore, reply: Reply) -> Iterator[bytes]:
        """Keys that it looked for, as a reader does, and did not find."""
        name, message = command.name, reply.message if isinstance(reply, ErrorReply) else b""
        is_read = name in (b"xread", b"xreadgroup")
        has_looked = name in _LOOKS_FIRST or message.startswith(_AFTER_LOOKING)
        if message and not has_looked and not (is_read and message.startswith(_BAD_ID)):
            return
        keys = command.find_keys(argv)
        words = {word.upper() for word in argv[2:]}
        if name in _READS_FIRST or (name == b"set" and b"GET" in map(bytes.upper, argv[3:])):
            keys = keys[:1]
        elif name in _READS_REST:
            keys = keys[1:]
        elif name == b"bitfield":
            keys = () if {b"SET", b"INCRBY"} & words else keys
        elif name in _READS_NOTHING or not ("readonly" in command.flags or name in (b"xreadgroup", b"pfmerge")):
            return
        if is_read:
            if not message:
                keys = [*keys, *keys]
            elif message.startswith(b"ERR"):
                special = b"$" if name == b"xread" else b">"
                ids = enumerate(argv[-len(keys) :])
                first_bad = next((at for at, word in ids if word != special and not _ID.fullmatch(word)), len(keys))
                keys = keys[: first_bad + 1]
        for key in keys:
            if not before.there[name_in(self._node.database, key)]:
                yield name_in(self._node.database, key)
                if name == b"xreadgroup":
                    return
            elif message and not self._goes_on(name, argv, self._node.data.get(key)):
                return

    def _goes_on(self, name: bytes, argv: Sequence[bytes], value: Any) -> bool:
        """Whether a command that ends in an error looks for more keys after it has found ``value``."""
        if name == b"xreadgroup":
            at = [word.upper() for word in argv].index(b"GROUP") + 1
            return isinstance(value, Stream) and argv[at] in value.groups
        return name == b"lcs" or type(value) in _TAKES.get(name[0], ())

    def _usual(self, name: bytes, before: KeysBefore, changed: Sequence[bytes]) -> Told:
        if name not in EVENTS:
            return
        kind, event = EVENTS[name]
        for key in dict.fromkeys(changed) if name.startswith(b"xgroup") else changed:
            yield from self.one(name, kind, event, key, before)

    def one(self, command: bytes, kind: str, event: bytes, name: bytes, before: KeysBefore) -> Told:
        """What is told of one key that was changed."""
        is_there, was_there = self.exists(name), before.there.get(name, False)
        if is_there and (not was_there or command in _DELETES_FIRST):
            yield "n", b"new", name
        before.there[name] = is_there
        if is_there or command not in _DEL_ALONE:
            yield kind, event, name
        if was_there and not is_there:
            yield "g", b"del", name

    def _consumers(self, keys: Sequence[bytes]) -> frozenset[tuple[bytes, bytes, bytes]]:
        data: dict[bytes, Any] = self._node.data
        return frozenset(
            (key, group, consumer)
            for key in keys
            for group, of_group in getattr(data.get(key), "groups", {}).items()
            for consumer in of_group.consumers
        )

    def _set(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        for name in changed:
            yield from self.one(command.name, "$", b"set", name, before)
            if command.name != b"set" or {b"EX", b"PX", b"EXAT", b"PXAT"} & {word.upper() for word in argv[3:]}:
                yield "g", b"expire", name

    def _getex(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        event = b"persist" if argv[2].upper() == b"PERSIST" else b"expire"
        for name in changed:
            yield from self.one(command.name, "g", event, name, before)

    def _pair(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        """RENAME, MOVE and COPY."""
        name, here = command.name, self._node.database
        word = name.removesuffix(b"nx")
        source, target = name_in(here, argv[1]), changed[-1]
        target = (
            name_in(here, argv[2]) if word == b"rename" else next((each for each in changed if each != source), target)
        )
        yield "n", b"new", target
        if word != b"copy":
            yield "g", word + b"_from", source
        yield "g", word + b"_to", target

    def _pop_many(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        at = 1 if command.name.startswith(b"b") else 0
        where = argv[at + 2 + int(argv[at + 1])].upper()
        kind = "z" if b"z" in command.name else "l"
        event = {b"MIN": b"zpopmin", b"MAX": b"zpopmax", b"LEFT": b"lpop", b"RIGHT": b"rpop"}[where]
        for name in changed:
            yield from self.one(command.name, kind, event, name, before)

    def _move_element(
        self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]
    ) -> Told:
        here, name = self._node.database, command.name
        source, target = name_in(here, argv[1]), name_in(here, argv[2])
        sides = (argv[3].upper(), argv[4].upper()) if name in (b"lmove", b"blmove") else (b"RIGHT", b"LEFT")
        pop, push = (b"lpop" if sides[0] == b"LEFT" else b"rpop"), (b"lpush" if sides[1] == b"LEFT" else b"rpush")
        yield from self.one(name, "l", push, target, before)
        yield from self.one(name, "l", pop, source, before)

    def _smove(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        source, target = (name_in(self._node.database, key) for key in argv[1:3])
        if source in changed:
            yield from self.one(command.name, "s", b"srem", source, before)
        if target in changed:
            yield from self.one(command.name, "s", b"sadd", target, before)

    def _zadd(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        event = b"zincr" if b"INCR" in map(bytes.upper, argv[2:7]) else b"zadd"
        for name in changed:
            yield from self.one(command.name, "z", event, name, before)

    def _xadd(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        for name in changed:
            yield from self.one(command.name, "t", b"xadd", name, before)
            stream: Any = self._node.data[argv[1]]
            if len(stream) <= before.size:
                yield "t", b"xtrim", name

    def _made(self, command: Command, argv: Sequence[bytes], before: KeysBefore, changed: Sequence[bytes]) -> Told:
        """Commands that may make a consumer on their way."""
        keys = command.find_keys(argv)
        made = self._consumers(keys) - before.consumers
        for key in dict.fromkeys(keys):
            for _ in [each for each in made if each[0] == key]:
                yield "t", b"xgroup-createconsumer", name_in(self._node.database, key)


_MAKE_CONSUMERS: Final = frozenset((b"xreadgroup", b"xclaim", b"xautoclaim"))
_SPECIAL: Final[dict[bytes, str]] = {
    b"set": "_set",
    b"setex": "_set",
    b"psetex": "_set",
    b"getex": "_getex",
    **dict.fromkeys((b"rename", b"renamenx", b"move", b"copy"), "_pair"),
    **dict.fromkeys((b"lmpop", b"blmpop", b"zmpop", b"bzmpop"), "_pop_many"),
    **dict.fromkeys((b"lmove", b"blmove", b"rpoplpush", b"brpoplpush"), "_move_element"),
    b"smove": "_smove",
    b"zadd": "_zadd",
    b"xadd": "_xadd",
    **dict.fromkeys(_MAKE_CONSUMERS, "_made"),
}
