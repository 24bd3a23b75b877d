"""What a real server can raise, written down once: for each command the conditions under which it fails, when within a
script they can strike, in which words, and how a shard or a server is brought into each.

A condition is a state of the node, of a key, or of the arguments; never an injected answer. Once it is imposed, the
error comes out by itself at whichever call a server would raise it. ``conditions`` and ``strikes`` say beforehand at
which calls that can be, so that an explorer need not try the others. Source: ``processCommand``, ``scriptCall`` and
``getNodeByQuery`` of Redis 7.0.15; the tests hold every row against a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from orderlab.sim.redis import conditions as texts
from orderlab.sim.redis.conditions import Abort, DiskError, Interrupt
from orderlab.sim.redis.hash_slots import SLOT_COUNT
from orderlab.sim.redis.registry import COMMANDS, Command, find, load_commands
from orderlab.sim.redis.replies import WRONG_TYPE
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.slot_map import Reason, Refusal, SlotMap

Argv = tuple[bytes, ...]


class Moment(Enum):
    """Which calls of a script a condition can strike. A call of a client is as the first call of a script."""

    FIRST_WRITE = "a write, as long as no write command has got past its checks"
    FIRST_GROWTH = "a write that may need memory, as long as no write command has got past its checks"
    NO_WRITE_YET = "any call, as long as no write command has got past its checks"
    ANY_CALL_ON_A_KEY = "any call that names a key"
    ANY_TYPED_CALL = "any call that expects a key to hold a certain type"
    ANY_CALL = "any call"


@dataclass(frozen=True, slots=True)
class Condition:
    """One row: what is wrong, when it strikes, what the caller reads."""

    name: str
    """As operators say it."""
    meaning: str
    moment: Moment
    error: bytes | None
    """What ``redis.call`` raises in a script; None if the script just ends there."""
    client_error: bytes | None = None
    """What a client's own command gets, if that differs."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Attributes of a shard, or of its ``config``, that make the condition; {} if a key or an abort point makes it."""
    enter: tuple[Argv, ...] = ()
    """Commands that bring a real server into the condition; () if plain commands cannot."""
    leave: tuple[Argv, ...] = ()


def _commands(*lines: str) -> tuple[Argv, ...]:
    return tuple(tuple(line.encode().split()) for line in lines)


