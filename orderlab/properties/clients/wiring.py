"""redis-py on the kernel: within a lane every connection that it opens leads to the execution's shard.

The methods of redis-py's own connection class are replaced where they would meet a socket, so that pools, clients,
retries and locks above them are the library's own. Arguments go to the kernel as they are, without a wire between.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import redis
import redis.connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from orderlab.properties.clients.execution import Current, Execution, current, lane_here
from orderlab.properties.clients.footprints import PUBSUB
from orderlab.properties.clients.gate_wire import encoded, parts
from orderlab.properties.clients.lane import Killed, Lane, Op
from orderlab.properties.clients.troubles import befallen
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply, Reply, Status

Argv = tuple[bytes, ...]
SOCKET: Final = "_sock"
"""Where redis-py keeps the socket of a connection."""


class NobodyThere(RedisConnectionError):
    """What is sent by a client that is dead, or by what one left behind when its execution was over."""


def refuse_outside() -> None:
    """Raise NobodyThere between executions: else a client that is freed then would find a real server."""
    if current.is_controlled:
        raise NobodyThere("the client's execution is over")


def _unraisable(kept: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def hook(unraisable: Any) -> Any:
        return None if isinstance(unraisable.exc_value, (NobodyThere, Killed)) else kept(unraisable)

    return hook


class ShardLink:
    """What stands in place of a connection's socket: a client of the shard, and replies that were not read."""

    __slots__ = ("client", "error", "execution", "replies", "restarts")

    def __init__(self, execution: Execution, database: int, resp: int, port: int = 0) -> None:
        self.execution = execution
        execution.connections += 1
        self.client = Client(id=execution.connections, may_wait=True, resp=resp, database=database)
        if execution.nodes is not None:
            execution.nodes.admit(self.client, port)
        self.replies: deque[Any] = deque()
        self.error: Exception | None = None
        self.restarts = execution.restarts

    @property
    def is_broken(self) -> bool:
        """Whether the node has restarted since: the next to use it is told."""
        if self.restarts != self.execution.restarts and self.error is None:
            self.error = RedisConnectionError("Connection closed by server.")
            self.replies.clear()
            self.client.pushed.clear()
        return self.error is not None

    def shutdown(self, how: int = 0) -> None:
        """As a socket."""

    def sendall(self, data: bytes) -> None:
        """As a socket, of what is thrown away when its execution is over."""

    async def wait_closed(self) -> None:
        """As a stream."""

    def close(self, here: Current = current) -> None:
        """As a socket: the server notices. ``here``: kept, as clients are also closed when modules are gone."""
        if self.execution is here.execution:
            self.execution.shard.disconnect(self.client)


def linked(connection: Any) -> ShardLink:
    """The link of a connection in the execution that goes on; made where there is none."""
    link = vars(connection).get(SOCKET)
    execution = current.execution
    if type(link) is ShardLink and link.execution is execution:
        return link
    link = ShardLink(execution, int(connection.db or 0), int(connection.protocol or 2), port_of(connection))
    setattr(connection, SOCKET, link)
    if connection.client_name:
        link.client.name = str(connection.client_name).encode()
    for reference in list(vars(connection)["_connect_callbacks"]):
        callback = reference() if callable(reference) else reference
        if callback is not None:
            callback(connection)
    return link


def port_of(connection: Any) -> int:
    """The port that a connection of redis-py was told; 0: none."""
    return int(getattr(connection, "port", 0) or 0)


def send(connection: Any, commands: Sequence[Argv]) -> None:
    """Send commands: each, or a whole MULTI with its EXEC, is one step."""
    link = linked(connection)
    execution = link.execution
    lane = execution.lane
    if lane is not None and 0 < lane.kills < 50:  # what a dying client's clean-up sends reaches nobody
        lane.kills += 1
        raise NobodyThere("the client is dead")
    for part in parts(commands):
        if not link.is_broken:
            _send_part(execution, link, part)


def _send_part(execution: Execution, link: ShardLink, part: Sequence[Argv]) -> None:
    lane = execution.lane
    assert lane is not None
    sent, lane.sent = lane.sent, None
    if sent is None:
        execution.pend(Op("command", part[0] if len(part) == 1 else tuple(part)))
    elif sent[1] is not None:
        link.replies.append(sent[1])
        return
    carry(execution, lane, link, part)


def carry(execution: Execution, lane: Lane, link: ShardLink, part: Sequence[Argv]) -> None:
    """Carry out a step of ``lane``, with the fault that befalls it."""
    trouble, lane.trouble = lane.trouble, ""
    if trouble == "refused" or link.is_broken:
        link.error = link.error or RedisConnectionError("Connection reset by peer")
        return
    node = execution.shard if execution.nodes is None else execution.nodes.of(link.client)
    with befallen(node, trouble):
        replies = [execution.command(link.client, argv) for argv in part]
    execution.reply = replies[-1]
    if trouble == "reply-lost":
        link.error = RedisConnectionError("Connection closed by server.")
    elif trouble == "timeout":
        link.error = RedisTimeoutError("Timeout reading from socket")
    else:
        link.replies.extend(reply for argv, reply in zip(part, replies, strict=True) if not _is_pushed(argv))


def _is_pushed(argv: Argv) -> bool:
    return argv[0].lower().endswith(b"subscribe")


