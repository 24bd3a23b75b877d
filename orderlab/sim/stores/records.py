"""What each operation of a store declares and calls, as its backend notes it."""

from __future__ import annotations

from dataclasses import dataclass

from orderlab.sim.redis.database import place_of
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.redis.shard import Effect


@dataclass(frozen=True)
class Record:
    """One operation: what was declared, and what was called."""

    operation: str
    client: bytes
    declared: frozenset[bytes]
    calls: tuple[Effect, ...]
    """Inner calls of scripts, and plain commands."""
    callers: tuple[bytes, ...] = ()
    """Of each call the script: its digest, or the function of a library; nothing for a plain command, or where it is
    not known."""

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
    inner: list[Effect] = []
    callers: list[bytes] = []
    caller = b""
    for effect in reversed(effects):  # a script is noted after what it called
        if effect.argv[0].lower() in SCRIPT_CALLS:
            caller = effect.argv[1].lower()
            continue
        inner.append(effect)
        callers.append(caller if effect.line is not None else b"")
    inner.reverse()
    callers.reverse()
    declared = frozenset(key for effect in scripts for key in effect.keys)
    plain = frozenset(key for effect in inner if effect.line is None for key in effect.keys)
    return Record(operation, client, declared | plain, tuple(inner), tuple(callers))
