"""The known defects B1 to B14 of a broker around its store: one flaw each, beside the protocol without it.

A specimen is a small departure from a protocol that keeps every law in the same scope, its ``neighbour``. Where the
repaired protocol hides a flaw behind another defence, the flawed one leaves that defence out too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orderlab.model.pipeline.state import DeliveryMode, PipelineFault, PipelineScope, Protocol


@dataclass(frozen=True, slots=True)
class PipelineSpecimen:
    """``flawed`` breaks ``breaks`` in ``scope``; ``neighbour`` holds there."""

    name: str
    breaks: str
    flawed: Protocol
    neighbour: Protocol
    scope: PipelineScope
    defect: str


REPAIRED = Protocol()
PUSHING = replace(REPAIRED, delivery=DeliveryMode.PUSH_HELD)
"""The nearest protocol that pushes instead of reading the store: correct without takeover and window overflow."""

PUBLISHED = Protocol(
    idempotent_producer=False,
    acks_all=False,
    idempotent_save=False,
    fenced_commit=True,
    commit_on_revoke=False,
    wait_for_replica=False,
    atomic_save=False,
    delivery=DeliveryMode.PUSH,
)
"""The broker as its designers describe it: Kafka with acks=1 and no idempotence, Redis without WAIT, pushing."""


def scope(*faults: PipelineFault, **sizes: int | bool) -> PipelineScope:
    """A scope with these faults, one of which may strike once, unless ``sizes`` says otherwise."""
    return replace(PipelineScope(faults=frozenset(faults)), **sizes)  # type: ignore[arg-type]


SPECIMENS: dict[str, PipelineSpecimen] = {
    specimen.name: specimen
    for specimen in (
        PipelineSpecimen(
            "B1",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(PipelineFault.BROKER_CRASH, messages=1),
            "crash after the Redis write, before the offset commit",
        ),
        PipelineSpecimen(
            "B2",
            "fifo",
            replace(REPAIRED, idempotent_producer=False),
            REPAIRED,
            scope(PipelineFault.PRODUCER_RETRY),
            "producer retry with several requests in flight, no idempotence",
        ),
        PipelineSpecimen(
            "B3",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(PipelineFault.PACK_TIMEOUT, messages=1),
            "pack timeout shorter than the Redis command timeout",
        ),
        PipelineSpecimen(
            "B4",
            "fifo",
            replace(PUSHING, delivery=DeliveryMode.PUSH),
            PUSHING,
            scope(starts_connected=False),
            "reconnect replays while fresh messages are sent directly",
        ),
        PipelineSpecimen(
            "B5",
            "fifo",
            replace(PUSHING, online_decided_at_save=True),
            PUSHING,
            scope(PipelineFault.DISCONNECT, nodes=2, starts_connected=False),
            "fetch first, then a save that believes the client offline",
        ),
        PipelineSpecimen(
            "B6",
            "fifo",
            replace(REPAIRED, idempotent_save=False, commit_on_revoke=True),
            REPAIRED,
            scope(PipelineFault.REBALANCE, nodes=2),
            "rebalance without fencing: the old owner's buffered commands run after the new owner's",
        ),
        PipelineSpecimen(
            "B7",
            "fifo",
            replace(REPAIRED, packs_in_flight=3, idempotent_save=False),
            REPAIRED,
            scope(PipelineFault.SCRIPT_CACHE_FLUSH, messages=3, producer_requests_in_flight=1),
            "NOSCRIPT after failover, resend behind commands already in the pipeline",
        ),
        PipelineSpecimen(
            "B8",
            "exactly-once",
            replace(REPAIRED, idempotent_save=False),
            REPAIRED,
            scope(PipelineFault.REDIS_CONNECTION_LOSS, messages=1),
            "the driver reconnects and replays unanswered commands that the server had executed",
        ),
        PipelineSpecimen(
            "B9",
            "no-loss",
            replace(REPAIRED, wait_for_replica=False),
            REPAIRED,
            scope(PipelineFault.REDIS_FAILOVER, messages=1),
            "asynchronous replication: an acknowledged save is gone after a failover",
        ),
        PipelineSpecimen(
            "B10",
            "at-least-once",
            replace(REPAIRED, acks_all=False),
            REPAIRED,
            scope(PipelineFault.KAFKA_LEADER_CHANGE, messages=1),
            "publish acknowledged with acks=1",
        ),
        PipelineSpecimen(
            "B11",
            "drain",
            replace(REPAIRED, atomic_flush=False),
            REPAIRED,
            scope(messages=1, flush_at=3, fault_budget=0),
            "flush counter reset races with a write",
        ),
        PipelineSpecimen(
            "B12",
            "retransmission",
            replace(REPAIRED, takeover_waits=False),
            REPAIRED,
            scope(PipelineFault.TAKEOVER, messages=1, nodes=2),
            "session takeover on another node while the old one still sends",
        ),
        PipelineSpecimen(
            "B13",
            "fifo",
            replace(PUSHING, drop_over_window=True),
            PUSHING,
            scope(PipelineFault.DISCONNECT, messages=3, receive_maximum=1),
            "flow-control queue drops, later messages pass",
        ),
        PipelineSpecimen(
            "B14",
            "all-or-nothing",
            replace(REPAIRED, atomic_save=False),
            REPAIRED,
            scope(PipelineFault.SLOT_MIGRATION, pack_size=2),
            "undeclared keys while the slot migrates",
        ),
    )
}
