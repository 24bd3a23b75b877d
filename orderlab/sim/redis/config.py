"""The settings of a node that the kernel knows, and how CONFIG SET reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orderlab.sim.redis.numbers import INTEGER_MAX, parse_integer

Setting = int | bool | str
INT_MAX = (1 << 31) - 1

POLICIES = (
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
)


@dataclass(slots=True)
class EncodingLimits:
    """The sizes beyond which a small collection changes its encoding, once and for good.

    The settings ``<type>-max-<encoding>-...`` of a node, with the defaults of Redis 7.0. CONFIG SET assigns them.
    """

    hash_max_listpack_entries: int = 512
    hash_max_listpack_value: int = 64
    """Bytes of the longest field or value."""
    zset_max_listpack_entries: int = 128
    zset_max_listpack_value: int = 64
    """Bytes of the longest member."""
    set_max_intset_entries: int = 512
    stream_node_max_bytes: int = 4096
    """Bytes of the listpack of one node; 0: no limit."""
    stream_node_max_entries: int = 100
    """The same in entries, deleted ones among them."""


@dataclass(slots=True)
class Config(EncodingLimits):
    """Directives by name, underscores for hyphens, with the defaults of Redis 7.0. Assign them freely."""

    maxmemory: int = 0
    """Bytes; 0 is no limit."""
    maxmemory_policy: str = "noeviction"
    maxmemory_samples: int = 5
    lfu_log_factor: int = 10
    lfu_decay_time: int = 1
    min_replicas_to_write: int = 0
    min_replicas_max_lag: int = 10
    """Seconds."""
    replica_read_only: bool = True
    replica_serve_stale_data: bool = True
    stop_writes_on_bgsave_error: bool = True
    proto_max_bulk_len: int = 512 << 20
    busy_reply_threshold: int = 5000
    """Milliseconds after which a running script makes the node BUSY."""
    databases: int = 16
    notify_keyspace_events: str = ""
    """The classes of events that are published, once ``notifications.follow`` has been told."""


class SettingError(Exception):
    """A value that a directive refuses; the text as CONFIG SET words it."""


_UNSIGNED_MAX = (1 << 64) - 1
_MEMORY_UNITS = {
    b"": 1,
    b"b": 1,
    b"k": 1000,
    b"kb": 1024,
    b"m": 1000**2,
    b"mb": 1024**2,
    b"g": 1000**3,
    b"gb": 1024**3,
}


def memory_value(text: bytes) -> int | None:
    """A number of bytes with an optional unit; like the server's ``memtoull`` it takes no digits for 0, cuts at 64 bits
    and lets the product wrap around."""
    digits = text.rstrip(b"bkmgBKMG")
    unit = _MEMORY_UNITS.get(text[len(digits) :].lower())
    if unit is None or (digits and not digits.isdigit()):
        return None
    return min(int(digits or b"0"), _UNSIGNED_MAX) * unit & _UNSIGNED_MAX


def _integer(low: int, high: int, *, is_memory: bool = False) -> Callable[[bytes], Setting]:
    def read(text: bytes) -> Setting:
        value = memory_value(text) if is_memory else parse_integer(text)
        if value is None:
            what = "argument must be a memory value" if is_memory else "argument couldn't be parsed into an integer"
            raise SettingError(what)
        if not low <= value <= high:
            raise SettingError(f"argument must be between {low} and {high} inclusive")
        return value

    return read


def _yes_or_no(text: bytes) -> Setting:
    word = text.lower()
    if word not in (b"yes", b"no"):
        raise SettingError("argument must be 'yes' or 'no'")
    return word == b"yes"


def _policy(text: bytes) -> Setting:
    word = text.decode("latin1").lower()
    if word not in POLICIES:
        raise SettingError("argument(s) must be one of the following: " + ", ".join(POLICIES))
    return word


EVERY_EVENT = "g$lshzxetd"
"""Classes that ``A`` stands for."""
EVENT_FLAGS = EVERY_EVENT + "nKEm"


def _event_classes(text: bytes) -> Setting:
    flags = text.split(b"\0")[0].decode("latin1")
    if not set(flags) <= {"A", *EVENT_FLAGS}:
        raise SettingError("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
    flags += EVERY_EVENT if "A" in flags else ""
    return "".join(flag for flag in EVENT_FLAGS if flag in flags)


def _immutable(text: bytes) -> Setting:
    raise SettingError("can't set immutable config")


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive of CONFIG GET and CONFIG SET."""

    name: str
    attribute: str
    read: Callable[[bytes], Setting]

    def show(self, config: Config) -> bytes:
        """The value as CONFIG GET prints it."""
        value: Setting = getattr(config, self.attribute)
        if isinstance(value, bool):
            return b"yes" if value else b"no"
        if isinstance(value, str) and value.startswith(EVERY_EVENT):
            value = "A" + value.removeprefix(EVERY_EVENT).removeprefix("n")
        return str(value).encode()


