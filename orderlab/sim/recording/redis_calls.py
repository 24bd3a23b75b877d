"""What a recording of a Redis server holds: calls and replies as JSON, and the rows of a history.

A text of RESP that is UTF-8 is a string, any other `{"base64": ...}`, an error `{"error": ...}`. Types of RESP3 are
kept as RESP2 would send them: maps as flat lists, sets as lists, doubles as texts.
"""

from __future__ import annotations

import base64
import heapq
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from orderlab.model.history.decoding import RowDecoder
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import COLUMNS
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.wire.call_counts import is_rejection
from orderlab.sim.redis.wire.monitoring import redacted

OPEN: Final = "open"
"""What a row says of a call that may still happen."""
_NOT_CARRIED_OUT: Final = (b"NOSCRIPT ", b"WRONGPASS ", b"EXECABORT ", b"ERR unknown command")


def text_to_json(text: bytes) -> Any:
    """A text."""
    try:
        return bytes(text).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}


def text_from_json(value: Any) -> bytes:
    """The text. Raises ValueError for what is none."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"], validate=True)
    raise ValueError(f"no text: {value!r:.60}")


def reply_to_json(reply: Reply) -> Any:
    """A reply."""
    if isinstance(reply, ErrorReply):
        return {"error": reply.message.decode("utf-8", "replace")}
    if isinstance(reply, dict):
        return [reply_to_json(part) for pair in reply.items() for part in pair]
    if isinstance(reply, list | tuple | set | frozenset):
        return list(map(reply_to_json, reply))
    if isinstance(reply, bool):
        return int(reply)
    if isinstance(reply, float):
        return repr(reply)
    return text_to_json(reply) if isinstance(reply, bytes) else reply


def reply_from_json(value: Any) -> Reply:
    """The reply. Raises ValueError for what is none."""
    if isinstance(value, list):
        return list(map(reply_from_json, value))
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        return ErrorReply(value["error"].encode())
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return text_from_json(value)


def is_carried_out(reply: Reply) -> bool:
    """Whether a call with this reply did, or may have done, anything."""
    if not isinstance(reply, ErrorReply):
        return True
    return not (is_rejection(reply.message) or reply.message.startswith(_NOT_CARRIED_OUT))


class CallRecording:
    """The rows of one recording, in the order in which they came about. A `process` has one call at a time, a
    connection as many as it has sent: each call takes the lowest number that is free."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.calls = self.unanswered = 0
        self._begun_ns = time.time_ns() - time.monotonic_ns()
        self._free: list[int] = []
        self._numbers = 0

    def _add(self, kind: str, process: int, connection: int, operation: str, value: Any) -> None:
        self.rows.append({
            "event_id": len(self.rows), "time_us": (self._begun_ns + time.monotonic_ns()) // 1000, "kind": kind,
            "process": process, "connection": connection, "operation": operation, "value": json.dumps(value),
        })  # fmt: skip

    def invoked(self, connection: int, argv: Sequence[bytes]) -> tuple[int, str]:
        """A call is about to be passed on; what its end is told with."""
        if self._free:
            process = heapq.heappop(self._free)
        else:
            process, self._numbers = self._numbers, self._numbers + 1
        name = argv[0].decode("utf-8", "replace").lower()
        self.calls += 1
        self._add("invoke", process, connection, name, [text_to_json(word) for word in redacted(argv)])
        return process, name

    def returned(self, connection: int, call: tuple[int, str], reply: Reply) -> None:
        """Its reply is about to be passed on."""
        heapq.heappush(self._free, call[0])
        self._add("ok" if is_carried_out(reply) else "fail", call[0], connection, call[1], reply_to_json(reply))

    def lost(self, connection: int, call: tuple[int, str], is_over: bool) -> None:
        """Its connection has ended: it has happened or not, or may still (``is_over`` false)."""
        self.unanswered += 1
        self._add("info", call[0], connection, call[1], None if is_over else OPEN)

    def write(self, path: Path) -> None:
        """Write the history. Raises InputError where that cannot be."""
        decoder = RowDecoder(str(path))
        batch = decoder.decode(self.rows, frozenset(COLUMNS))
        with HistoryWriter(path, decoder.names) as writer:
            writer.write(batch)
