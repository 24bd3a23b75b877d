"""What a store's operations take and give back, whatever the layout of its keys: messages in, results out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class Piece(NamedTuple):
    """Lines of a composed script that come from one file, one after the other."""

    name: str
    """The file's name relative to the store's folder."""
    path: Path
    first: int
    """Of them, in the file."""
    lines: int


@dataclass(frozen=True)
class Script:
    """One Lua source of a store. ``source`` is what goes to the server, byte for byte."""

    name: str
    """File name relative to the store's folder; ``FILE#NAME`` where a file of another language holds it."""
    source: bytes = field(repr=False)
    path: Path
    pieces: tuple[Piece, ...] = ()
    """What the source is composed of, where it includes other files, or is a string of a program."""

    def place_of(self, line: int) -> tuple[str, Path, int]:
        """The file's name, its path, and the line there, of a line of the source; both count from 1."""
        left = line
        for piece in self.pieces:
            if left <= piece.lines:
                return piece.name, piece.path, piece.first + left - 1
            left -= piece.lines
        if not self.pieces:
            return self.name, self.path, line
        return piece.name, piece.path, piece.first + piece.lines - 1 + left  # a mutant's further lines

    def text_of(self, line: int) -> str:
        """That line as text, without blanks around it; empty where there is none."""
        lines = self.source.split(b"\n", line)
        return lines[line - 1].decode("utf-8", "replace").strip() if 0 < line <= len(lines) else ""

    @property
    def files(self) -> dict[str, bytes]:
        """What it takes from each file, by name, each line where it stands there; other lines are empty."""
        if not self.pieces:
            return {self.name: self.source}
        found: dict[str, dict[int, list[bytes]]] = {}
        lines = iter(self.source.split(b"\n"))
        for piece in self.pieces:
            rows = found.setdefault(piece.name, {})
            for number, line in zip(range(piece.first, piece.first + piece.lines), lines, strict=False):
                rows.setdefault(number, []).append(line)
        return {
            name: b"".join(b" ".join(rows.get(number, ())) + b"\n" for number in range(1, max(rows) + 1))
            for name, rows in found.items()
        }

    @cached_property
    def sha1(self) -> str:
        """The digest under which EVALSHA finds the script."""
        return hashlib.sha1(self.source).hexdigest()


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """EVALSHA of ``script``; with ``function`` set, FCALL of that function, whose library is ``script``."""

    operation: str
    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]
    read_only: bool = False
    function: str | None = None

    @property
    def argv(self) -> tuple[bytes, ...]:
        """The command for a server that has the script loaded (SCRIPT LOAD, or FUNCTION LOAD for a library)."""
        count = b"%d" % len(self.keys)
        if self.function is not None:
            return (b"FCALL", self.function.encode(), count, *self.keys, *self.args)
        return (b"EVALSHA", self.script.sha1.encode(), count, *self.keys, *self.args)

    @property
    def argv_with_source(self) -> tuple[bytes, ...]:
        """The command for a server that may not know the script: EVAL (FCALL for a library, which must be loaded)."""
        if self.function is not None:
            return self.argv
        return (b"EVAL", self.script.source, b"%d" % len(self.keys), *self.keys, *self.args)


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A plain command that the store's client sends itself, between or instead of scripts."""

    operation: str
    argv: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TransactionCall:
    """MULTI, these calls, and EXEC, without waiting for anything between them."""

    operation: str
    calls: tuple[ScriptCall | CommandCall, ...]

    @property
    def argv(self) -> tuple[bytes, ...]:
        """The command that carries it out, and whose reply is that of the call."""
        return (b"EXEC",)

    @property
    def queued(self) -> tuple[tuple[bytes, ...], ...]:
        """The commands before it. A script goes as its text: a client cannot load it any more once EXEC says
        NOSCRIPT."""
        return tuple(one.argv_with_source if isinstance(one, ScriptCall) else one.argv for one in self.calls)


Call = ScriptCall | CommandCall | TransactionCall


PropertyValue = bytes | str | int | float | bool | None
"""A value in a message's user properties."""


@dataclass(frozen=True, slots=True)
class Message:
    """One MQTT message on its way into a store.

    ``expiry_ms`` is the user's own value in milliseconds, unchecked: 0, fractions, negative and huge ones included;
    ``None`` means that the publisher gave no message expiry interval. ``time_ms`` is the publisher's clock.
    """

    payload: bytes
    topic: bytes = b""
    qos: int = 1
    expiry_ms: int | float | None = None
    time_ms: int = 0
    retained: bool = False
    properties: tuple[tuple[str, PropertyValue], ...] = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """The packet identifier, and where the store has one the sequence token, of one saved message."""

    packet_id: int | None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class FetchedMessage:
    """One message as fetch returns it. What the store's reply does not tell is ``None``.

    ``kind`` is ``PUBLISH`` or ``PUBREL``. ``remaining_ms`` is the expiry interval left, ``deadline_ms`` an absolute
    deadline on the store's clock (Unix milliseconds); a store tells at most one of the two.
    """

    payload: bytes | None
    packet_id: int | None = None
    sequence: int | None = None
    kind: str = "PUBLISH"
    remaining_ms: float | None = None
    deadline_ms: float | None = None
    topic: bytes | None = None
    qos: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Reply of ``open``. ``refused`` carries the store's word when it declined without an error."""

    session_present: bool | None = None
    epoch: int | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """Reply of ``save``: what was assigned, in the order of the batch, as far as the reply tells."""

    assigned: tuple[Assigned, ...] = ()
    refused: str | None = None
    first: int | None = None
    """First packet identifier of the batch."""
    last: int | None = None
    """Last packet identifier of the batch."""
    count: int | None = None
    """Number of messages that the store says it saved or now holds, for stores that reply with that alone."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Reply of ``fetch``: one page, oldest first."""

    messages: tuple[FetchedMessage, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """Reply of ``acknowledge`` and ``release``: how many messages it changed (``None``: the reply does not say)."""

    count: int | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Reply of ``clear``."""

    count: int | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The operation ended in an error reply; ``error`` is the server's whole text, error code first."""

    error: bytes


@dataclass(frozen=True, slots=True)
class ContractReply:
    """Reply of an operation whose contract is the store's owner's: a plain value."""

    reply: object = None
    """None, an integer, text (bytes where it is not UTF-8), or a tuple of such."""


@dataclass(frozen=True, slots=True)
class GivenUp(Failed):
    """Watched keys had changed as often as the client was willing to begin again: nothing of the transaction has
    happened."""


Result = Opened | Saved | Fetched | Removed | Cleared | ContractReply | Failed

Fields = Mapping[str, object]
"""What the caller of an operation supplies, by the names of ``orderlab.sim.stores.binding.session``."""
