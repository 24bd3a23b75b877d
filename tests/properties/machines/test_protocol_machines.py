"""Machines over specifications: right ones stay green, a wrong rule is found and shrinks to the steps that matter."""

from __future__ import annotations

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from orderlab.properties.machines.feed import feed_machine
from orderlab.properties.machines.handshake import HandshakeBothWays
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.machines.transition_system import SpecificationViolated
from orderlab.properties.profiles import PROFILES


def run(machine: type[RuleBasedStateMachine], shrinks: bool = False) -> None:
    PROFILES["ci"].run(machine, 2, shrinks=shrinks)


def flawed(flaw: str) -> type[HandshakeBothWays]:
    return type(f"Handshake_{flaw.replace('-', '_')}", (HandshakeBothWays,), {"flaw": flaw})


def test_the_handshake_holds_both_ways_and_every_law_is_tested() -> None:
    run(flawed("none"))
    tally = tally_of("Handshake_none")
    wanted = {"fifo", "packet-id", "retransmission", "exactly-once", "at-least-once", "receive-maximum"}
    assert wanted <= tally.coverage.keys()
    assert {"disconnect", "takeover", "receive PUBREL", "receive PUBACK"} <= tally.steps.keys()


@pytest.mark.parametrize(
    ("flaw", "law"),
    [
        ("new-identifier-on-resend", "retransmission|exactly-once"),
        ("dup-not-set", "retransmission"),
        ("receiver-forgets-identifier", "exactly-once"),
        ("identifier-in-use-taken", "packet-id"),
        ("window-ignored", "receive-maximum"),
        ("drops-over-window", "at-least-once"),
        ("resend-in-reverse", "retransmission|fifo"),
        ("new-before-resend", "retransmission|fifo"),
        ("pubrel-not-resent", "at-least-once"),
        ("old-connection-lives", "retransmission"),
        ("clear-keeps-waiting", "no-phantom"),
    ],
)
def test_a_flaw_of_the_handshake_is_found(flaw: str, law: str) -> None:
    with pytest.raises(AssertionError, match=f"({law}) is violated"):
        run(flawed(flaw))


def test_the_feed_holds_and_every_action_fires() -> None:
    machine = feed_machine()
    run(machine)
    assert set(machine.system.action_names()) <= tally_of(machine.__name__).steps.keys()


@pytest.mark.parametrize(
    ("flaw", "law"),
    [
        ("reserve-then-write", "cursor-safe"),
        ("watch-after-read", "cursor-safe"),
        ("positional-cursor", "cursor-safe"),
        ("claim-first-n", "exclusive-claim"),
        ("expire-while-claimed", "retention"),
        ("post-again", "no-repeat"),
        ("rank-rolls-back", "cursor-safe"),
    ],
)
def test_a_flaw_of_the_feed_is_found(flaw: str, law: str) -> None:
    with pytest.raises(AssertionError, match=f"({law}) is violated"):
        run(feed_machine(flaw))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flaw", "steps"),
    [
        ("reserve-then-write", 5),
        pytest.param("expire-while-claimed", 4, marks=pytest.mark.exhaustive),
        pytest.param("post-again", 4, marks=pytest.mark.exhaustive),
    ],
)
def test_a_failing_walk_shrinks_to_the_steps_that_matter(flaw: str, steps: int) -> None:
    with pytest.raises(SpecificationViolated) as found:
        run(feed_machine(flaw), shrinks=True)  # type: ignore[arg-type]
    assert len(found.value.taken) == steps, found.value  # as the explorer finds them: none is shorter
