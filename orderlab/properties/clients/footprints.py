"""What a step of a client touched, and whether two steps may change places: then both orders end alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any, Final

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.node_state import Effect
from orderlab.sim.redis.registry import Command, find

Token = Any
"""A key (bytes), or something else that steps share, as a tuple whose first item says what."""
PUBSUB: Final = ("channels",)
SCRIPTS: Final = ("scripts",)

_LOCAL: Final = frozenset(
    b"ping echo auth hello select multi discard unwatch time quit reset client|setinfo client|setname client|getname "
    b"client|id client|info command command|info command|count asking readonly readwrite script|exists "
    b"cluster|slots cluster|shards cluster|nodes cluster|info cluster|myid cluster|keyslot".split()
)
"""Commands that concern their connection alone, or what nobody changes."""
_CHANNELS: Final = frozenset(
    b"publish spublish subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe".split()
)
_CALLS: Final = frozenset(b"eval evalsha eval_ro evalsha_ro fcall fcall_ro".split())
"""What depends on the scripts that are loaded. Which those are, who carries commands out sees by their number."""


class StepFootprint:
    """What one step read and what it changed. ``is_whole``: perhaps anything. Not to be changed."""

    __slots__ = ("is_whole", "reads", "writes")

    def __init__(self, reads: Set[Token], writes: Set[Token], is_whole: bool = False) -> None:
        self.reads, self.writes, self.is_whole = reads, writes, is_whole

    def commutes_with(self, other: StepFootprint) -> bool:
        """Whether neither step sees what the other does."""
        if self.is_whole or other.is_whole:
            return False
        mine, theirs = self.writes, other.writes
        return mine.isdisjoint(theirs) and mine.isdisjoint(other.reads) and theirs.isdisjoint(self.reads)


NOTHING: Final = StepFootprint(frozenset(), frozenset())
WHOLE: Final = StepFootprint(frozenset(), frozenset(), True)


_OF_KEYS, _CHANNEL, _CALL, _LOCALLY, _WHOLE = range(5)
_EMPTY: Final[frozenset[Token]] = frozenset()
_kinds: dict[bytes, int] = {}


def _kind(argv: Sequence[bytes]) -> int:
    """What a command touches beside its keys."""
    command = find(argv)
    name = command.name if command is not None else b""
    if name in _CHANNELS:
        return _CHANNEL
    if name in _CALLS:
        return _CALL
    if name == b"randomkey":
        return _WHOLE
    return _LOCALLY if name in _LOCAL or name in (b"exec", b"script|load") else _OF_KEYS


def is_local(argv: Sequence[bytes]) -> bool:
    """Whether a command concerns its connection alone, or what nobody changes."""
    command = find(argv)
    return command is None or command.name in _LOCAL


def is_of_one_key(command: Command) -> bool:
    """Whether a command touches its first argument and no other key, whatever else it is told."""
    at_first = command.positions == (1, 1, 1) and not command.subcommands
    return at_first and "movablekeys" not in command.flags and _kind((command.name,)) == _OF_KEYS


class Touched:
    """Collects the footprint of the step that is being carried out."""

    __slots__ = ("is_whole", "reads", "writes")

    def __init__(self) -> None:
        self.reads: set[Token] = set()
        self.writes: set[Token] = set()
        self.is_whole = False

    def taken(self) -> StepFootprint:
        """The footprint so far; the next step begins with none."""
        footprint = StepFootprint(self.reads or _EMPTY, self.writes or _EMPTY, self.is_whole)
        if self.reads:
            self.reads = set()
        if self.writes:
            self.writes = set()
        self.is_whole = False
        return footprint

    def note(self, effects: Sequence[Effect]) -> None:
        """Add what commands did, those within scripts and transactions too."""
        for effect in effects:
            if effect.changed:
                self.writes.update(effect.changed)
            keys = effect.keys
            if keys:
                self.reads.update(keys)
            name = effect.argv[0]
            kind = _kinds.get(name)
            if kind is None:
                kind = _kind(effect.argv)
                if b"|" not in getattr(find(effect.argv), "name", b"|"):
                    _kinds[name] = kind
            if kind == _CHANNEL:
                self.writes.add(PUBSUB)
            elif kind == _CALL:
                self.reads.add(SCRIPTS)
            elif kind == _WHOLE or (kind == _OF_KEYS and not keys):
                self.is_whole = True

    def note_waiting(self, keys: Iterable[bytes]) -> None:
        """Add a wait that has begun: who waits for a key first is served first."""
        self.writes.update(keys)

    def note_watched(self, client: Client) -> None:
        """Add what EXEC depends on."""
        self.reads.update(client.watched)
