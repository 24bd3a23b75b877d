"""What a script has come to: the reply for what ``run.lua`` returns, or the error."""

from __future__ import annotations

from typing import Any

from orderlab.sim.redis.lua.replies import ResultReader, error_line, to_integer
from orderlab.sim.redis.lua.sandbox import Sandbox
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import ErrorReply, Reply

NO_MESSAGE = (
    b"ERR Error running script %b, the error table has no string in the field 'err' (a real server crashes here)"
)


def result_of(sandbox: Sandbox, outcome: Any, name: bytes, resp: int, node: NodeState) -> Reply:
    """The reply for what ``run.lua`` returns, to a client that speaks RESP ``resp``; ``node.resp`` is what the
    script has set. Raises ErrorReply for a script that failed."""
    if outcome is None:
        return None
    if outcome is True:
        return []
    if not isinstance(outcome, tuple):
        return to_integer(outcome)
    kind = outcome[0]
    if kind:
        _, *items = outcome
        return items if float not in map(type, items) else [_item(item) for item in items]
    reader = ResultReader(resp, node.resp, node.double_text)
    if kind is None:
        return _tree(sandbox, outcome, reader)
    if outcome[1] == b"boolean":
        return reader.boolean(outcome[2])
    if outcome[1] == b"failure":
        sandbox.clean()
        raise broken(name, outcome[2])
    message, source, line = outcome[2:]
    if message is None:
        raise ErrorReply(NO_MESSAGE % name)
    if not node.version.has((7, 0)):
        place = b"" if source is None or line is None else b"%b:%b: " % (source, line)
        message = b"ERR Error running script (call to f_%b): %b%b" % (name, place, message.split(b"\0")[0])
    elif source is not None and line is not None:
        message = message.split(b"\0")[0] + b" script: %b, on %b:%b." % (name, source, line)
    raise ErrorReply(error_line(message))


def _tree(sandbox: Sandbox, outcome: tuple[Any, ...], reader: ResultReader) -> Reply:
    size, parts = outcome[1], list(outcome[2:])
    take = sandbox.function("take_parts")
    while len(parts) < size:
        parts += take(len(parts) + 1)
    sandbox.function("drop_parts")()
    reply = reader.tree(parts)
    if isinstance(reply, ErrorReply):
        raise reply
    return reply


def _item(item: Any) -> Reply:
    return item if type(item) is bytes else to_integer(item)


def broken(name: bytes, message: bytes) -> ErrorReply:
    """A script that ended without an error of its own: out of memory, as a rule."""
    return ErrorReply(error_line(b"ERR Error running script %b, %.100b" % (name, message)))