OUT_OF_MEMORY = Condition(
    "out-of-memory",
    "used memory is above maxmemory and nothing can be evicted; sampled when the script begins",
    Moment.FIRST_GROWTH,
    texts.OUT_OF_MEMORY,
    settings={"maxmemory": 1},
    enter=_commands("CONFIG SET maxmemory 1"),
    leave=_commands("CONFIG SET maxmemory 0"),
)
READ_ONLY = Condition(
    "read-only",
    "the node is a read-only replica: a failover has happened, or the client is connected to the wrong node",
    Moment.FIRST_WRITE,
    texts.READ_ONLY,
    settings={"is_replica": True},
    enter=_commands("REPLICAOF 127.0.0.1 1"),
    leave=_commands("REPLICAOF NO ONE"),
)
TOO_FEW_REPLICAS = Condition(
    "too-few-replicas",
    "fewer replicas than min-replicas-to-write are in touch",
    Moment.FIRST_WRITE,
    texts.NO_REPLICAS,
    settings={"min_replicas_to_write": 1, "good_replicas": 0},
    enter=_commands("CONFIG SET min-replicas-to-write 1"),
    leave=_commands("CONFIG SET min-replicas-to-write 0"),
)
DISK_ERROR = Condition(
    "disk-error",
    "the last background save failed",
    Moment.FIRST_WRITE,
    DiskError.SNAPSHOT.of_command(),
    settings={"disk_error": DiskError.SNAPSHOT},
)
DISK_FULL = Condition(
    "disk-full",
    "the append-only file cannot be written",
    Moment.FIRST_WRITE,
    DiskError.APPEND.of_command(),
    settings={"disk_error": DiskError.APPEND},
)
STALE = Condition(
    "stale-replica",
    "a replica has lost its master and may not serve old data (replica-serve-stale-data no)",
    Moment.NO_WRITE_YET,
    None,
    texts.MASTER_DOWN,
    settings={"is_replica": True, "master_link_down": True, "replica_serve_stale_data": False},
    enter=_commands("REPLICAOF 127.0.0.1 1", "CONFIG SET replica-serve-stale-data no"),
    leave=_commands("CONFIG SET replica-serve-stale-data yes", "REPLICAOF NO ONE"),
)
"""Refuses the script as a whole, and every command of a client that is not marked ``stale``."""
BUSY = Condition(
    "busy",
    "another script has been running for longer than busy-reply-threshold",
    Moment.NO_WRITE_YET,
    None,
    texts.BUSY_SCRIPT,
    settings={"busy": texts.Busy.SCRIPT},
)
"""Refuses the script as a whole, and every command of a client that is not marked ``allow_busy``."""
WRONG_TYPE_FOUND = Condition(
    "wrong-type",
    "a key holds a value of another type: something else writes under the same name",
    Moment.ANY_TYPED_CALL,
    WRONG_TYPE,
)
SLOT_MIGRATES = Condition(
    "slot-migrates",
    "the key's slot is moving away and the key is not here: not yet made, or gone ahead",
    Moment.ANY_CALL_ON_A_KEY,
    Refusal(Reason.ASK).to_script(),
)
"""Its ``settings`` are made anew for each use: see ``imposed``. A client is sent on with ASK or told TRYAGAIN."""
KILLED = Condition("killed", "SCRIPT KILL by an operator", Moment.NO_WRITE_YET, None)
CRASHED = Condition("crashed", "the node crashes: nothing of the script survives", Moment.ANY_CALL, None)

CONDITIONS = (
    OUT_OF_MEMORY,
    READ_ONLY,
    TOO_FEW_REPLICAS,
    DISK_ERROR,
    DISK_FULL,
    STALE,
    BUSY,
    WRONG_TYPE_FOUND,
    SLOT_MIGRATES,
    KILLED,
    CRASHED,
)
ABORTS = {KILLED.name: Abort.KILL, CRASHED.name: Abort.CRASH}


_UNTYPED = frozenset(
    b"""del unlink exists touch type expire pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist rename
    renamenx copy watch set setex psetex setnx mset msetnx mget randomkey restore restore-asking dump migrate move spublish ssubscribe sunsubscribe
    memory|usage object|encoding object|freq object|idletime object|refcount eval evalsha eval_ro evalsha_ro fcall
    fcall_ro""".split()  # noqa: E501
)
"""Commands on keys that take whatever they find (SET is typed only with GET; MGET reads other types as missing)."""


_OF_LISTS = frozenset(
    b"""lpush rpush lpushx rpushx lpop rpop llen lindex linsert lset lrange lrem ltrim lpos lmove rpoplpush lmpop blpop
    brpop blmove brpoplpush blmpop sort sort_ro""".split()
)


def foreign_type(names: Iterable[bytes]) -> str:
    """The type of a value that is of the wrong type for all commands of these names (lower case), if there is one."""
    return "string" if any(name in _OF_LISTS for name in names) else "list"


def expects_a_type(command: Command) -> bool:
    """Whether the command can meet a value of the wrong type."""
    return command.has_keys and (command.name not in _UNTYPED or command.name == b"set")


def conditions(command: Command | bytes) -> tuple[Condition, ...]:
    """What can stop a call of ``command`` (or of the one with this name) on a real server.

    Raises KeyError for a name that the kernel does not have.
    """
    if isinstance(command, bytes):
        load_commands()
        command = COMMANDS[command.lower()]
    return tuple(condition for condition in CONDITIONS if _strikes(condition, command, wrote=False))


def strikes(condition: Condition, argv: Sequence[bytes], wrote: bool) -> bool:
    """Whether ``condition`` can stop the call ``argv`` of a script that has, or has not, called a write command that
    got past its checks (``ScriptRun.wrote``). False for a command that the kernel does not have."""
    load_commands()
    command = find(argv)
    return command is not None and _strikes(condition, command, wrote)


