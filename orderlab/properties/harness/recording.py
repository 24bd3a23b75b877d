"""A store on the kernel that writes down what each of its operations calls."""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.database import place_of
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed, Fields, Result
from orderlab.sim.stores.bound import BoundStore, Interruption

SCRIPT_CALLS = (b"evalsha", b"eval", b"fcall", b"evalsha_ro", b"eval_ro", b"fcall_ro")


@dataclass(frozen=True)
class Record:
    """One operation: what was declared, and what was called."""

    operation: str
    client: bytes
    declared: frozenset[bytes]
    calls: tuple[Effect, ...]
    """Inner calls of scripts, and plain commands."""

    @property
    def used(self) -> frozenset[bytes]:
        """Keys that the calls named."""
        return frozenset(key for call in self.calls for key in call.keys)

    @property
    def undeclared(self) -> frozenset[bytes]:
        """Keys used by a script and not handed to it in KEYS, which names keys of whatever database."""
        declared = {place_of(name)[1] for name in self.declared}
        return frozenset(name for name in self.used if place_of(name)[1] not in declared)

    @property
    def writes(self) -> tuple[Effect, ...]:
        """Calls that changed something."""
        return tuple(call for call in self.calls if call.changes)


def record_of(operation: str, client: bytes, effects: list[Effect]) -> Record:
    """What a shard noted while an operation ran."""
    scripts = [effect for effect in effects if effect.argv[0].lower() in SCRIPT_CALLS]
    inner = [effect for effect in effects if effect.argv[0].lower() not in SCRIPT_CALLS]
    declared = frozenset(key for effect in scripts for key in effect.keys)
    plain = frozenset(key for effect in inner if effect.line is None for key in effect.keys)
    return Record(operation, client, declared | plain, tuple(inner))


class RecordingStore(BoundStore):
    """Writes down while ``is_recording``. Listings are not recorded: they are the judge's, not the store's."""

    def __init__(self, binding: Binding, default_expiry_ms: int) -> None:
        self.records: list[Record] = []
        self.is_recording = False
        super().__init__(binding, KernelBackend(), default_expiry_ms)

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """As on any store, with a record."""
        assert isinstance(self.backend, KernelBackend)
        shard = self.backend.shard
        if not self.is_recording:
            return super().perform(operation, client, fields, between)
        effects: list[Effect] = []
        shard.effects = effects
        try:
            return super().perform(operation, client, fields, between)
        finally:
            shard.effects = None
            self.records.append(record_of(operation, client, effects))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is done within leaves no trace, in the keys or in the records: the judge does it, not the store."""
        was_recording, self.is_recording = self.is_recording, False
        try:
            with super().aside():
                yield
        finally:
            self.is_recording = was_recording

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which the store is as it was."""
        was_recording, self.is_recording = self.is_recording, False
        try:
            return super().listing(client)
        finally:
            self.is_recording = was_recording


REMOVING = frozenset(
    b"del unlink getdel zrem zremrangebyrank zremrangebyscore zremrangebylex hdel lrem ltrim lpop rpop srem spop "
    b"zpopmin zpopmax expire pexpire expireat pexpireat set".split()
)
"""Commands that can take something away."""
ERROR_LINE = re.compile(rb"user_(?:script|function):(\d+)")
"""Where Redis says that a script failed."""


class LuaLine(NamedTuple):
    """A line of a script and the call in it. Empty where nothing was called; without a line where no script called it."""

    path: Path | None = None
    line: int | None = None
    call: str = ""
    source: str = ""
    written: str = ""
    """Of a script that failed there: the place and the call with which it had written last; nothing takes that back."""

    @property
    def place(self) -> str:
        """``file:line``, or nothing."""
        return f"{self.path}:{self.line}" if self.path is not None and self.line is not None else ""


def line_to_look_at(records: Sequence[Record], binding: Binding, result: Result | None) -> LuaLine:
    """Of what the operations of a step called, and what the step answered."""
    failed = ERROR_LINE.search(result.error) if isinstance(result, Failed) else None
    records = records[-1:] if failed else records
    if not records:
        return LuaLine()
    record, call = _guilty(records)
    script = binding.operation(record.operation).script
    path, lines = (script.path, script.source.decode("utf-8", "replace").splitlines()) if script else (None, [])
    line = int(failed[1]) if failed else call.line if call else None
    writes = [one for one in record.calls if one.changes and one.line not in (None, line)]
    if not failed and not (call and isinstance(call.reply, ErrorReply)):
        writes = []
    if call is not None and line != call.line:
        call = None  # the script failed elsewhere than in its last call
    return LuaLine(
        path,
        line,
        _shown(call) if call else "",
        lines[line - 1].strip() if line and line <= len(lines) else "",
        f"{path}:{writes[-1].line}: {_shown(writes[-1])}" if writes else "",
    )


def _shown(call: Effect) -> str:
    return " ".join(shown_bytes(part[:40]) for part in call.argv)


def shown_bytes(value: bytes) -> str:
    """Bytes as text: what cannot be printed as escapes."""
    return value.decode("latin-1").encode("unicode_escape").decode("ascii")


def _guilty(records: Sequence[Record]) -> tuple[Record, Effect | None]:
    """The call to look at first: one that failed, else the last that took something away, wrote, or was made."""
    calls = [(record, call) for record in records for call in record.calls]
    failed = [one for one in calls if isinstance(one[1].reply, ErrorReply)]
    removing = [one for one in calls if one[1].changes and one[1].argv[0].lower() in REMOVING]
    for choice in (failed, removing, [one for one in calls if one[1].changes], calls):
        if choice:
            return choice[-1]
    return records[-1], None
