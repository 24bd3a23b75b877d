"""Which laws an exploration judges, and what must come about for its answer to mean something."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from orderlab.model.contracts.session.refinement import Account
from orderlab.properties.contracts.session.exploration.scope import Scope
from orderlab.sim.stores.session_store import SessionStore

EXPLORED = (
    "store-order",
    "no-loss",
    "packet-id",
    "legal-trim",
    "expiry",
    "no-residue",
    "all-or-nothing",
    "counter",
    "retransmission",
    "no-phantom",
    "drain",
)
"""Laws of a session store that one session's steps can break. What an operation costs, and its slots, are not seen."""

AFTER_FAILOVER = " after failover"
"""A law so marked is broken by the loss of what the replica had not received: no script can keep it."""


def explored_laws(scope: Scope, operations: Collection[str], law: str | None) -> list[str]:
    """The laws of a scope by name."""
    names = [name for name in EXPLORED if law in (None, name)]
    if scope.qos != 2 or "release" not in operations:
        names = [name for name in names if name != "retransmission" or law == name]
    return [*names, *(name + AFTER_FAILOVER for name in names if scope.failover)]


def goals(scope: Scope, store: SessionStore) -> list[str]:
    """Situations without which the laws would hold for want of trying."""
    most, modulus = scope.messages, store.capabilities.modulus
    found = ["several messages live"] if most > 1 and scope.limit > 1 else []
    found += ["the queue is full"] if most >= scope.limit else []
    found += ["a message is trimmed"] if most > scope.limit else []
    found += ["the identifier wraps while a message is live"] if most > modulus > 1 and scope.limit > 1 else []
    found += ["a message is acknowledged"] if "acknowledge" in store.operations else []
    found += ["a message expires"] if scope.expiries else []
    found += ["a message is released"] if scope.qos == 2 and "release" in store.operations else []
    found += ["a session is cleared"] if scope.clears and "clear" in store.operations else []
    return found


def situations(account: Account, scope: Scope) -> Iterator[str]:
    """The situations that an account is in, or has been in."""
    queue = account.queue
    fates = {fate for _, fate in account.fates}
    if len(queue) > 1:
        yield "several messages live"
        if queue[0].packet_id > queue[-1].packet_id:
            yield "the identifier wraps while a message is live"
    if len(queue) >= scope.limit:
        yield "the queue is full"
    if any(entry.kind == "PUBREL" for entry in queue):
        yield "a message is released"
    for fate, words in (
        ("trimmed", "a message is trimmed"),
        ("acknowledged", "a message is acknowledged"),
        ("expired", "a message expires"),
        ("cleared", "a session is cleared"),
    ):
        if fate in fates:
            yield words