def converted(reply: Reply, decode: Callable[[Any], Any]) -> Any:
    """A reply of the kernel as redis-py's parsers hand it on."""
    kind = type(reply)
    if kind is bytes:
        return decode(reply)
    if reply is None or kind is int or kind is float or kind is bool:
        return reply
    if kind is list:
        return [converted(each, decode) for each in reply]
    if isinstance(reply, ErrorReply):
        parser: Any = redis.connection.DefaultParser
        return parser.parse_error(reply.message.decode(errors="replace"))
    if isinstance(reply, Status):
        return decode(bytes(reply))
    if isinstance(reply, dict):
        return {_hashable(converted(key, decode)): converted(value, decode) for key, value in reply.items()}
    if isinstance(reply, (set, frozenset)):
        return {_hashable(converted(each, decode)) for each in sorted(reply, key=repr)}
    if isinstance(reply, (list, tuple)):
        return [converted(each, decode) for each in reply]
    return decode(bytes(reply)) if isinstance(reply, bytes) else reply


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def has_data(link: ShardLink) -> bool:
    """Whether a reply, or a message, can be read."""
    return link.is_broken or bool(link.replies or link.client.pushed)


def receive(connection: Any, timeout_s: float | None, decode: Callable[[Any], Any]) -> Any:
    """The next reply. Raises what redis-py raises when it does not come."""
    link = linked(connection)
    execution = link.execution
    if link.is_broken and not link.replies:
        error = link.error
        assert error is not None
        connection.disconnect()
        raise error
    while not link.replies and not link.client.pushed:
        until = None if timeout_s is None else execution.now_us + round(timeout_s * 1e6)
        execution.touched.writes.add(PUBSUB)
        execution.pend(Op("wait", "a message", lambda: has_data(link), until))
        if not has_data(link):
            raise RedisTimeoutError("Timeout reading from socket")
        if link.is_broken:
            return receive(connection, timeout_s, decode)
    if not link.replies:
        execution.touched.reads.add(PUBSUB)
        return converted(link.client.pushed.pop(0), decode)
    reply = link.replies.popleft()
    if isinstance(reply, Waiting):
        until = None if timeout_s is None else execution.now_us + round(timeout_s * 1e6)
        execution.pend(Op("wait", reply.argv, lambda: reply.is_over or link.is_broken, until))
        if link.is_broken:
            return receive(connection, timeout_s, decode)
        if not reply.is_over:
            connection.disconnect()
            raise RedisTimeoutError("Timeout reading from socket")
        reply = reply.reply
    return converted(reply, decode)


def decoder(connection: Any, disabled: bool) -> Callable[[Any], Any]:
    """What makes texts of the bytes of a reply, where its client wants texts."""
    encoder = connection.encoder
    if disabled or not encoder.decode_responses:
        return lambda value: value
    return lambda value: encoder.decode(value)


_MISSING: Final = object()


def _sync_methods(original: type) -> dict[str, Any]:
    """The methods to put in place of those of redis-py's connections."""
    kept = {name: getattr(original, name) for name in _REPLACED}

    def connect(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lane_here() is not None:
            return linked(self) and None
        refuse_outside()
        return kept["connect"](self, *args, **kwargs)

    def connect_check_health(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lane_here() is not None:
            return linked(self) and None
        refuse_outside()
        return kept["connect_check_health"](self, *args, **kwargs)

    def pack_command(self: Any, *args: Any) -> Any:
        return [encoded(self, args)] if lane_here() is not None else kept["pack_command"](self, *args)

    def pack_commands(self: Any, commands: Iterable[Any]) -> Any:
        if lane_here() is None:
            return kept["pack_commands"](self, commands)
        return [encoded(self, each) for each in commands]

    def send_command(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lane_here() is None:
            return kept["send_command"](self, *args, **kwargs)
        return send(self, (encoded(self, args),))

    def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        if lane_here() is None:
            return kept["send_packed_command"](self, command, check_health)
        return send(self, command)

    def can_read(self: Any, timeout: float | None = 0) -> bool:
        execution = current.execution
        if execution is None or execution.lane is None:
            return bool(kept["can_read"](self, timeout))
        link = linked(self)
        if not has_data(link) and timeout != 0:
            execution.touched.writes.add(PUBSUB)
            until = None if timeout is None else execution.now_us + round(timeout * 1e6)
            execution.pend(Op("wait", "a message", lambda: has_data(link), until, until is not None))
        return has_data(link)

    def read_response(self: Any, disable_decoding: bool = False, **kwargs: Any) -> Any:
        if lane_here() is None:
            return kept["read_response"](self, disable_decoding, **kwargs)
        timeout = kwargs.get("timeout", _MISSING)
        if not isinstance(timeout, (int, float, type(None))):
            timeout = self.socket_timeout
        response = receive(self, timeout, decoder(self, disable_decoding))
        if isinstance(response, ResponseError):
            raise response
        return response

    def check_health(self: Any) -> Any:
        return None if lane_here() is not None else kept["check_health"](self)

    def disconnect(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self._sock, ShardLink):
            return kept["disconnect"](self, *args, **kwargs)
        link, self._sock = self._sock, None
        self._should_reconnect = False
        return link.close()

    here = locals()
    return {name: here[name] for name in _REPLACED}


_REPLACED: Final = tuple(
    name
    for name in (
        "connect",
        "connect_check_health",
        "pack_command",
        "pack_commands",
        "send_command",
        "send_packed_command",
        "can_read",
        "read_response",
        "check_health",
        "disconnect",
    )
    if hasattr(redis.connection.AbstractConnection, name)
)


def replacements() -> list[tuple[Any, str, Any]]:
    """(class, attribute, what to put there)."""
    base = redis.connection.AbstractConnection
    methods = [(base, name, method) for name, method in _sync_methods(base).items()]
    return [*methods, (sys, "unraisablehook", _unraisable(sys.unraisablehook))]