def _table() -> dict[bytes, Directive]:
    natural, size = _integer(0, INT_MAX), _integer(0, INTEGER_MAX)
    readers: dict[str, Callable[[bytes], Setting]] = {
        "maxmemory": _integer(0, _UNSIGNED_MAX, is_memory=True),
        "maxmemory-policy": _policy,
        "maxmemory-samples": _integer(1, INT_MAX),
        "lfu-log-factor": natural,
        "lfu-decay-time": natural,
        "min-replicas-to-write": natural,
        "min-replicas-max-lag": natural,
        "replica-read-only": _yes_or_no,
        "replica-serve-stale-data": _yes_or_no,
        "stop-writes-on-bgsave-error": _yes_or_no,
        "proto-max-bulk-len": _integer(1 << 20, INTEGER_MAX, is_memory=True),
        "busy-reply-threshold": _integer(0, INTEGER_MAX),
        "databases": _immutable,
        "notify-keyspace-events": _event_classes,
        "hash-max-listpack-entries": size,
        "hash-max-listpack-value": _integer(0, INTEGER_MAX, is_memory=True),
        "zset-max-listpack-entries": size,
        "zset-max-listpack-value": _integer(0, INTEGER_MAX, is_memory=True),
        "set-max-intset-entries": size,
        "stream-node-max-bytes": _integer(0, INTEGER_MAX, is_memory=True),
        "stream-node-max-entries": size,
    }
    aliases = {
        "min-slaves-to-write": "min-replicas-to-write",
        "min-slaves-max-lag": "min-replicas-max-lag",
        "slave-read-only": "replica-read-only",
        "slave-serve-stale-data": "replica-serve-stale-data",
        "lua-time-limit": "busy-reply-threshold",
        "hash-max-ziplist-entries": "hash-max-listpack-entries",
        "hash-max-ziplist-value": "hash-max-listpack-value",
        "zset-max-ziplist-entries": "zset-max-listpack-entries",
        "zset-max-ziplist-value": "zset-max-listpack-value",
    }
    names = {name: name for name in readers} | aliases
    return {name.encode(): Directive(name, target.replace("-", "_"), readers[target]) for name, target in names.items()}


DIRECTIVES = _table()
"""Every directive that the kernel knows, by lower-case name; old names included."""


def set_all(config: Config, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Assign several directives, or none of them.

    Raises SettingError with the server's whole text after ``ERR`` when one is unknown, given twice or refused.
    """
    chosen: list[tuple[Directive, bytes]] = []
    for name, text in pairs:
        directive = DIRECTIVES.get(name.lower())
        if directive is None:
            raise SettingError(f"Unknown option or number of arguments for CONFIG SET - '{_shown(name)}'")
        if directive.read is _immutable:
            raise _failed(directive, "can't set immutable config")
        if any(directive.attribute == other.attribute for other, _ in chosen):
            raise _failed(directive, "duplicate parameter")
        chosen.append((directive, text))
    values: list[tuple[str, Setting]] = []
    for directive, text in chosen:
        try:
            values.append((directive.attribute, directive.read(text)))
        except SettingError as error:
            raise _failed(directive, str(error)) from None
    for attribute, value in values:
        setattr(config, attribute, value)


def _failed(directive: Directive, why: str) -> SettingError:
    return SettingError(f"CONFIG SET failed (possibly related to argument '{directive.name}') - {why}")


def _shown(name: bytes) -> str:
    return name.split(b"\0")[0].decode("latin1")
