"""The table of commands: name, arity, flags, key positions and the function that carries each out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.redis.replies import Reply

if TYPE_CHECKING:
    from sim.redis.shard import Shard

Handler = Callable[["Shard", Sequence[bytes]], Reply]
KeyFinder = Callable[[Sequence[bytes]], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``arity`` counts the name; a negative arity is a minimum (``COMMAND INFO`` of a server)."""

    name: bytes
    """Lower case."""
    arity: int
    flags: frozenset[str]
    """As the server names them: write, readonly, denyoom, admin, noscript, loading, stale, fast, ..."""
    handler: Handler
    find_keys: KeyFinder

    is_write: bool
    denies_oom: bool


COMMANDS: dict[bytes, Command] = {}
"""Every command of the kernel, by lower-case name."""


def key_range(first: int, last: int, step: int) -> KeyFinder:
    """Keys at ``first``, ``first + step``, ... up to ``last`` (negative: from the end), as ``COMMAND INFO`` says."""
    if first == 0:
        return lambda argv: ()
    if first == last:
        return lambda argv: (argv[first],)
    return lambda argv: argv[first : last + 1 if last >= 0 else len(argv) + last + 1 : step]


def numbered_keys(count_at: int) -> KeyFinder:
    """Keys that follow their count, which stands at ``count_at`` (EVAL, ZUNION, ...)."""

    def find(argv: Sequence[bytes]) -> Sequence[bytes]:
        try:
            count = int(argv[count_at])
        except (IndexError, ValueError):
            return ()
        return argv[count_at + 1 : count_at + 1 + max(count, 0)]

    return find


def command(name: str, arity: int, flags: str, keys: KeyFinder | tuple[int, int, int]) -> Callable[[Handler], Handler]:
    """Register the decorated function as the command ``name``. ``keys`` is (first, last, step) or a finder."""

    def register(handler: Handler) -> Handler:
        lower = name.lower().encode()
        words = frozenset(flags.split())
        finder = key_range(*keys) if isinstance(keys, tuple) else keys
        COMMANDS[lower] = Command(lower, arity, words, handler, finder, "write" in words, "denyoom" in words)
        return handler

    return register
