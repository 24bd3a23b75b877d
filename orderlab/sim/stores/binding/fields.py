"""The vocabulary of bindings: the fields that each operation offers to templates, and the attributes of its result.

A field's name is the same in ``store.toml``, in Python and in error messages. Units are last in a name.
"""

from __future__ import annotations

from typing import Any, Literal

Specification = Literal["session", "pending"]
"""The kinds of store that speak it, as ``store.toml`` names them; any other names a class of its owner's."""

COMMON_FIELDS = ("client", "epoch", "now_ms", "modulus")

OPERATION_FIELDS: dict[str, tuple[str, ...]] = {
    "open": ("clean_start",),
    "save": ("limit", "default_expiry_ms", "producer", "batch", "messages"),
    "fetch": ("count", "after", "limit", "default_expiry_ms"),
    "acknowledge": ("packet_id", "sequence"),
    "release": ("packet_id", "sequence"),
    "clear": (),
}
"""Beside the common fields, by operation. See ``notes/bindings.md`` for what each means."""

MESSAGE_FIELDS = ("payload", "topic", "qos", "expiry_ms", "time_ms", "retained", "properties", "index", "message")
"""Inside ``each = "messages"``, and anywhere in a save whose ``batch_max`` is 1."""

RESULT_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("packet_id", "sequence"),
    "fetch": ("payload", "packet_id", "sequence", "kind", "remaining_ms", "deadline_ms", "topic", "qos"),
    "acknowledge": ("count",),
    "release": ("count",),
    "clear": ("count",),
}
"""What ``reply.fields`` and ``reply.columns`` may fill, by operation."""

INTEGER_MEANINGS: dict[str, tuple[str, ...]] = {
    "open": ("session_present", "epoch"),
    "save": ("first", "last", "previous", "sequence", "count"),
    "fetch": (),
    "acknowledge": ("count", "flag", "found"),
    "release": ("count", "flag", "found"),
    "clear": ("count", "flag", "found"),
}
"""What an integer reply may stand for (``reply.is``), by operation."""

DEFAULTS: dict[str, Any] = {
    "client": b"",
    "epoch": 1,
    "now_ms": 0,
    "clean_start": 0,
    "limit": 10_000,
    "default_expiry_ms": 604_800_000,
    "producer": b"",
    "batch": 0,
    "messages": (),
    "count": 10_000,
    "after": 0,
    "packet_id": 0,
    "sequence": 0,
}
"""Value of a field that the caller of an operation leaves out (``modulus`` comes from the binding)."""
