"""QoS 1 and 2 both ways: publisher to broker and broker to subscriber, with disconnections, takeovers and Receive Maximum.

Each leg is the exchange of ``model.handshake``; what the broker is handed on the first leg it publishes on the second. So
besides the laws of each leg: no message reaches the subscriber's application twice (QoS 2), none in another order.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from model.handshake import Handshake, Scope, State, first_deliveries_in_order, handed_once
from model.transition_system import Invariant, Label
from properties.machines.tally import Tally, initialize, rule, tally_of

MESSAGES = 6
STEPS_TO_SETTLE = 40 * MESSAGES
"""Far more than an exchange of so many messages takes."""
scopes = st.builds(
    Scope,
    messages=st.just(MESSAGES),
    qos=st.sampled_from([1, 2]),
    identifiers=st.integers(2, 5),
    receive_maximum=st.integers(1, 4),
    disconnects=st.integers(1, 4),
    takeovers=st.integers(1, 3),
    limit=st.just(MESSAGES),
)
"""A leg: without expiry and clean starts, so that everything must arrive."""
LEGS = st.sampled_from([0, 1])


class HandshakeBothWays(RuleBasedStateMachine):
    """Two legs. ``flaw`` puts one wrong rule into both."""

    flaw: ClassVar[str] = "none"

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)
        self.legs: list[Handshake] = []
        self.states: list[State] = []
        self.told: list[str] = []

    @initialize(first=scopes, second=scopes)
    def connect(self, first: Scope, second: Scope) -> None:
        """Both connections, with the same QoS."""
        scopes_of_legs = (first, second.model_copy(update={"qos": first.qos}))
        self.legs = [Handshake(scope.model_copy(update={"flaw": self.flaw})) for scope in scopes_of_legs]
        self.states = [State(), State()]

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
                self.tally.met[law.name] += 1
                assert law.holds(state), f"{law.name} is violated on leg {leg + 1} after {'; '.join(self.told)}"
        last = self.states[1]
        assert first_deliveries_in_order(last), f"fifo is violated end to end after {'; '.join(self.told)}"
        if self.legs[1].scope.qos == 2:
            assert handed_once(last), f"exactly-once is violated end to end after {'; '.join(self.told)}"

    @rule(leg=LEGS, count=st.integers(1, 4))
    def publish(self, leg: int, count: int) -> None:
        """The application's next messages, or the broker's, each sent if Receive Maximum and a free identifier allow it."""
        for _ in range(count):
            self.fire(leg, "publish")
            self.fire(leg, "send", "drop")

    @rule(leg=LEGS)
    def send(self, leg: int) -> None:
        """The next that waits."""
        self.fire(leg, "send", "drop")

    @rule(leg=LEGS, which=st.integers(0, 2), count=st.integers(1, 4))
    def receive(self, leg: int, which: int, count: int) -> None:
        """Packets arrive, at either end."""
        for _ in range(count):
            self.fire(leg, "receive", which=which)

    @rule(leg=LEGS, comes_back=st.booleans())
    def disconnect(self, leg: int, comes_back: bool) -> None:
        """What is on the way is lost; the client connects again, at once or later, with Clean Start 0."""
        self.fire(leg, "disconnect")
        if comes_back:
            self.fire(leg, "reconnect")

    @rule(leg=LEGS)
    def takeover(self, leg: int) -> None:
        """The client connects while it is still connected."""
        self.fire(leg, "takeover")

    @rule()
    def settle(self) -> None:
        """No more trouble: everything on its way arrives."""
        self.drain()

    def drain(self) -> None:
        """Both legs go on until neither has a step left; then whatever was published was handed over."""
        for leg in (0, 1):
            actions = ("reconnect", "receive", "send", *(["publish"] if leg else []))
            for _ in range(STEPS_TO_SETTLE):
                if not self.offers(leg, actions):
                    break
                self.fire(leg, *actions)
        self.tally.met["at-least-once"] += self.states[0].published > 0
        for leg in (0, 1):
            assert self.legs[leg].settled(self.states[leg]), f"at-least-once is violated after {'; '.join(self.told)}"

    def teardown(self) -> None:
        """Nothing may be left on the way."""
        try:
            if self.legs:
                self.drain()
        finally:
            tally_of(type(self).__name__).add(self.tally)
