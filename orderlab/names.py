"""Names that help texts list. Where they are defined takes long to import; a test keeps these the same."""

from __future__ import annotations

HISTORY_LAWS = (
    "fifo", "at-least-once", "exactly-once", "no-phantom", "agreement", "drain", "retransmission", "expiry", "packet-id",
    "receive-maximum", "causal", "linearizability",
)  # fmt: skip
"""``model.checkers.judge.LAWS``."""
OBJECTS = ("register", "cas-register", "queue", "set", "kv")
"""``model.checkers.judge.MODEL_NAMES``: the objects of store operations."""
SYSTEMS = ("tbmq-p2p", "tbmq-postgres", "tbmq-jedis", "tbmq-lettuce", "tbmq-application")
"""``sim.systems.catalogue.SYSTEMS``."""
