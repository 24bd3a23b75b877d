"""The QoS 1 and QoS 2 exchange: right in its scopes, and each flaw breaks the law that it should."""

from __future__ import annotations

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.protocol.handshake import Handshake, HandshakeScope
from orderlab.model.verdict import Outcome

RIGHT = [
    {"qos": 1},
    {"qos": 2},
    {"takeovers": 1},
    {"clean_starts": 1},
    {"expiries": 1, "limit": 2},
    {"identifiers": 1},
    {"receive_maximum": 1},
    {"messages": 4, "disconnects": 2, "takeovers": 1},
]


@pytest.mark.parametrize("scope", RIGHT, ids=str)
def test_the_exchange_keeps_every_law(scope: dict) -> None:
    found = explore(Handshake(HandshakeScope(**scope)))
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


FLAWED = [
    ("new-identifier-on-resend", {}, "retransmission", 4),
    ("new-identifier-on-resend", {}, "exactly-once", 6),
    ("dup-not-set", {}, "retransmission", 5),
    ("resend-in-reverse", {"qos": 1}, "fifo", 8),
    ("new-before-resend", {"qos": 1}, "fifo", 7),
    ("pubrel-not-resent", {}, "at-least-once", None),
    ("receiver-forgets-identifier", {}, "exactly-once", 6),
    ("identifier-in-use-taken", {"identifiers": 1}, "packet-id", 4),
    ("window-ignored", {}, "receive-maximum", 6),
    ("drops-over-window", {"receive_maximum": 1}, "at-least-once", None),
    ("old-connection-lives", {"takeovers": 1}, "retransmission", 4),
    ("clear-keeps-waiting", {"clean_starts": 1}, "no-phantom", 3),
]


@pytest.mark.parametrize(("flaw", "scope", "law", "steps"), FLAWED)
def test_a_flaw_breaks_its_law(flaw: str, scope: dict, law: str, steps: int | None) -> None:
    found = explore(Handshake(HandshakeScope(flaw=flaw, law=law, **scope)))
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    if steps is not None:
        assert len(verdict.witness.steps) == steps