def _strikes(condition: Condition, command: Command, wrote: bool) -> bool:
    match condition.moment:
        case Moment.FIRST_WRITE:
            return command.is_write and not wrote
        case Moment.FIRST_GROWTH:
            return command.is_write and command.denies_oom and not wrote
        case Moment.NO_WRITE_YET:
            return not wrote
        case Moment.ANY_CALL_ON_A_KEY:
            return command.has_keys
        case Moment.ANY_TYPED_CALL:
            return expects_a_type(command)
        case Moment.ANY_CALL:
            return True


# -- imposing --------------------------------------------------------------------------------------------------

_THIS_NODE, _OTHER_NODE = b"0" * 40, b"f" * 40
_EVERY_SLOT_TO_THE_OTHER = dict.fromkeys(range(SLOT_COUNT), _OTHER_NODE)


def migrating_slots() -> SlotMap:
    """A node that owns every slot and is sending every one away: it serves what it still has, and no other key."""
    addresses = {_THIS_NODE: b"127.0.0.1:7000", _OTHER_NODE: b"127.0.0.1:7001"}
    owners: list[bytes | None] = [_THIS_NODE] * SLOT_COUNT
    return SlotMap(_THIS_NODE, addresses, owners, _EVERY_SLOT_TO_THE_OTHER.copy())


def abort_before(index: int, abort: Abort) -> Interrupt:
    """An abort point before the call of this index, counted from 0, of every script."""
    return lambda at, argv: abort if at == index else None


@contextmanager
def imposed(
    shard: Shard, condition: Condition, *, key: bytes = b"", before_call: int = 0, found: str = ""
) -> Iterator[None]:
    """Within it ``shard`` is in the condition; afterwards all that was assigned is as before.

    ``key``: the one that ``wrong-type`` plants a value under, of the type ``found``; what was there comes back unless
    the planted value was replaced meanwhile. ``before_call``: where ``killed`` and ``crashed`` strike.
    """
    settings = dict(condition.settings)
    if condition is SLOT_MIGRATES:
        settings["slots"] = migrating_slots()
    elif condition.name in ABORTS:
        settings["interrupt"] = abort_before(before_call, ABORTS[condition.name])
    undo = [_assign(shard, name, value) for name, value in settings.items()]
    if condition is WRONG_TYPE_FOUND:
        undo.append(_plant(shard, key, found))
    try:
        yield
    finally:
        for restore in reversed(undo):
            restore()


def condition_of(shard: Shard) -> str:
    """The name of the condition that ``shard`` is in, the most special one; empty where nothing is wrong with it."""
    if shard.interrupt is not None:
        return KILLED.name  # or a crash, which shows by itself
    if shard.slots is not None and shard.slots.migrating:
        return SLOT_MIGRATES.name
    met = [
        one
        for one in CONDITIONS
        if one.settings
        and all(
            getattr(shard if hasattr(shard, name) else shard.config, name) == value
            for name, value in one.settings.items()
        )
    ]
    return max(met, key=lambda one: len(one.settings)).name if met else ""


def _assign(shard: Shard, name: str, value: object) -> Callable[[], None]:
    owner = shard if hasattr(shard, name) else shard.config
    old = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old)


def _plant(shard: Shard, key: bytes, found: str) -> Callable[[], None]:
    """Put a value under ``key``: of the type ``found``, or of another than what is there (a list, or a string over
    one)."""
    before = shard.freeze([key])
    kind = found or ("string" if before.get(key, ("",))[0] == "list" else "list")
    planted = ("string", b"planted", None) if kind == "string" else ("list", (b"planted",), None)
    shard.patch({key: planted})

    def restore() -> None:
        if shard.freeze([key]).get(key, ())[:2] == planted[:2]:  # a deadline may have been set on it
            shard.patch(before, removed=[key])

    return restore
