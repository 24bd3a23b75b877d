"""The known defects B1 to B14 of a broker around its store: one flaw each, beside the protocol without it.

A specimen is a small departure from a protocol that keeps every law in the same scope, its ``neighbour``. Where the
repaired protocol hides a flaw behind another defence, the flawed one leaves that defence out too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orderlab.model.pipeline.state import Delivery, Fault, Protocol, Scope


@dataclass(frozen=True, slots=True)
class Specimen:
    """``flawed`` breaks ``breaks`` in ``scope``; ``neighbour`` holds there."""

    name: str
    breaks: str
    flawed: Protocol
    neighbour: Protocol
    scope: Scope
    defect: str


REPAIRED = Protocol()
PUSHING = replace(REPAIRED, delivery=Delivery.PUSH_HELD)
"""The nearest protocol that pushes instead of reading the store: correct without takeover and window overflow."""

PUBLISHED = Protocol(
    idempotent_producer=False,
    acks_all=False,
    idempotent_save=False,
    fenced_commit=True,
    commit_on_revoke=False,
    wait_for_replica=False,
    atomic_save=False,
    delivery=Delivery.PUSH,
)
"""The broker as its designers describe it: Kafka with acks=1 and no idempotence, Redis without WAIT, pushing."""


def scope(*faults: Fault, **sizes: int | bool) -> Scope:
    """A scope with these faults, one of which may strike once, unless ``sizes`` says otherwise."""
    return replace(Scope(faults=frozenset(faults)), **sizes)  # type: ignore[arg-type]


SPECIMENS: dict[str, Specimen] = {
    specimen.name: specimen
    for specimen in (
        Specimen(
            "B1",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(Fault.BROKER_CRASH, messages=1),
            "crash after the Redis write, before the offset commit",
        ),
        Specimen(
            "B2",
            "fifo",
            replace(REPAIRED, idempotent_producer=False),
            REPAIRED,
            scope(Fault.PRODUCER_RETRY),
            "producer retry with several requests in flight, no idempotence",
        ),
        Specimen(
            "B3",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(Fault.PACK_TIMEOUT, messages=1),
            "pack timeout shorter than the Redis command timeout",
        ),
        Specimen(
            "B4",
            "fifo",
            replace(PUSHING, delivery=Delivery.PUSH),
            PUSHING,
            scope(starts_connected=False),
            "reconnect replays while fresh messages are sent directly",
        ),
        Specimen(
            "B5",
            "fifo",
            replace(PUSHING, online_decided_at_save=True),
            PUSHING,
            scope(Fault.DISCONNECT, nodes=2, starts_connected=False),
            "fetch first, then a save that believes the client offline",
        ),
        Specimen(
            "B6",
            "fifo",
            replace(REPAIRED, idempotent_save=False, commit_on_revoke=True),
            REPAIRED,
            scope(Fault.REBALANCE, nodes=2),
            "rebalance without fencing: the old owner's buffered commands run after the new owner's",
        ),
        Specimen(
            "B7",
            "fifo",
            replace(REPAIRED, packs_in_flight=3, idempotent_save=False),
            REPAIRED,
            scope(Fault.SCRIPT_CACHE_FLUSH, messages=3, producer_requests_in_flight=1),
            "NOSCRIPT after failover, resend behind commands already in the pipeline",
        ),
        Specimen(
            "B8",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(Fault.REDIS_CONNECTION_LOSS, messages=1),
            "the driver reconnects and replays unanswered commands that the server had executed",
        ),
        Specimen(
            "B9",
            "no-loss",
            replace(REPAIRED, wait_for_replica=False),
            REPAIRED,
            scope(Fault.REDIS_FAILOVER, messages=1),
            "asynchronous replication: an acknowledged save is gone after a failover",
        ),
        Specimen(
            "B10",
            "at-least-once",
            replace(REPAIRED, acks_all=False),
            REPAIRED,
            scope(Fault.KAFKA_LEADER_CHANGE, messages=1),
            "publish acknowledged with acks=1",
        ),
        Specimen(
            "B11",
            "drain",
            replace(REPAIRED, atomic_flush=False),
            REPAIRED,
            scope(messages=1, flush_at=3, fault_budget=0),
            "flush counter reset races with a write",
        ),
        Specimen(
            "B12",
            "retransmission",
            replace(REPAIRED, takeover_waits=False),
            REPAIRED,
            scope(Fault.TAKEOVER, messages=1, nodes=2),
            "session takeover on another node while the old one still sends",
        ),
        Specimen(
            "B13",
            "fifo",
            replace(PUSHING, drop_over_window=True),
            PUSHING,
            scope(Fault.DISCONNECT, messages=3, receive_maximum=1),
            "flow-control queue drops, later messages pass",
        ),
        Specimen(
            "B14",
            "all-or-nothing",
            replace(REPAIRED, atomic_save=False),
            REPAIRED,
            scope(Fault.SLOT_MIGRATION, pack_size=2),
            "undeclared keys while the slot migrates",
        ),
    )
}
