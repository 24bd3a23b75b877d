"""What a session store's ``store.toml`` has beside what every store's has: operations with their fields, the tables
that are its own, and what its replies tell. The words of sessions are here, and their values in ``results``; what
compiles and reads a binding asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, Self, get_args

from pydantic import Field

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.redis.versions import ServerName
from orderlab.sim.stores.binding.results import (
    Assigned,
    Cleared,
    Fetched,
    FetchedMessage,
    Opened,
    Removed,
    Result,
    Saved,
)
from orderlab.sim.stores.binding.schema import Callers, Calls, Edit, Fixed, SpecimenTable, Table
from orderlab.sim.stores.binding.templates import number, to_bytes, to_text

Specification = Literal["session", "pending"]
"""The kinds of store that speak it, as ``store.toml`` names them; any other names a class of its owner's."""

COMMON_FIELDS = ("client", "epoch", "now_ms", "modulus")

OPERATION_FIELDS: dict[str, tuple[str, ...]] = {
    "open": ("clean_start",),
    "save": ("limit", "default_expiry_ms", "producer", "batch", "messages"),
    "fetch": ("count", "after", "limit", "default_expiry_ms"),
    "acknowledge": ("packet_id", "sequence"),
    "release": ("packet_id", "sequence"),
    "clear": (),
}
"""Beside the common fields, by operation. See ``notes/binding-session.md`` for what each means."""

SAVES, LISTS = "save", "fetch"
"""The operations that no session store does without: the one that takes a batch of messages, and the one that returns
them."""

MESSAGE_FIELDS = ("payload", "topic", "qos", "expiry_ms", "time_ms", "retained", "properties", "index", "message")
"""Inside ``each = "messages"``, and anywhere in a save whose ``batch_max`` is 1."""

RESULT_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("packet_id", "sequence"),
    "fetch": ("payload", "packet_id", "sequence", "kind", "remaining_ms", "deadline_ms", "topic", "qos"),
    "acknowledge": ("count",),
    "release": ("count",),
    "clear": ("count",),
}
"""What ``reply.fields`` and ``reply.columns`` may fill, by operation."""

INTEGER_MEANINGS: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("first", "last", "previous", "sequence", "count"),
    "fetch": (),
    "acknowledge": ("count", "flag", "found"),
    "release": ("count", "flag", "found"),
    "clear": ("count", "flag", "found"),
}
"""What an integer reply may stand for (``reply.is``), by operation."""

Packet = Literal["PUBLISH", "PUBREL"]
PACKETS: tuple[Packet, ...] = get_args(Packet)

DEFAULTS: dict[str, Any] = {
    "client": b"",
    "epoch": 1,
    "now_ms": 0,
    "clean_start": 0,
    "limit": 10_000,
    "default_expiry_ms": 604_800_000,
    "producer": b"",
    "batch": 0,
    "messages": (),
    "count": 10_000,
    "after": 0,
    "packet_id": 0,
    "sequence": 0,
}
"""Value of a field that the caller of an operation leaves out (``modulus`` comes from the binding)."""


Shape = Literal["ignored", "status", "integer", "strings", "messages", "json", "pairs", "records"]


class ReplyTable(Table):
    """How an operation's reply is read."""

    shape: Shape
    """What the reply looks like (``notes/binding-session.md``, Replies)."""
    means: str | None = Field(None, alias="is")
    """What an integer stands for."""
    columns: list[str] | None = None
    """Names of the parts of a row."""
    nested: bool = False
    """Each row is a list of its own."""
    skip: int = Field(0, ge=0)
    """Items before the first row."""
    source: str | None = Field(None, alias="from")
    """A capture that is read in place of the last reply."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Attribute of the result -> where it comes from."""
    kinds: dict[str, Packet] = Field(default_factory=dict)
    """Spelling of the store -> PUBLISH or PUBREL."""
    refused: list[str] = Field(default_factory=list)
    """Replies that decline, nothing done."""
    consecutive: bool = True
    """Identifiers of a batch follow each other."""
    answers_again: bool = False
    """A save that comes again gets the same reply."""
    closed: str | None = None
    """The word for a session that is gone."""
    older: str | None = None
    """The word for a batch older than its producer's last."""

    @property
    def words(self) -> list[str]:
        """Replies that decline the operation, nothing done."""
        return [*self.refused, *(word for word in (self.closed, self.older) if word is not None)]


