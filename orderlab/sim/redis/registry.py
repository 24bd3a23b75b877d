"""The table of commands: name, arity, flags, key positions and the function that carries each out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.versions import (
    DEFAULT,
    NEW_ARITY,
    WAITS_IN_SCRIPTS,
    ServerVersion,
    came_later,
)

Handler = Callable[["NodeState", Sequence[bytes]], Reply]
KeyFinder = Callable[[Sequence[bytes]], Sequence[bytes]]
KeyPositions = tuple[int, int, int]
SCRIPT_CALLS = frozenset((b"eval", b"eval_ro", b"evalsha", b"evalsha_ro", b"fcall", b"fcall_ro"))
"""The commands that run a script or a function, in lower case."""


@dataclass(frozen=True, slots=True)
class CallFlags:
    """What one call of a command may do, where that depends on its arguments (EVAL of a script with a shebang)."""

    is_write: bool
    denies_oom: bool
    runs_stale: bool


FlagsOfCall = Callable[["NodeState", Sequence[bytes]], CallFlags | None]


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``arity`` counts the name; a negative arity is a minimum (``COMMAND INFO`` of a server)."""

    name: bytes
    """Lower case; a subcommand is ``container|name``."""
    arity: int
    flags: frozenset[str]
    """As the server names them: write, readonly, denyoom, admin, noscript, loading, stale, fast, ..."""
    handler: Handler
    find_keys: KeyFinder
    positions: KeyPositions
    """First key, last key, step, as ``COMMAND INFO`` shows them; (0, 0, 0) for keys found otherwise."""

    has_keys: bool
    is_write: bool
    denies_oom: bool
    special_in_script: bool
    """A script's call needs a closer look: noscript, may replicate, or a container of subcommands."""
    may_replicate: bool
    """Not a write, yet refused to read-only scripts (PUBLISH, EVAL)."""
    flags_of_call: FlagsOfCall | None
    subcommands: dict[bytes, Command] = field(default_factory=dict)

    def admits(self, argument_count: int) -> bool:
        """Whether the arity allows that many arguments, the name included."""
        return argument_count == self.arity if self.arity >= 0 else argument_count >= -self.arity


_NUMBER = re.compile(rb"[ \t\n\v\f\r]*[+-]?[0-9]+")
COMMANDS: dict[bytes, Command] = {}
"""Every command of the kernel, by lower-case name; subcommands hang below their container."""
SPELLINGS: dict[bytes, Command] = {}
"""The same by lower-case and by upper-case name: what a lookup by the exact bytes finds at once."""
LATER: dict[bytes, Command] = {}
"""Commands that came after Redis 7.0 (``versions``), by lower-case name; subcommands as ``container|name``."""
Spellings = dict[bytes, Command]


def find(argv: Sequence[bytes], spellings: Spellings | None = None) -> Command | None:
    """The command, or subcommand, that ``argv`` calls, in whatever case; None if there is none such among those of a
    node (``NodeState.spellings``), or of any where none are given."""
    lower = argv[0].lower()
    found = SPELLINGS.get(lower) or LATER.get(lower) if spellings is None else spellings.get(lower)
    if found is not None and found.subcommands and len(argv) > 1:
        return found.subcommands.get(argv[1].lower())
    return found


def c_integer(text: bytes) -> int:
    """What ``atoi`` of C makes of ``text``: the number that it begins with, cut to 32 bits; 0 if it begins with
    none."""
    found = _NUMBER.match(text)
    if found is None:
        return 0
    value = min(max(int(found[0][:40]), -(1 << 63)), (1 << 63) - 1) & (1 << 32) - 1
    return value - (1 << 32) if value >> 31 else value


def key_range(first: int, last: int, step: int) -> KeyFinder:
    """Keys at ``first``, ``first + step``, ... up to ``last`` (negative: from the end), as ``COMMAND INFO`` says."""
    if first == 0:
        return lambda argv: ()
    if first == last:
        return lambda argv: (argv[first],)
    return lambda argv: argv[first : last + 1 if last >= 0 else len(argv) + last + 1 : step]


def numbered_keys(count_at: int, *before: int) -> KeyFinder:
    """Keys at the positions ``before``, and those that follow their count at ``count_at`` (EVAL, ZUNION, ...). A count
    that does not fit names no key at all (``genericGetKeys``)."""

    def find_keys(argv: Sequence[bytes]) -> Sequence[bytes]:
        first = count_at + 1
        count = c_integer(argv[count_at]) if first <= len(argv) else 0
        if not 0 < count <= len(argv) - first:
            return ()
        fixed = [argv[at] for at in before]
        if argv[count_at] == b"%d" % count:
            return [*fixed, *argv[first : first + count]]
        # What only atoi can read is left to genericGetKeys, which has them last.
        return [*argv[first : first + count], *fixed]

    return find_keys


