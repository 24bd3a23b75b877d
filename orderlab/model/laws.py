"""The laws: each once, with its name, its statement, the clauses it rests on, and where a check can be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from orderlab.model.errors import InputError

Subject = Literal["session", "pipeline", "feed"]


@dataclass(frozen=True, slots=True)
class Law:
    """One law. ``name`` is what every report calls it."""

    name: str
    subject: Subject
    statement: str
    clauses: tuple[str, ...] = ()
    """Clauses of the OASIS MQTT 5.0 standard."""
    one_sided: str = ""
    """How a check of this law can be wrong, when it can be wrong in one direction only."""
    also_in_store: bool = False
    """A pipeline law of which a session store alone can already be guilty."""


_SAMPLE = (
    "'holds' speaks of the scope and the runs that the report counts; 'violated' always shows a replayable witness"
)

_ALL = (
    Law(
        "store-order",
        "session",
        "Fetch returns live messages, each once, in the order in which they were saved, whatever the packet "
        "identifiers do.",
        ("MQTT-4.6.0-1",),
        _SAMPLE,
    ),
    Law(
        "no-loss",
        "session",
        "At every moment each saved message is live, or acknowledged, or past its deadline, or legally trimmed, or "
        "cleared with its session; nothing else removes a message, and a valid save is not refused.",
        (),
        _SAMPLE,
    ),
    Law(
        "packet-id",
        "session",
        "Live messages have distinct packet identifiers in 1..65535; the identifier after 65535 is 1; an "
        "acknowledgement removes the very message that was last sent under that identifier, and no other, however late "
        "it comes.",
        ("MQTT-2.2.1-3", "MQTT-2.2.1-4", "2.2.1"),
        _SAMPLE,
    ),
    Law(
        "legal-trim",
        "session",
        "After a save at most `limit` messages are live; a message is trimmed only while more than `limit` are live; "
        "the oldest go first; expired leftovers never push out a live message.",
        (),
        _SAMPLE,
    ),
    Law(
        "expiry",
        "session",
        "A message whose delivery has not begun is never returned at or after its deadline; no later operation "
        "extends, shortens or removes its deadline; a fetched message carries the interval that it has left.",
        ("MQTT-3.3.2-5", "MQTT-3.3.2-6"),
        "a deadline that Redis itself keeps is exact to 1 ms: a key is still there in the millisecond of its deadline",
    ),
    Law(
        "no-residue",
        "session",
        "No payload without a reference, no reference that outlives its payload beyond the next fetch; after clear "
        "nothing of the session remains.",
        (),
        "a payload that the store keeps in a form other than raw, base64, hex or JSON text is not recognised",
    ),
    Law(
        "all-or-nothing",
        "session",
        "Whatever can stop an operation on a real server (an error that its k-th redis.call can raise there, a kill "
        "before the first write, a crash, a lost reply followed by a retry), the store is as before or as after, never "
        "between.",
        (),
        _SAMPLE,
    ),
    Law(
        "counter",
        "session",
        "The packet-identifier counter advances by exactly the number saved, live identifiers skipped, and never goes "
        "back: not when the queue empties, not after a restart, not after an error.",
        ("2.2.1",),
        _SAMPLE,
    ),
    Law(
        "one-slot",
        "session",
        "For every client identifier all keys of one operation hash to one slot; keys that are used but not declared "
        "in KEYS are reported.",
        (),
        "keys are those touched in the runs of the footprint analysis",
    ),
    Law(
        "bounded",
        "session",
        "Commands per operation are bounded by a stated function of batch and queue length; the estimated time that "
        "the script blocks its node stays under a stated budget at the configured limit.",
        (),
        "the time is an estimate from a cost model of commands, not a measurement; what Lua does between them is "
        "not in it",
    ),
    Law(
        "fifo",
        "pipeline",
        "For each logical FIFO and each subscriber, first deliveries come in publish order; retransmissions may "
        "repeat, not reorder.",
        ("MQTT-4.6.0-5", "MQTT-4.6.0-6"),
    ),
    Law(
        "at-least-once",
        "pipeline",
        "A QoS 1 or 2 publish that was acknowledged to its publisher reaches each matching session, or is legally "
        "trimmed, expired or cleared.",
    ),
    Law(
        "exactly-once",
        "pipeline",
        "A QoS 2 message is handed to the application once.",
        ("MQTT-4.3.3",),
    ),
    Law(
        "retransmission",
        "pipeline",
        "On reconnect with Clean Start 0 unacknowledged PUBLISH (DUP=1) and PUBREL are resent with their original "
        "packet identifiers, in their original order, and nothing that was acknowledged before.",
        ("MQTT-4.3.2-3", "MQTT-4.4.0-1", "MQTT-4.6.0-1", "MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4"),
        _SAMPLE,
        also_in_store=True,
    ),
    Law(
        "no-phantom",
        "pipeline",
        "Nothing is delivered that was not published, or that was published to a session before it was cleared.",
        (),
        _SAMPLE,
        also_in_store=True,
    ),
    Law(
        "agreement",
        "pipeline",
        "What one replaying subscriber has seen within retention, every other one eventually sees, even if a node "
        "never comes back.",
    ),
    Law(
        "drain",
        "pipeline",
        "Once faults have healed and a subscriber stays connected, its queue empties within a stated bound.",
        (),
        _SAMPLE,
        also_in_store=True,
    ),
    Law(
        "receive-maximum",
        "pipeline",
        "On one connection never more PUBLISH packets with QoS above 0 are unacknowledged than the Receive "
        "Maximum of its "
        "CONNECT allows.",
        ("MQTT-3.3.4-9",),
        "a history holds what arrived: packets that were sent and lost with a connection are not counted",
    ),
    Law(
        "subscribed",
        "pipeline",
        "A message is handed only to a client whose session had a matching subscription at some instant between the "
        "publish and the delivery.",
        ("3.3.4", "MQTT-3.10.4-2", "MQTT-3.1.2-4"),
        "what was published before a subscription began passes if it comes after that; No Local is not known; the "
        "row of a SUBSCRIBE may follow within 100 ms",
    ),
    Law(
        "granted-qos",
        "pipeline",
        "The QoS of a delivery is the lower of that of the publish and that which a subscription that matched it was "
        "granted.",
        ("MQTT-3.8.4-8", "MQTT-3.3.4-2"),
        "of overlapping subscriptions a copy at the lowest granted QoS passes, be it the only one",
    ),
    Law(
        "handshake",
        "pipeline",
        "Of a QoS 2 message PUBREL comes after PUBREC, PUBCOMP after PUBREL, and PUBREC after PUBLISH, under one "
        "packet identifier.",
        ("MQTT-4.3.3-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11"),
        "an identifier whose PUBLISH is not in the rows, of a session that may be older than the recording, "
        "says nothing",
    ),
    Law(
        "will",
        "pipeline",
        "The Will Message of a connection is published once when the connection has ended without DISCONNECT and its "
        "delay has passed or its session is "
        "over, and not at all if the client has connected anew before that.",
        ("MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.1.3-9", "MQTT-3.14.4-3"),
        "a CONNECT within 10 ms of the end of the delay excuses either, as a CONNECT is no instant",
    ),
    Law("cursor-safe", "feed", "Nothing becomes visible behind a cursor that has already passed it."),
    Law(
        "progress",
        "feed",
        "A reader that keeps asking either receives every visible message or is told that it is at the end.",
    ),
    Law("exclusive-claim", "feed", "A message is held by at most one live claim."),
    Law("no-repeat", "feed", "Without a fault a reader sees a message once."),
    Law(
        "retention",
        "feed",
        "A message stays readable while a claim or its retention interval says so, and not after.",
    ),
)

LAWS: dict[str, Law] = {law.name: law for law in _ALL}
"""Every law by name, in the order of the reports."""

STORE_LAWS: tuple[str, ...] = tuple(law.name for law in _ALL if law.subject == "session" or law.also_in_store)
"""What one session store alone can keep or break."""


def law_named(name: str) -> Law:
    """The law called ``name``. Raises InputError, with the nearest name, when there is none."""
    if name in LAWS:
        return LAWS[name]
    near = get_close_matches(name, LAWS, n=1)
    cure = f"did you mean {near[0]}?" if near else f"one of {', '.join(LAWS)}"
    raise InputError(f"law {name!r}: unknown; {cure}")