class Operation(Calls):
    """One operation of a session store."""

    reply: ReplyTable | None = None
    """How the reply is read; ignored unless said."""
    batch_max: int | None = Field(None, ge=1)
    """Of save: the largest batch; with 1 the message's fields can be named directly."""


class Operations(Table):
    """The operations that the store has; save and fetch at least."""

    open: Operation | None = None
    """CONNECT."""
    save: Operation
    """A batch of messages is kept."""
    fetch: Operation
    """A page of what waits, the oldest first."""
    acknowledge: Operation | None = None
    """PUBACK or PUBCOMP."""
    release: Operation | None = None
    """PUBREC."""
    clear: Operation | None = None
    """The session ends."""


class MessageFormat(Table):
    """How one message is written as a value (the field ``message``)."""

    format: Literal["raw", "json", "packed"]
    """raw: the payload; json: an object; packed: binary."""
    fields: dict[str, Any] | None = None
    """Of json: member -> template."""
    layout: list[str] | None = None
    """Of packed: ``part:type``, one after the other."""


class Store(Table):
    """A whole ``store.toml``."""

    name: str | None = None
    """How reports name the store; the folder's name unless said."""
    base: str | None = None
    """Another store.toml: what is not said here is as there."""
    edits: list[Edit] = Field(default_factory=list)
    """Changes of the base's scripts."""
    includes: dict[str, str] = Field(default_factory=dict)
    """Folders beside the store's own that its scripts may include files of, by the name of each."""
    holes: dict[str, str] = Field(default_factory=dict)
    """What stands in strings of programs where they put a value in, by the text of what is put in."""
    specification: Specification = "session"
    """The contract; a file without the key is taken for a session's."""
    server: ServerName = "7.0"
    """The server that the scripts are for."""
    tables: Literal["postgres", "postgres-async"] | None = None
    """What carries the operations out in place of a node of Redis; ``-async``: no commit waits for the log."""
    modulus: int = Field(MODULUS, ge=1, le=MODULUS)
    """How many packet identifiers there are."""
    assumptions: list[str] = Field(default_factory=list)
    """Sentences that every report repeats: what the store takes for granted."""
    adapter: str | None = None
    """A Python file in place of templates; it is run with ``--trust-adapter`` alone."""
    keys: dict[str, str] = Field(default_factory=dict)
    """Name -> template of a key. Braces are a hash tag, as in Redis."""
    message: MessageFormat | None = None
    """How one message is written as a value."""
    fixed: Fixed = Fixed()
    """Values that the scripts fix themselves."""
    callers: Callers = Callers()
    """What callers may give."""
    operations: Operations
    """Operation -> how it is called, and how its reply is read."""
    specimen: SpecimenTable | None = None
    """Of a store that is flawed on purpose."""

    @property
    def contract_class(self) -> None:
        """No class: what a session is, the suite itself knows."""

    @property
    def promises(self) -> Mapping[str, Any]:
        """Nothing: what a session store promises is in the tables of its operations."""
        return {}

    def with_operations(self, names: Collection[str]) -> Self:
        """The same store with these of its operations alone."""
        gone = {name: None for name, _ in self.operations if name not in names}
        return self.model_copy(update={"operations": self.operations.model_copy(update=gone)})


Values = Mapping[str, Any]
"""What one row of a reply tells, by attribute."""


