"""Names that help texts list. Where they are defined takes long to import; a test keeps these the same."""

from __future__ import annotations

OBJECTS = ("register", "cas-register", "queue", "set", "kv", "kafka", "total-queue")
"""``orderlab.model.checkers.judge.MODEL_NAMES``: the objects of store operations."""
SYSTEMS = ("tbmq-p2p", "tbmq-postgres", "tbmq-jedis", "tbmq-lettuce", "tbmq-application")
"""``orderlab.sim.systems.catalogue.SYSTEMS``."""
