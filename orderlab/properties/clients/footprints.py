"""What a step of a client touched, and whether two steps may change places: then both orders end alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.node_state import Effect
from orderlab.sim.redis.registry import find

Token = Any
"""A key (bytes), or something else that steps share, as a tuple whose first item says what."""
PUBSUB: Final = ("channels",)
DRAWS: Final = ("random draws",)
SCRIPTS: Final = ("scripts",)

_LOCAL: Final = frozenset(
    b"ping echo auth hello select multi discard unwatch time quit reset client|setinfo client|setname client|getname "
    b"client|id command command|info command|count asking readonly readwrite script|exists".split()
)
"""Commands that concern their connection alone, or what nobody changes."""
_CHANNELS: Final = frozenset(
    b"publish spublish subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe".split()
)
_CALLS: Final = frozenset(b"eval evalsha eval_ro evalsha_ro fcall fcall_ro".split())
"""What depends on the scripts that are loaded. Which those are, who carries commands out sees by their number."""


@dataclass(frozen=True, slots=True)
class StepFootprint:
    """What one step read and what it changed. ``is_whole``: perhaps anything."""

    reads: frozenset[Token]
    writes: frozenset[Token]
    is_whole: bool = False

    def commutes_with(self, other: StepFootprint) -> bool:
        """Whether neither step sees what the other does."""
        if self.is_whole or other.is_whole:
            return False
        mine, theirs = self.writes, other.writes
        return mine.isdisjoint(theirs) and mine.isdisjoint(other.reads) and theirs.isdisjoint(self.reads)


NOTHING: Final = StepFootprint(frozenset(), frozenset())
WHOLE: Final = StepFootprint(frozenset(), frozenset(), True)


class Touched:
    """Collects the footprint of the step that is being carried out."""

    __slots__ = ("is_whole", "reads", "writes")

    def __init__(self) -> None:
        self.reads: set[Token] = set()
        self.writes: set[Token] = set()
        self.is_whole = False

    def taken(self) -> StepFootprint:
        """The footprint so far; the next step begins with none."""
        footprint = StepFootprint(frozenset(self.reads), frozenset(self.writes), self.is_whole)
        if self.reads:
            self.reads = set()
        if self.writes:
            self.writes = set()
        self.is_whole = False
        return footprint

    def note(self, effects: Sequence[Effect]) -> None:
        """Add what commands did, those within scripts and transactions too."""
        for effect in effects:
            command = find(effect.argv)
            name = command.name if command is not None else b""
            if effect.changed:
                self.writes.update(effect.changed)
            self.reads.update(effect.keys)
            if name in _CHANNELS:
                self.writes.add(PUBSUB)
            elif name in _CALLS:
                self.reads.add(SCRIPTS)
            elif name == b"randomkey" or (
                not effect.keys and name not in _LOCAL and name != b"exec" and name != b"script|load"
            ):
                self.is_whole = True

    def note_waiting(self, keys: Iterable[bytes]) -> None:
        """Add a wait that has begun: who waits for a key first is served first."""
        self.writes.update(keys)

    def note_watched(self, client: Client) -> None:
        """Add what EXEC depends on."""
        self.reads.update(client.watched)