def result_of(
    operation: str, table: ReplyTable, rows: Iterable[Values], whole: int | None, batch: int, modulus: int
) -> Result:
    """The result of an operation, from the rows of its reply or from the integer that it is. ``batch``: messages that
    it took.

    Raises ValueError for what no session store may say.
    """
    if operation == "fetch":
        return Fetched(tuple(_message(row, table) for row in rows))
    if operation == "save":
        if whole is not None:
            return _numbered(whole, table, batch, modulus)
        return _saved(tuple(map(_assigned, rows)))
    row = next(({name: _integer(value) for name, value in one.items()} for one in rows), {})
    if whole is not None and table.means in ("flag", "found"):
        if whole not in (0, 1):
            raise ValueError(f"the binding promises 0 or 1, not {whole}")
        row["count"] = whole
    elif whole is not None:
        row[table.means or "count"] = whole
    if operation == "open":
        present = row.get("session_present")
        if present not in (None, 0, 1):
            raise ValueError(f"session present is one bit (3.2.2.1.1), not {present}")
        return Opened(None if present is None else bool(present), row.get("epoch"))
    return Cleared(row.get("count")) if operation == "clear" else Removed(row.get("count"))


def refused(operation: str, word: str) -> Result:
    """An operation that was declined by a word."""
    kinds: dict[str, Callable[..., Result]] = {"open": Opened, "save": Saved, "fetch": Fetched, "clear": Cleared}
    return kinds.get(operation, Removed)(refused=word)


def _assigned(row: Values) -> Assigned:
    packet_id, sequence = _integer(row.get("packet_id")), _integer(row.get("sequence"))
    if packet_id is not None and not 0 <= packet_id <= MODULUS:
        raise ValueError(
            f"a packet identifier is a number from 1 to 65535, 0 for a message that was not kept, not {packet_id}"
        )
    if packet_id == 0 or sequence == 0:  # neither numbers a message: this one was not kept
        return Assigned(None)
    return Assigned(packet_id, sequence)


def _numbered(value: int, table: ReplyTable, size: int, modulus: int) -> Saved:
    """An integer reply of save: the identifiers of the batch follow from one of them."""
    means = table.means
    if means == "count":
        return Saved(count=value)
    if means == "sequence":
        sequences = range(value - size + 1, value + 1)
        return Saved(tuple(Assigned(None, sequence) for sequence in sequences))
    if not size or not table.consecutive:
        return Saved(first=value if means == "first" else None, last=value if means == "last" else None)
    before = value - 1 if means == "first" else value - size if means == "last" else value
    return _saved(tuple(Assigned((before + index) % modulus + 1) for index in range(size)))


def _saved(assigned: tuple[Assigned, ...]) -> Saved:
    if not assigned:
        return Saved()
    return Saved(assigned, first=assigned[0].packet_id, last=assigned[-1].packet_id)


def _message(row: Values, table: ReplyTable) -> FetchedMessage:
    kind = row.get("kind")
    word = "PUBLISH" if kind is None else to_text(kind).decode("utf-8", "replace")
    word = table.kinds.get(word, word)
    if word not in PACKETS:
        raise ValueError(f'kind "{word}" is neither PUBLISH nor PUBREL; map it in reply.kinds')
    payload, topic = row.get("payload"), row.get("topic")
    return FetchedMessage(
        payload=None if payload is None else _octets(payload),
        packet_id=_integer(row.get("packet_id")),
        sequence=_integer(row.get("sequence")),
        kind=word,
        remaining_ms=_number(row.get("remaining_ms")),
        deadline_ms=_number(row.get("deadline_ms")),
        topic=None if topic is None else _octets(topic),
        qos=_integer(row.get("qos")),
    )


def _octets(value: Any) -> bytes:
    return to_bytes(value) if isinstance(value, str) else to_text(value)


def _integer(value: Any) -> int | None:
    return None if value is None else int(number(value))


def _number(value: Any) -> int | float | None:
    return None if value is None or value == b"" else number(value)
