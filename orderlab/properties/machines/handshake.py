"""QoS 1 and 2 both ways: publisher to broker and broker to subscriber, with disconnections, takeovers and Receive
Maximum.

Each leg is the exchange of ``orderlab.model.protocol.handshake``; what the broker is handed on the first leg it
publishes on the second. So besides the laws of each leg: no message reaches the subscriber's application twice (QoS 2),
none in another order.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from orderlab.model.protocol.handshake import (
    Handshake,
    HandshakeScope,
    HandshakeState,
    first_deliveries_in_order,
    handed_once,
)
from orderlab.model.spec.transition_system import Invariant, Label
from orderlab.properties.machines.tally import Tally, initialize, rule, tally_of

MESSAGES = 24
STEPS_TO_SETTLE = 40 * MESSAGES
"""Far more than an exchange of so many messages takes."""
scopes = st.builds(
    HandshakeScope,
    messages=st.just(MESSAGES),
    qos=st.sampled_from([1, 2, 2]),
    identifiers=st.integers(2, 4),
    receive_maximum=st.integers(1, 6),
    disconnects=st.just(4),
    takeovers=st.just(3),
    clean_starts=st.just(2),
    limit=st.just(MESSAGES),
)
"""A leg: without expiry, so that everything must arrive that is not cleared. Mishaps up to these; rules say when."""
LEGS = st.sampled_from([0, 1])
MISHAPS = st.sampled_from(["disconnect", "takeover", "clean start"])
PACKETS = st.lists(st.integers(0, 2), max_size=8)
"""Packets that arrive one after the other: which of those that come first at either end."""


class HandshakeBothWays(RuleBasedStateMachine):
    """Two legs. ``flaw`` puts one wrong rule into both."""

    flaw: ClassVar[str] = "none"

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)
        self.legs: list[Handshake] = []
        self.states: list[HandshakeState] = []
        self.told: list[str] = []

    @initialize(first=scopes, second=scopes)
    def connect(self, first: HandshakeScope, second: HandshakeScope) -> None:
        """Both connections, with the same QoS."""
        scopes_of_legs = (first, second.model_copy(update={"qos": first.qos}))
        self.legs = [Handshake(scope.model_copy(update={"flaw": self.flaw})) for scope in scopes_of_legs]
        self.states = [HandshakeState(), HandshakeState()]

    def offers(self, leg: int, actions: tuple[str, ...]) -> list[tuple[Label, Any]]:
        """Steps of a leg. The broker publishes what it was handed, no more."""
        found = [step for step in self.legs[leg].successors(self.states[leg]) if step[0].action.startswith(actions)]
        if leg == 1:
            handed = len(set(self.states[0].handed))
            found = [step for step in found if step[0].action != "publish" or self.states[1].published < handed]
        return found

    def fire(self, leg: int, *actions: str, which: int = 0) -> None:
        """One step, if there is one; then every law."""
        offers = self.offers(leg, actions)
        if not offers:
            return
        label, self.states[leg] = offers[which % len(offers)]
        self.tally.steps[label.action] += 1
        self.told.append(f"leg {leg + 1}: {label}")
        self.judge(leg)

    def judge(self, leg: int) -> None:
        """The laws of the leg, and of the way as a whole."""
        state = self.states[leg]
        for law in self.legs[leg].laws():
            if isinstance(law, Invariant) and (law.antecedent is None or law.antecedent(state)):
                self.tally.coverage[law.name] += 1
                assert law.holds(state), f"{law.name} is violated on leg {leg + 1} after {'; '.join(self.told)}"
        last = self.states[1]
        assert first_deliveries_in_order(last), f"fifo is violated end to end after {'; '.join(self.told)}"
        if self.legs[1].scope.qos == 2:
            assert handed_once(last), f"exactly-once is violated end to end after {'; '.join(self.told)}"

    def bring(self, leg: int, count: int) -> None:
        """The next ``count`` messages wait at the sender of a leg; those for the second come over the first."""
        for _ in range(count):
            if leg == 1 and not self.offers(1, ("publish",)):
                self.fire(0, "publish")
                self.finish(0)
            self.fire(leg, "publish")

    def send(self, leg: int, count: int) -> None:
        """Of what waits, as much as may be sent."""
        for _ in range(count):
            self.fire(leg, "reconnect", "send", "drop")

    def carry(self, leg: int, packets: list[int]) -> None:
        """Packets arrive, each at the end that its number picks."""
        for which in packets:
            self.fire(leg, "receive", which=which)

    @rule(leg=LEGS, count=st.integers(1, 3), packets=PACKETS)
    def exchange(self, leg: int, count: int, packets: list[int]) -> None:
        """The next messages are sent if Receive Maximum and free identifiers allow it, and some packets arrive."""
        self.bring(leg, count)
        self.send(leg, count)
        self.carry(leg, packets)

    @rule(leg=LEGS, count=st.integers(0, 2), packets=PACKETS, mishap=MISHAPS, meanwhile=st.integers(0, 2))
    def cut_off(self, leg: int, count: int, packets: list[int], mishap: str, meanwhile: int) -> None:
        """Trouble in the middle of an exchange: some messages wait, some are on the way, some are half acknowledged."""
        self.send(leg, MESSAGES)
        self.carry(leg, packets)
        self.bring(leg, count)
        self.fire(leg, mishap)
        self.bring(leg, meanwhile)
        self.fire(leg, "reconnect")

    def finish(self, leg: int, *others: str) -> None:
        """A leg goes on until it has no step left."""
        actions = ("reconnect", "receive", "send", *others)
        for _ in range(STEPS_TO_SETTLE):
            if not self.offers(leg, actions):
                break
            self.fire(leg, *actions)

    def drain(self) -> None:
        """Both legs go on until neither has a step left; then whatever was published was handed over."""
        self.finish(0)
        self.finish(1, "publish")
        self.tally.coverage["at-least-once"] += self.states[0].published > 0
        for leg in (0, 1):
            assert self.legs[leg].settled(self.states[leg]), f"at-least-once is violated after {'; '.join(self.told)}"

    def teardown(self) -> None:
        """Nothing may be left on the way."""
        try:
            if self.legs:
                self.drain()
        finally:
            tally_of(type(self).__name__).add(self.tally)
