"""Requests of a client, taken from the bytes that it sends: RESP arrays and lines (``processMultibulkBuffer`` and
``processInlineBuffer`` of Redis 7.0.15, with their limits and their texts)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.lua.host import split_arguments
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.replies import ErrorReply

LINE_MAX_BYTES: Final = 64 << 10
"""``PROTO_INLINE_MAX_SIZE``: a line, or the head of an array or of a string."""
COUNT_MAX: Final = (1 << 31) - 1
UNAUTHENTICATED_COUNT_MAX: Final = 10
UNAUTHENTICATED_BULK_MAX_BYTES: Final = 16_384
_SHORT: Final = {b"%d" % number: number for number in range(1000)}
"""Most lengths, read by looking them up."""


class RequestReader:
    """The bytes of one connection that were not taken yet: ``feed`` them as they come, ask ``next`` for requests."""

    def __init__(self) -> None:
        self.bulk_max_bytes = 512 << 20
        """``proto-max-bulk-len``."""
        self.needs_auth = False
        """Nobody has said who this is: little is read until then."""
        self._buffer = b""
        self._at = 0
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._needed = 0
        """As long as fewer bytes than this are there, looking at them again is in vain."""
        self._arguments: list[bytes] = []
        self._argument_bytes = 0
        self._left = 0
        """Arguments that the array which has begun still lacks."""
        self._bulk_bytes = -1
        """Length of the argument whose head was read; -1: none was."""

    @property
    def held_bytes(self) -> int:
        """What is kept for the connection, the arguments of a request that is not whole among it."""
        return len(self._buffer) - self._at + self._chunk_bytes + self._argument_bytes

    def feed(self, data: bytes) -> None:
        """Take what the client has sent."""
        if self._at >= len(self._buffer) and not self._chunks:
            self._buffer, self._at = data, 0
        else:
            self._chunks.append(data)
            self._chunk_bytes += len(data)

    def next(self) -> Sequence[bytes] | None:
        """The next whole request; None if there is none yet.

        Raises ErrorReply where the client does not speak the protocol: nothing after that can be understood.
        """
        while True:
            if self._chunks:
                there = len(self._buffer) - self._at + self._chunk_bytes
                if there < self._needed:
                    return None
                self._buffer = b"".join((self._buffer[self._at :], *self._chunks))
                self._at, self._chunk_bytes = 0, 0
                self._chunks.clear()
            elif len(self._buffer) - self._at < self._needed:
                return None
            if not self._left:
                if self._at >= len(self._buffer):
                    self._buffer, self._at, self._needed = b"", 0, 0
                    return None
                if self._buffer[self._at] != 0x2A:
                    line = self._line()
                    if line is None:
                        return None
                    if line:
                        return line
                    continue
                if not self._head():
                    return None
                if not self._left:
                    continue  # an empty array asks for nothing
            return self._items()

    def _line(self) -> list[bytes] | None:
        """The words of a line; None if it has not ended."""
        end = self._buffer.find(b"\n", self._at)
        if end < 0 or self._buffer.find(b"\0", self._at, end) >= 0:  # to a server, text behind a NUL is not there
            if len(self._buffer) - self._at > LINE_MAX_BYTES:
                raise ErrorReply(b"ERR Protocol error: too big inline request")
            self._wait_for_more()
            return None
        line = self._buffer[self._at : end]
        self._at, self._needed = end + 1, 0
        words = split_arguments(line.removesuffix(b"\r"))
        if words is None:
            raise ErrorReply(b"ERR Protocol error: unbalanced quotes in request")
        return words

    def _wait_for_more(self) -> None:
        self._needed = len(self._buffer) - self._at + 1

    def _number(self, what: bytes) -> bytes | None:
        """The rest of a head after its first byte."""
        end = self._buffer.find(b"\r", self._at)
        if end < 0:
            if len(self._buffer) - self._at > LINE_MAX_BYTES:
                raise ErrorReply(b"ERR Protocol error: too big %b count string" % what)
            self._wait_for_more()
            return None
        if end + 2 > len(self._buffer):
            self._wait_for_more()
            return None
        text = self._buffer[self._at + 1 : end]
        self._head_end = end + 2
        return text

    def _head(self) -> bool:
        """Read how many arguments an array has; whether it was there."""
        text = self._number(b"mbulk")
        if text is None:
            return False
        count = parse_integer(text)
        if count is None or count > COUNT_MAX:
            raise ErrorReply(b"ERR Protocol error: invalid multibulk length")
        if self.needs_auth and count > UNAUTHENTICATED_COUNT_MAX:
            raise ErrorReply(b"ERR Protocol error: unauthenticated multibulk length")
        self._at, self._needed = self._head_end, 0
        self._left = max(0, count)
        return True

    def _items(self) -> list[bytes] | None:
        """The arguments of the array that has begun, once all are there."""
        buffer, at, arguments = self._buffer, self._at, self._arguments
        size = len(buffer)
        find, short = buffer.find, _SHORT
        while self._left:
            length = self._bulk_bytes
            if length < 0:
                end = find(b"\r", at)
                if end >= 0 and end + 2 <= size and buffer[at] == 0x24:
                    known = short.get(buffer[at + 1 : end])
                    length = known if known is not None and not self.needs_auth else self._bulk_head(at)
                    at = end + 2
                else:
                    self._at = at
                    length = self._bulk_head(at)
                    if length < 0:
                        return None
                    at = self._head_end
            stop = at + length
            if stop + 2 > size:
                self._bulk_bytes, self._at, self._needed = length, at, length + 2
                return None
            arguments.append(buffer[at:stop])
            self._argument_bytes += length + 64
            at = stop + 2
            self._bulk_bytes = -1
            self._left -= 1
        self._at, self._arguments, self._argument_bytes, self._needed = at, [], 0, 0
        return arguments

    def _bulk_head(self, at: int) -> int:
        """The length of the argument whose head stands at ``at``; -1 if that has not ended."""
        self._at = at
        if at >= len(self._buffer):
            self._wait_for_more()
            return -1
        text = self._number(b"bulk")
        if text is None:
            return -1
        if self._buffer[at] != 0x24:
            raise ErrorReply(b"ERR Protocol error: expected '$', got '%c'" % self._buffer[at])
        length = parse_integer(text)
        if length is None or not 0 <= length <= self.bulk_max_bytes:
            raise ErrorReply(b"ERR Protocol error: invalid bulk length")
        if self.needs_auth and length > UNAUTHENTICATED_BULK_MAX_BYTES:
            raise ErrorReply(b"ERR Protocol error: unauthenticated bulk length")
        return length
