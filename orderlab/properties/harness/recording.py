"""A store on the kernel that writes down what each of its operations calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.database import place_of
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Fields, Result
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.session_store import Interruption

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
