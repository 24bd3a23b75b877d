"""Commands that a shadow run calls: carried out on the kernel, their replies marked, the edges that they have noted."""

from __future__ import annotations

from typing import Any

from orderlab.properties.shadow.arithmetic import NotFollowed, number_of
from orderlab.properties.shadow.interpreter import Interpreter, LuaError
from orderlab.properties.shadow.marked import (
    EQUALITY,
    KEY,
    NUMBER,
    ORDERED,
    SIZE,
    TIME,
    LuaTable,
    MarkedValue,
)
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply, Status

COUNTS = frozenset(b"ZCARD LLEN HLEN SCARD XLEN STRLEN ZCOUNT LPUSH RPUSH LPUSHX RPUSHX PFCOUNT ZLEXCOUNT".split())
"""Commands whose reply is how much a key holds."""
ENDINGS = {b"EX": 0, b"PX": 0}
ENDING_AT = {b"EXPIRE": 2, b"PEXPIRE": 2, b"SETEX": 2, b"PSETEX": 2}
"""Where the time stands until a key ends: none of it, and the key is gone, or the command refused."""
ROWS = {b"ZADD": 2, b"GEOADD": 2}
STEPPED = {b"INCRBY": 2, b"DECRBY": 2, b"HINCRBY": 3, b"ZINCRBY": 2}
RANKS = {b"LRANGE": (2, 3), b"ZRANGE": (2, 3), b"ZREVRANGE": (2, 3), b"LTRIM": (2, 3), b"ZREMRANGEBYRANK": (2, 3)}
"""Where ranks stand: beyond them a key holds more than is seen."""
COUNTED = frozenset((b"LIMIT", b"COUNT", b"MAXLEN"))
TAKES = {b"SPOP": 2, b"SRANDMEMBER": 2, b"LPOP": 2, b"RPOP": 2, b"ZPOPMIN": 2, b"ZPOPMAX": 2, b"LREM": 2}
CONTENT = {b"SET": (2, 99), b"SETEX": (3, 1), b"PSETEX": (3, 1), b"SETNX": (2, 1), b"GETSET": (2, 1), b"APPEND": (2, 1),
           b"HSETNX": (3, 1), b"LPUSH": (2, 1), b"RPUSH": (2, 1), b"HSET": (3, 2), b"HMSET": (3, 2), b"XADD": (4, 2),
           b"PUBLISH": (2, 1)}  # fmt: skip
"""Where texts stand that a command keeps or sends and looks at nowhere: the first, and every how many-th from there."""
SHOWING = frozenset(b"GET HGET HMGET MGET ZSCORE".split())
EXACT_MAX = 2.0**53


