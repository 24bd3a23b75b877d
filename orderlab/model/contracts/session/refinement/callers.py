"""What callers may give: the values of MQTT, and what a store's binding promises of its callers.

A store may do with other values what it likes as long as it stays whole: they accuse of ``all-or-nothing`` and
``bounded`` (the node must survive them), and of no other law.
"""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.contracts.session.refinement.account import Store, name_of
from orderlab.model.contracts.session.spec import lifetime
from orderlab.model.contracts.trace import Answer, Overlap, Publication, Save, Step

ACCUSING = frozenset(("all-or-nothing", "bounded"))
"""Laws that any input can break."""
LONGEST_STRING = 65535
"""Bytes of a string of MQTT (1.5.4)."""


def forbidden_in(step: Step, store: Store) -> str:
    """What of a step no caller may give, in words; empty when there is nothing."""
    match step:
        case Save(messages=()):
            return "a batch without messages"
        case Save(limit=limit) if not 1 <= limit <= store.modulus and not store.checks_limit:
            return f"limit {limit}"
        case Save(messages=messages):
            return next(filter(None, map(_forbidden_in_message, messages)), "")
        case Answer(packet_id=packet_id) if not 1 <= packet_id <= store.modulus:
            return f"packet identifier {packet_id}"
        case Overlap(step=inner, during=during):
            return forbidden_in(inner, store) or forbidden_in(during, store)
    return ""


def forbidden_in_clients(clients: Sequence[bytes]) -> str:
    """Which client identifier no session can have; the empty one is replaced before there is a session (3.1.3.1)."""
    wrong = next((one for one in clients if not one or _is_no_string(one)), None)
    return "" if wrong is None else f"client identifier {wrong[:20].decode('latin-1')!r}"


def _forbidden_in_message(message: Publication) -> str:
    if not is_interval(message.interval_ms):
        assert message.interval_ms is not None
        return f"an interval of {message.interval_ms / 1000:g} s ({name_of(message.label)})"
    if message.qos not in (0, 1, 2):
        return f"QoS {message.qos}"
    if not message.topic or _is_no_string(message.topic) or any(one in message.topic for one in b"#+"):
        return f"topic {message.topic[:20].decode('latin-1')!r}"
    return ""


def is_interval(interval_ms: object) -> bool:
    """Whether it is a Message Expiry Interval: none, or whole seconds in four bytes (3.3.2.3.3), 0 included."""
    return interval_ms is None or lifetime(interval_ms, 0).is_exact


def _is_no_string(text: bytes) -> bool:
    """Whether MQTT has no such string: no UTF-8, too long, or with a NUL in it (1.5.4)."""
    try:
        return "\0" in text.decode() or len(text) > LONGEST_STRING
    except UnicodeDecodeError:
        return True
