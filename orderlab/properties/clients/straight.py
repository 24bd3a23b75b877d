"""The short way of a command: redis-py's client hands it to the kernel past pool, connection, retries and metrics.

What those layers do shows in nothing where no fault strikes, the reply is no error of a connection, and the command
leaves nothing behind in its connection. Everything else takes redis-py's own way, from the same step on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any, Final

import redis
import redis.connection
import redis.utils
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from orderlab.properties.clients.execution import Execution, current
from orderlab.properties.clients.footprints import is_of_one_key
from orderlab.properties.clients.lane import Op
from orderlab.properties.clients.wiring import ShardLink, converted
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply, Status

CONNECTIONS_MIN: Final = 100
"""A pool that may hold so many connections is never exhausted by a scenario."""
_PLAIN_TEXT: Final = (type(redis.Redis().get_encoder()), "utf-8", "strict")
_PLAIN_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {str: str.encode, bytes: bytes, int: b"%d".__mod__}
_OF_CONNECTIONS: Final = frozenset({b"auth", b"client", b"hello", b"quit", b"reset", b"select", b"asking"})
_OF_CONNECTIONS_BY_FLAG: Final = frozenset({"noscript", "blocking", "pubsub"})
_WITHOUT_EFFECT: Final = frozenset({"keys"})
"""Options that redis-py's ``parse_response`` throws away: they are for its cache."""
_SIMPLE: Final = (bytes, int, NoneType, Status)
_PLAIN: Final = frozenset({b"eval", b"evalsha", b"eval_ro", b"evalsha_ro", b"fcall", b"fcall_ro", b"publish"})


@cache
def default_protocol() -> int:
    """The protocol of a connection that is told none: RESP3 since redis-py 8."""
    made: Any = redis.Connection
    return int(made().protocol or 2)


class ShortWay:
    """What one client of redis-py needs to know for it."""

    __slots__ = ("callbacks", "decode", "encode", "encoders", "is_first_database", "link", "pool", "response")

    def __init__(self, execution: Execution, client: Any, pool: Any) -> None:
        self.pool = pool
        self.link = self.opened(execution)
        self.is_first_database = not self.link.client.database
        encoder = pool.get_encoder()
        self.encode: Callable[[Any], bytes] = encoder.encode
        is_plain = (type(encoder), encoder.encoding, encoder.encoding_errors) == _PLAIN_TEXT
        self.encoders = _PLAIN_ENCODERS if is_plain else {}
        """What does as ``encode`` would in less time, by type."""
        self.decode: Callable[[Any], Any] | None = encoder.decode if encoder.decode_responses else None
        self.callbacks = (
            client.response_callbacks
            if self.decode is None and type(client).parse_response is redis.Redis.parse_response
            else None
        )
        """What makes a client's answer of a reply, where that is all that its ``parse_response`` would do."""
        self.response: Any = None

    def opened(self, execution: Execution) -> ShardLink:
        """A connection to the node as it is now."""
        kwargs = self.pool.connection_kwargs
        link = ShardLink(execution, int(kwargs.get("db") or 0), int(kwargs.get("protocol") or default_protocol()))
        if kwargs.get("client_name"):
            link.client.name = str(kwargs["client_name"]).encode()
        return link

    def read_response(self, disable_decoding: bool = False, **_: Any) -> Any:
        """As a connection, for the client's own ``parse_response``."""
        reply = self.response
        kind = type(reply)
        if kind is int or reply is None or (kind is bytes and (disable_decoding or self.decode is None)):
            return reply
        plain = disable_decoding or self.decode is None
        response = converted(reply, _as_it_is if plain else self.decode)  # type: ignore[arg-type]
        if isinstance(response, ResponseError):
            raise response
        return response


def _as_it_is(value: Any) -> Any:
    return value


_BY_CONNECTION, _PLAINLY, _OF_ONE_KEY = range(3)
_kinds: dict[Any, int] = {}
"""Names of commands as clients say them, and which way they take."""


def _kind_of(name: Any) -> int:
    command = find((name.encode(),)) if type(name) is str and " " not in name else None
    if command is None or command.name in _OF_CONNECTIONS:
        return _BY_CONNECTION
    if command.name not in _PLAIN and not command.flags.isdisjoint(_OF_CONNECTIONS_BY_FLAG):
        return _BY_CONNECTION
    return _OF_ONE_KEY if is_of_one_key(command) else _PLAINLY


def _way_of(execution: Execution, client: Any) -> ShortWay | None:
    """The short way of a client, or None where its pool, its connections or its class are none of redis-py's usual."""
    pool = client.connection_pool
    if execution.nodes is not None:
        return None
    known = type(pool) is redis.ConnectionPool and pool.connection_class in _CONNECTIONS
    if not known or client.connection is not None or pool.max_connections < CONNECTIONS_MIN:
        return None
    kwargs = pool.connection_kwargs
    if kwargs.get("redis_connect_func") is not None or getattr(pool, "cache", None) is not None:
        return None
    way = execution.ways[client] = ShortWay(execution, client, pool)
    return way