class RedisCalls:
    """``redis.call`` of one run."""

    def __init__(self, interpreter: Interpreter, backend: Backend) -> None:
        self.run, self.path, self.backend = interpreter, interpreter.path, backend

    def names(self) -> LuaTable:
        """The table ``redis``."""
        functions = {
            b"call": self._call,
            b"pcall": self._protected,
            b"error_reply": lambda given: [MarkedValue(LuaTable({b"err": given[0]}))],
            b"status_reply": lambda given: [MarkedValue(LuaTable({b"ok": given[0]}))],
            b"log": lambda given: [],
            b"replicate_commands": lambda given: [MarkedValue(True)],
            b"sha1hex": self._lacking,
            b"setresp": self._lacking,
        }
        return LuaTable({name: MarkedValue(function) for name, function in functions.items()})

    def _lacking(self, given: list[MarkedValue]) -> list[MarkedValue]:
        raise NotFollowed("redis.sha1hex or redis.setresp")

    def _protected(self, given: list[MarkedValue]) -> list[MarkedValue]:
        try:
            return self._call(given)
        except LuaError as error:
            return [error.value]

    def _call(self, given: list[MarkedValue]) -> list[MarkedValue]:
        argv = []
        for each in given:
            if isinstance(each.value, float):
                whole = each.value == int(each.value) if abs(each.value) < 1e17 else False
                argv.append(b"%d" % int(each.value) if whole else b"%.17g" % each.value)
            elif isinstance(each.value, bytes):
                argv.append(each.value)
            else:
                raise LuaError(MarkedValue(b"Lua redis lib command arguments must be strings or integers"))
        if not argv:
            raise LuaError(MarkedValue(b"Please specify at least one argument for this redis lib call"))
        name = argv[0].upper()
        self._look_at(name, given, argv)
        reply = self.backend.execute(*argv)
        if isinstance(reply, ErrorReply):
            raise LuaError(MarkedValue(LuaTable({b"err": MarkedValue(reply.message)})))
        return [self._marked(name, tuple(argv), reply, given)]

    # -- what is given -------------------------------------------------------------------------------------------------

    def _look_at(self, name: bytes, given: list[MarkedValue], argv: list[bytes]) -> None:
        entry = find(argv)
        keys = set(entry.find_keys(argv)) if entry is not None else set()
        first, every = CONTENT.get(name, (len(given), 1))
        for at, value in enumerate(given[1:], 1):
            if not value.marks:
                continue
            if argv[at] in keys:
                self.path.use(KEY, value)
            elif name in ROWS and at >= ROWS[name]:
                self.path.use(ORDERED, value)
                self.path.use(EQUALITY, value)
            elif at < first or (at - first) % every:
                self.path.use(EQUALITY, value)
        site = (self.run.name, self.run.at)
        for at, value in enumerate(given[1:], 1):
            before = argv[at - 1].upper()
            if before in ENDINGS or ENDING_AT.get(name) == at:
                self._meet("<", MarkedValue(0.0), value, site)
            if before in COUNTED or (at > 1 and argv[at - 2].upper() == b"LIMIT") or TAKES.get(name) == at:
                self._bound(argv, value, 0.0, site)
            if value.expression is None:
                continue
            if (name in ROWS and at >= ROWS[name] and at % 2 == 0) or STEPPED.get(name) == at:
                self._meet("<=", value, MarkedValue(EXACT_MAX), site)
        for at in RANKS.get(name, ()):
            if at < len(given) and not {b"BYSCORE", b"BYLEX"} & {word.upper() for word in argv[4:]}:
                rank = number_of(given[at].value)
                if rank is not None and rank not in (0.0, -1.0):
                    self._bound(argv, given[at], 1.0 if rank >= 0 else 0.0, site)

    def _meet(self, operator: str, left: MarkedValue, right: MarkedValue, site: tuple[str, int]) -> None:
        a, b = number_of(left.value), number_of(right.value)
        if a is not None and b is not None:
            held = a < b if operator == "<" else a <= b
            self.path.meet(operator, MarkedValue(a, left.expression), MarkedValue(b, right.expression), held, site)

    def _bound(self, argv: list[bytes], value: MarkedValue, more: float, site: tuple[str, int]) -> None:
        """A command looks at so many things of a key at most: how many there are is a condition."""
        bound = number_of(value.value)
        if bound is None or len(argv) < 2:
            return
        command = self._counting(argv[1])
        if command is None:
            return
        size = self.backend.execute(*command)
        if isinstance(size, int):
            symbol = self.path.symbol(SIZE, command, float(size))
            if bound < 0:
                bound, expression = -bound, None if value.expression is None else ("-", 0, value.expression)
            else:
                expression = value.expression
            limit = MarkedValue(bound + more, None if expression is None else ("+", expression, more))
            self.path.meet("<=", MarkedValue(float(size), symbol), limit, size <= bound + more, site)

    def _counting(self, key: bytes) -> tuple[bytes, ...] | None:
        kind = self.backend.execute(b"TYPE", key)
        command = {b"zset": b"ZCARD", b"list": b"LLEN", b"set": b"SCARD", b"hash": b"HLEN", b"stream": b"XLEN"}
        return (command[bytes(kind)], key) if bytes(kind) in command else None

    # -- what is replied -----------------------------------------------------------------------------------------------

    def _marked(self, name: bytes, argv: tuple[bytes, ...], reply: Any, given: list[MarkedValue]) -> MarkedValue:
        if isinstance(reply, Status):
            return MarkedValue(LuaTable({b"ok": MarkedValue(bytes(reply))}))
        if reply is None:
            return MarkedValue(False, self._absent(argv))
        if name == b"TIME":
            pair = {
                float(at): MarkedValue(text, self.path.symbol(TIME, at, float(text)))
                for at, text in enumerate(reply, 1)
            }
            return MarkedValue(LuaTable(pair, length=2.0))
        if isinstance(reply, int):
            kind = SIZE if name in COUNTS else NUMBER
            return MarkedValue(float(reply), self.path.symbol(kind, argv, float(reply)))
        if isinstance(reply, bytes):
            return MarkedValue(reply, self._number_in(reply, argv))
        if isinstance(reply, list):
            return MarkedValue(self._array(reply, argv))
        raise NotFollowed("a reply of RESP3")

    def _number_in(self, text: bytes, place: tuple[Any, ...]) -> Any:
        if not text.removeprefix(b"-")[:20].isdigit() or len(text) > 20:
            return None
        return self.path.symbol(NUMBER, place, float(text))

    def _absent(self, place: tuple[Any, ...]) -> Any:
        """Where a number may stand that is not there yet."""
        return self.path.symbol(NUMBER, place, 0.0) if place[0].upper() in SHOWING else None

    def _array(self, reply: list[Any], argv: tuple[Any, ...]) -> LuaTable:
        items: dict[Any, MarkedValue] = {}
        for at, each in enumerate(reply, 1):
            if each is None:
                items[float(at)] = MarkedValue(False, self._absent((*argv, at)))
            elif isinstance(each, list):
                items[float(at)] = MarkedValue(self._array(each, (*argv, at)))
            elif isinstance(each, int):
                items[float(at)] = MarkedValue(float(each), self.path.symbol(NUMBER, (*argv, at), float(each)))
            elif isinstance(each, Status):
                items[float(at)] = MarkedValue(LuaTable({b"ok": MarkedValue(bytes(each))}))
            else:
                items[float(at)] = MarkedValue(each, self._number_in(each, (*argv, at)))
        length = self.path.symbol(SIZE, argv, float(len(reply)))
        return LuaTable(items, length=length)


def plain(value: MarkedValue) -> Any:
    """What a script's result is to its caller, as the server converts it."""
    inner = value.value
    if isinstance(inner, LuaTable):
        for name in (b"ok", b"err"):
            text = inner.get(name).value
            if isinstance(text, bytes):
                return Status(text) if name == b"ok" else ErrorReply(text)
        collected = []
        for at in range(1, len(inner.items) + 2):
            each = inner.get(float(at))
            if each.value is None:
                break
            collected.append(plain(each))
        return collected
    if isinstance(inner, bool):
        return 1 if inner else None
    if isinstance(inner, float):
        return int(inner) if inner == inner and abs(inner) < 2.0**63 else -(1 << 63)
    if inner is None or isinstance(inner, bytes):
        return inner
    raise NotFollowed("a result that is no plain value")
