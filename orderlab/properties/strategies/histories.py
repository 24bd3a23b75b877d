"""Histories of one subscriber, correct ones and such with one anomaly planted, as lines of
``orderlab.model.history.notation``.

A correct history is a walk through what a broker may do: publish, acknowledge, deliver, trim, expire, lose and take up
the connection, resend, end the session. Each anomaly is a few words put where the walk has come to an end: the smallest
story in which its law is broken, so that an accused history shrinks to that story.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

INTERVAL_MS = 1000
"""Expiry interval of messages that have one: longer than a history lasts, unless the clock is set forward."""
STEPS = ("publish", "deliver", "acknowledge", "reconnect", "trim", "expire", "clear")
ANOMALIES = {
    "loss": "at-least-once",
    "reorder": "fifo",
    "duplicate": "exactly-once",
    "phantom": "no-phantom",
    "delivered after clear": "no-phantom",
    "resent in another order": "retransmission",
    "resent without DUP": "retransmission",
    "resent under another identifier": "retransmission",
    "not resent": "retransmission",
    "delivered at its deadline": "expiry",
    "expired too early": "expiry",
}
"""Anomaly -> the law that it breaks."""


class Planted(NamedTuple):
    """A history with one anomaly."""

    anomaly: str
    line: str

    @property
    def law(self) -> str:
        """The law that it breaks."""
        return ANOMALIES[self.anomaly]


@dataclass
class Broker:
    """One session at QoS 1, ``p`` publishing to ``t`` for ``s``; it writes down what it does."""

    words: list[str] = field(default_factory=lambda: ["S", "+"])
    published: int = 0
    packet_ids: int = 0
    waiting: list[int] = field(default_factory=list)
    in_flight: dict[int, int] = field(default_factory=dict)
    """Message -> packet identifier, in the order of the first transmission."""

    def say(self, *words: str) -> None:
        """More rows, a millisecond apart."""
        self.words += words

    def publish(self, suffix: str = "") -> int:
        """The next message, acknowledged to its publisher."""
        self.published += 1
        self.say(f"P{self.published}{suffix}", f"A{self.published}{suffix.partition('%')[0]}")
        return self.published

    def send(self, message: int) -> None:
        """First transmission, under an identifier of its own."""
        self.packet_ids += 1
        self.in_flight[message] = self.packet_ids
        self.say(f"D{message}#{self.packet_ids}")

    def acknowledge(self, message: int) -> None:
        """PUBACK."""
        self.say(f"K#{self.in_flight.pop(message)}")

    def step(self, name: str) -> None:
        """One step of a correct broker; a step that has nothing to act upon does nothing."""
        if name == "publish":
            self.waiting.append(self.publish())
        elif name == "deliver" and self.waiting:
            self.send(self.waiting.pop(0))
        elif name == "acknowledge" and self.in_flight:
            self.acknowledge(next(iter(self.in_flight)))
        elif name == "reconnect":
            self.say("-", "+", *(f"D{message}#{number}!" for message, number in self.in_flight.items()))
        elif name == "trim" and self.waiting:
            self.say(f"T{self.waiting.pop(0)}")
        elif name == "expire":
            message = self.publish(f"%{INTERVAL_MS}")
            self.pass_time()
            self.say(f"E{message}")
        elif name == "clear":
            self.say("-", "C", "+", "S")
            self.waiting.clear()
            self.in_flight.clear()

    def pass_time(self) -> None:
        """Until every deadline so far is over."""
        now_ms = max([int(word[1:]) for word in self.words if word.startswith("@")], default=0) + len(self.words)
        self.say(f"@{now_ms + INTERVAL_MS}")

    def finish(self) -> None:
        """All that waits is delivered, all that is in flight is acknowledged."""
        while self.waiting:
            self.step("deliver")
        while self.in_flight:
            self.step("acknowledge")

    def go_wrong(self, anomaly: str) -> None:
        """The anomaly, with nothing waiting and nothing in flight before it."""
        number = self.packet_ids + 1
        match anomaly:
            case "loss":
                self.publish()
            case "reorder":
                first, second = self.publish(), self.publish()
                self.send(second)
                self.send(first)
            case "duplicate":
                message = self.publish("q2")
                self.say(f"D{message}q2#{number}", f"R#{number}", f"L#{number}", f"K#{number}")
                self.say(f"D{message}q2#{number + 1}")
            case "phantom":
                self.send(self.publish())
                self.finish()
                self.send(self.published + 1)
            case "delivered after clear":
                message = self.publish()
                self.say("-", "C", "+", "S")
                self.send(message)
            case "resent in another order":
                first, second = self.publish(), self.publish()
                self.send(first)
                self.send(second)
                self.say("-", "+", f"D{second}#{number + 1}!", f"D{first}#{number}!")
            case "resent without DUP":
                message = self.publish()
                self.send(message)
                self.say("-", "+", f"D{message}#{number}")
            case "resent under another identifier":
                message = self.publish()
                self.send(message)
                self.say("-", "+", f"D{message}#{number + 1}!")
            case "not resent":
                self.send(self.publish())
                self.say("-", "+")
                self.in_flight.clear()
            case "delivered at its deadline":
                message = self.publish(f"%{INTERVAL_MS}")
                self.pass_time()
                self.send(message)
            case "expired too early":
                self.say(f"E{self.publish(f'%{INTERVAL_MS}')}")
        self.in_flight.clear()


_walks = st.lists(st.sampled_from(STEPS), max_size=20)


def _walked(steps: list[str]) -> Broker:
    broker = Broker()
    for name in steps:
        broker.step(name)
    broker.finish()
    return broker


correct_histories = _walks.map(lambda steps: " ".join(_walked(steps).words))
"""Every law holds of these."""


def _planted(steps: list[str], anomaly: str) -> Planted:
    broker = _walked(steps)
    broker.go_wrong(anomaly)
    return Planted(anomaly, " ".join(broker.words))


def histories_with(anomaly: str) -> st.SearchStrategy[Planted]:
    """Histories that end with this anomaly."""
    return st.builds(_planted, _walks, st.just(anomaly))