def command(
    name: str,
    arity: int,
    flags: str,
    keys: KeyFinder | KeyPositions = (0, 0, 0),
    *,
    positions: KeyPositions | None = None,
    may_replicate: bool = False,
    flags_of_call: FlagsOfCall | None = None,
) -> Callable[[Handler], Handler]:
    """Register the decorated function as the command ``name``, or as the subcommand ``container|name``.

    ``keys`` is (first, last, step) or a finder; with a finder ``positions`` says what COMMAND INFO shows.
    """

    def register(handler: Handler) -> Handler:
        lower = name.encode()
        words = frozenset(flags.split())
        finder = key_range(*keys) if isinstance(keys, tuple) else keys
        shown = keys if isinstance(keys, tuple) else positions or (0, 0, 0)
        found = Command(
            lower, arity, words, handler, finder, shown,
            has_keys=keys != (0, 0, 0),
            is_write="write" in words,
            denies_oom="denyoom" in words,
            special_in_script="noscript" in words or may_replicate,
            may_replicate=may_replicate,
            flags_of_call=flags_of_call,
            subcommands=COMMANDS[lower].subcommands if lower in COMMANDS else {},
        )  # fmt: skip
        assert lower not in COMMANDS or COMMANDS[lower].handler is _no_subcommand, f"{name} is registered twice"
        container, _, subcommand = lower.partition(b"|")
        if came_later(lower, DEFAULT):
            LATER[lower] = found
        elif subcommand:
            _container(container).subcommands[subcommand] = found
        else:
            COMMANDS[lower] = SPELLINGS[lower] = SPELLINGS[lower.upper()] = found
        return handler

    return register


def _container(name: bytes) -> Command:
    """The command whose first argument names a subcommand; made when its first subcommand is registered."""
    found = COMMANDS.get(name)
    if found is None:
        found = Command(
            name, -2, frozenset(), _no_subcommand, key_range(0, 0, 0), (0, 0, 0),
            has_keys=False, is_write=False, denies_oom=False, special_in_script=True, may_replicate=False,
            flags_of_call=None,
        )  # fmt: skip
        COMMANDS[name] = SPELLINGS[name] = SPELLINGS[name.upper()] = found
    elif not found.special_in_script:  # a command that has subcommands beside (COMMAND)
        found = replace(found, special_in_script=True)
        COMMANDS[name] = SPELLINGS[name] = SPELLINGS[name.upper()] = found
    return found


def _no_subcommand(node: NodeState, argv: Sequence[bytes]) -> Reply:
    raise ErrorReply(b"ERR wrong number of arguments for '%b' command" % argv[0].lower())


@cache
def load_commands() -> None:
    """Import every file of ``sim/redis/commands``: each registers its commands."""
    package = importlib.import_module("orderlab.sim.redis.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"orderlab.sim.redis.commands.{module.name}")


@cache
def spellings_of(version: ServerVersion) -> Spellings:
    """``SPELLINGS`` of another server. All commands must have been loaded."""
    if version is DEFAULT:
        return SPELLINGS
    spellings: Spellings = {}
    for name, found in (COMMANDS | LATER).items():
        if came_later(name, version) is not None:
            continue
        container, _, subcommand = name.partition(b"|")
        if subcommand:
            spellings[container].subcommands[subcommand] = _as_of(found, version)
        else:
            spellings[name] = spellings[name.upper()] = _as_of(found, version)
    return spellings


def _as_of(entry: Command, version: ServerVersion) -> Command:
    arity = NEW_ARITY.get(entry.name, {}).get(version.follows, entry.arity)
    inner = {name: _as_of(each, version) for name, each in entry.subcommands.items()}
    changed = replace(entry, arity=arity, handler=_in_words_of(entry, version), subcommands=inner)
    if version.has((7, 2)) and entry.name in WAITS_IN_SCRIPTS:
        changed = replace(changed, flags=entry.flags - {"noscript"}, special_in_script=entry.may_replicate)
    if version.is_valkey and entry.name in (b"multi", b"watch"):
        changed = replace(changed, flags=entry.flags | {"no_multi"})
    return changed


def _in_words_of(entry: Command, version: ServerVersion) -> Handler:
    """The handler, for a server with other words for errors."""
    handler, text = entry.handler, version.text
    has_other_units = entry.name.startswith(b"geo") and not version.has((7, 0))

    def carry_out(node: NodeState, argv: Sequence[bytes]) -> Reply:
        if has_other_units and _unit_of(node, entry.name, argv) in _UPPER_CASE_UNITS:
            raise ErrorReply(b"ERR unsupported unit provided. please use m, km, ft, mi")
        try:
            return handler(node, argv)
        except ErrorReply as error:
            raise type(error)(text(error.message)) from None

    return carry_out


_UPPER_CASE_UNITS = (b"M", b"KM", b"FT", b"MI")
"""Redis 6.2 reads them in lower case alone."""


def _unit_of(node: NodeState, name: bytes, argv: Sequence[bytes]) -> bytes:
    """The unit of distances that a command names, if it comes to read it."""
    words = [word.upper() for word in argv]
    if name.startswith(b"geosearch"):
        at = next((at + width for at, word in enumerate(words) for width in (_SHAPES.get(word, 0),) if width), 0)
    else:
        at = 5 if name in (b"georadius", b"georadius_ro") else 4
        if at == 4 and node.peek(argv[1]) is None and name != b"geodist":
            return b""
    return argv[at] if 0 < at < len(argv) else b""


_SHAPES = {b"BYRADIUS": 2, b"BYBOX": 3}