_CONNECTIONS: Final = (redis.Connection, redis.SSLConnection, redis.UnixDomainSocketConnection)


def _execute_command(kept: Callable[..., Any]) -> Callable[..., Any]:
    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        execution = current.execution
        if execution is None:
            return kept(self, *args, **options)
        lane = execution.lane
        if lane is None or lane.kills or lane.sent is not None:
            return kept(self, *args, **options)
        way = execution.ways.get(self)
        if way is None or way.pool is not self.connection_pool:
            way = _way_of(execution, self)
            if way is None:
                return kept(self, *args, **options)
        name = args[0]
        kind = _kinds.get(name)
        if kind is None:
            kind = _kinds[name] = _kind_of(name)
        if kind == _BY_CONNECTION:
            return kept(self, *args, **options)
        encoder_of, encode = way.encoders.get, way.encode
        argv = (name.encode(), *[encoder_of(type(each), encode)(each) for each in args[1:]])
        execution.pend(Op("command", argv))
        if way.link.restarts != execution.restarts:
            way.link, lane.trouble = way.opened(execution), "refused"
        if lane.trouble:
            lane.sent = (argv, None)
            return _own_way(lane, kept, self, args, options)
        if kind == _OF_ONE_KEY and way.is_first_database:
            reply = execution.command_of_one_key(way.link.client, argv)
        else:
            reply = execution.command(way.link.client, argv)
        execution.reply = reply
        kind_of_reply = type(reply)
        if kind_of_reply is ErrorReply:
            if isinstance(converted(reply, _as_it_is), RedisConnectionError):
                lane.sent = (argv, reply)
                return _own_way(lane, kept, self, args, options)
        elif way.callbacks is not None and kind_of_reply in _SIMPLE and options.keys() <= _WITHOUT_EFFECT:
            if kind_of_reply is Status:
                reply = bytes(reply)
            callback = dict.get(way.callbacks, name.upper())  # past a method of redis-py's that does the same
            return callback(reply) if callback is not None else reply
        way.response = reply
        return self.parse_response(way, name, **options)

    return execute_command


def _own_way(lane: Any, kept: Callable[..., Any], client: Any, args: Any, options: Any) -> Any:
    try:
        return kept(client, *args, **options)
    finally:
        lane.sent = None


# -- clients ---------------------------------------------------------------------------------------------------------

_template: list[Any] = []


def fresh_client() -> Any:
    """A ``redis.Redis()``, made by copying one that nobody has used: a hundredth of the time."""
    if not _template:
        made = redis.Redis()
        _template.append((made, _own(made), made.connection_pool, _own(made.connection_pool)))
    template, own, pool, own_of_pool = _template[0]
    made = _copied(template, own)
    pool = made.connection_pool = _copied(pool, own_of_pool)
    kwargs = pool.connection_kwargs
    if kwargs.get("retry") is not None:  # redis-py 5 has none unless it is told
        kwargs["retry"] = _copied(kwargs["retry"], ())
    return made


def _own(owner: Any) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """Names, values and copiers of the attributes of an object that a copy of it must have for itself."""
    gathered: list[tuple[str, Any, Callable[[Any], Any]]] = []
    for name, value in vars(owner).items():
        kind = type(value)
        if kind is dict or kind is list or kind is set:
            gathered.append((name, value, _plain_copy))
        elif isinstance(value, dict):
            gathered.append((name, value, _copied_mapping))
        elif hasattr(value, "acquire"):
            gathered.append((name, kind, _made_anew))
    return gathered


def _plain_copy(value: Any) -> Any:
    return value.copy()


_LOCK: Final = type(threading.Lock())
"""The locks of pools of redis-py 5; their type makes none itself."""


def _made_anew(kind: Any) -> Any:
    return threading.Lock() if kind is _LOCK else kind()


def _copied_mapping(mapping: Any) -> Any:
    """A copy of an instance of a subclass of dict, whatever its own methods make of keys."""
    kind: Any = type(mapping)
    made = kind.__new__(kind)
    dict.update(made, mapping)
    return made


def _copied(template: Any, own: Any) -> Any:
    made = object.__new__(type(template))
    attributes = vars(made)
    attributes.update(vars(template))
    for name, value, copier in own:
        attributes[name] = copier(value)
    return made


def replacements() -> list[tuple[Any, str, Any]]:
    """(class or module, attribute, what to put there)."""
    changes: list[tuple[Any, str, Any]] = [
        (redis.Redis, "execute_command", _execute_command(redis.Redis.execute_command))
    ]
    version: Callable[[], str] | None = getattr(redis.utils, "get_lib_version", None)
    if version is not None:  # each client reads the metadata of redis-py's package anew, which takes a millisecond
        changes.append((redis.utils, "get_lib_version", cache(version)))
    return changes
