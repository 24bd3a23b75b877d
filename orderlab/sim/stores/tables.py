"""Tables of PostgreSQL as a backend: a session store whose operations are transactions, and not scripts on a node.

Each operation of the binding is one command: SAVE, FETCH, ACKNOWLEDGE, RELEASE, CLEAR. The keyspace has a hash for each
row, so that whatever looks at keys looks at rows. What a crash would leave, where that is less than what is committed,
is part of the state and no row: it is under ``ON_DISK``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_type_hints

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.errors import InputError
from orderlab.sim.engine.packs import NUMBER_BYTES
from orderlab.sim.redis.backends.backend import FIRST_MS, Argv, Backend, Valued
from orderlab.sim.redis.conditions import NodeCrashed
from orderlab.sim.redis.error_conditions import CRASHED
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.servers.postgres import StatementError
from orderlab.sim.servers.postgres_rows import MessageRow, Rows, SessionRow
from orderlab.sim.servers.session_tables import CODES, Incoming, SessionTables, SimulatedTables
from orderlab.sim.stores.binding.binding import Binding

TABLES: Mapping[str, bool] = {"postgres": True, "postgres-async": False}
"""``tables`` of a ``store.toml`` -> whether a commit waits until the log is on disk."""
SESSIONS, MESSAGES = b"device_session_ctx:", b"device_publish_msg:"
MakeTables = Callable[[int, bool, int], SessionTables]
"""For a limit, whether commits wait for the log, and a number of packet identifiers."""
ON_DISK = b"\0on disk"
HINTS: Mapping[Any, Mapping[str, Any]] = {kind: get_type_hints(kind) for kind in (SessionRow, MessageRow)}
"""Types of the columns."""


class TablesBackend(Backend):
    """The simulated tables of one server."""

    sees_virtual_time = True
    contains_scripts = True
    trouble = tuple(CODES)
    upkeep = ("clean-up", "settle", "crash")

    def __init__(self, binding: Binding, now_ms: int = FIRST_MS, make: MakeTables = SimulatedTables) -> None:
        assert binding.tables is not None
        self.tables = make(binding.fixed["limit"], TABLES[binding.tables], binding.modulus)
        self.tables.now_ms = now_ms
        self._payloads: list[bytes] = [b""]
        self._numbers: dict[bytes, int] = {}
        """Of a payload: the simulation's rows carry numbers."""
        self._fault: Any = None
        self._operations: Mapping[bytes, Callable[..., Reply]] = {
            b"SAVE": self._save,
            b"FETCH": self._fetch,
            b"ACKNOWLEDGE": lambda client, packet_id: self.tables.acknowledge(client, int(packet_id), self._fault),
            b"RELEASE": lambda client, packet_id: self.tables.release(client, int(packet_id), self._fault),
            b"CLEAR": lambda client: self.tables.clear(client, self._fault),
        }

    # -- operations --------------------------------------------------------------------------------------------------

    def execute(self, *argv: bytes) -> Reply:
        name, *given = argv
        if name not in self._operations:
            return ErrorReply(b"ERR the tables have no operation '%b'" % name)
        if self._fault == CRASHED.name:
            self.tables.crash()
            raise NodeCrashed
        reply = self._operations[name](*given)
        return ErrorReply(reply.message.encode()) if isinstance(reply, StatementError) else reply

    def pipeline(self, commands: Sequence[Argv]) -> list[Reply]:
        return [self.execute(*argv) for argv in commands]

    def _save(self, client: bytes, *messages: bytes) -> Any:
        batch = [
            Incoming(self._number_of(payload), topic, int(qos), int(float(ms) // 1000) if ms else None)
            for topic, qos, ms, payload in zip(*[iter(messages)] * 4, strict=True)
        ]
        given = self.tables.save(client, batch, self._fault)
        return given if isinstance(given, StatementError) else [number for pair in given for number in pair]

    def _fetch(self, client: bytes) -> Reply:
        found: list[Any] = []
        for row in self.tables.fetch(client):
            deadline_ms = None if row.msg_expiry_interval is None else row.time + 1000 * row.msg_expiry_interval
            kind = row.packet_type.encode()
            found += [row.packet_id, row.serial_number, kind, deadline_ms, row.topic, row.qos, self._payload_of(row)]
        return found

    def _number_of(self, payload: bytes) -> int:
        if payload not in self._numbers:
            self._numbers[payload] = len(self._payloads)
            self._payloads.append(payload)
        return self._numbers[payload]

    def _payload_of(self, row: MessageRow) -> bytes:
        return self._payloads[int(row.payload[:NUMBER_BYTES])] if row.payload else b""

    # -- the rows as a keyspace --------------------------------------------------------------------------------------

    def keyspace(self) -> FrozenKeyspace:
        committed, on_disk = self.tables.held()
        found = self._shown(committed)
        if on_disk != committed:
            found[ON_DISK] = ("string", tuple(self._shown(on_disk).items()), None)
        return found

    def visible(self) -> FrozenKeyspace:
        sessions, messages = self.tables.contents()
        return self._shown((tuple(sessions), tuple(messages)))

    def load(self, keyspace: FrozenKeyspace) -> None:
        committed = {key: value for key, value in keyspace.items() if key != ON_DISK}
        on_disk = dict(keyspace[ON_DISK][1]) if ON_DISK in keyspace else committed
        self.tables.hold(self._rows(committed), self._rows(on_disk))

    def flush(self) -> None:
        self.load({})

    def _shown(self, rows: Rows) -> dict[bytes, tuple[str, Any, int | None]]:
        sessions, messages = rows
        found = {SESSIONS + row.client_id: _as_hash(row) for row in sessions}
        for row in messages:
            key = MESSAGES + b"%b:%d" % (row.client_id, row.serial_number)
            found[key] = _as_hash(row._replace(payload=self._payload_of(row)))
        return found

    def _rows(self, keyspace: FrozenKeyspace) -> Rows:
        sessions = [_row(SessionRow, value) for key, value in keyspace.items() if key.startswith(SESSIONS)]
        messages = [_row(MessageRow, value) for key, value in keyspace.items() if key.startswith(MESSAGES)]
        payload = self.tables.payload
        kept = (
            row if row.packet_type == "PUBREL" else row._replace(payload=payload(self._number_of(row.payload)))
            for row in messages
        )
        return tuple(sorted(sessions)), tuple(kept)

    # -- time and trouble --------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.tables.now_ms

    def advance(self, ms: int) -> None:
        self.tables.now_ms += ms

    def set_now(self, now_ms: int) -> None:
        self.tables.now_ms = now_ms

    @contextmanager
    def befalling(self, fault: Fault) -> Iterator[None]:
        if fault.kind not in (*self.trouble, CRASHED.name):
            raise InputError(f"fault {fault.kind!r}: none of tables; one of {', '.join((*self.trouble, CRASHED.name))}")
        self._fault = fault.kind
        try:
            yield
        finally:
            self._fault = None

    def keep_up(self, what: str) -> None:
        {"clean-up": self.tables.clean_up, "settle": self.tables.settle, "crash": self.tables.crash}[what]()

    def describe(self) -> str:
        return "the simulated tables of PostgreSQL"

    def close(self) -> None:
        pass


class ValuedTables(Valued, TablesBackend):
    """Tables of PostgreSQL, as a value."""

    def visible(self) -> FrozenKeyspace:
        return {key: value for key, value in self.keyspace().items() if key != ON_DISK}


def _as_hash(row: SessionRow | MessageRow) -> tuple[str, Any, int | None]:
    """A row as the keyspace shows it: a hash of its columns."""
    columns = tuple((name.encode(), _text(value)) for name, value in row._asdict().items() if value is not None)
    return "hash", ("listpack", columns), None


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _row(kind: Any, value: tuple[str, Any, int | None]) -> Any:
    hints = HINTS[kind]
    columns = {name.decode(): text for name, text in value[1][1]}
    return kind(**{name: _read(hints[name], text) for name, text in columns.items()})


def _read(hint: Any, text: bytes) -> Any:
    return text if hint is bytes else text.decode() if hint is str else int(text)
