"""Retained messages in a system: which publishers set RETAIN, what each topic has, and copies that answer a SUBSCRIBE.

A copy that answers a SUBSCRIBE is numbered ``RETAINED_FROM`` above its message, in payloads too: so it is told from the copy
that the message's own publication made, in a broker's memory and in the store alike.

Every broker sees the same retained messages, as `msg.all` is consumed: how they get from broker to broker takes no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orderlab.sim.mqtt.clients.population import Ints, Schedule
from orderlab.sim.mqtt.rules.retained import RetainedMessages, RetainHandling

RETAINED_FROM = 500_000_000
"""Half of the numbers that a payload can begin with."""


def are_retained(copies: Ints) -> npt.NDArray[np.bool_]:
    """Which copies answer a SUBSCRIBE."""
    return copies >= RETAINED_FROM


@dataclass
class Retaining:
    """``by_publisher``: whether each sets RETAIN on all that it publishes; of that, every ``clear_every``-th message is empty
    (0: none). ``expiry_us``: the Message Expiry Interval of every message."""

    by_publisher: npt.NDArray[np.bool_]
    topics: list[bytes]
    topic_of: Ints
    handling: RetainHandling
    as_published: bool
    """Retain As Published, of all subscriptions."""
    clear_every: int
    schedule: Schedule
    expiry_us: int | None
    messages: RetainedMessages[int] = field(default_factory=RetainedMessages)

    def published(self, messages: Ints) -> None:
        """Messages go to their subscribers now; those with RETAIN become what their topics have."""
        publisher = messages % self.schedule.count
        mine = self.by_publisher[publisher]
        for message, topic in zip(messages[mine].tolist(), self.topic_of[publisher[mine]].tolist(), strict=True):
            expires_us = None
            if self.expiry_us is not None:
                expires_us = int(self.schedule.published_us(np.array([message]))[0]) + self.expiry_us
            self.messages.publish(self.topics[topic].decode(), message, self.is_empty(message), expires_us)

    def is_empty(self, message: int) -> bool:
        """Whether a message with RETAIN has no payload, and so removes what its topic had. What a run calls its payload is
        how the history knows it."""
        return self.clear_every > 0 and (message // self.schedule.count + 1) % self.clear_every == 0

    def on_subscribe(self, topic_filter: str, now_us: int, is_new: bool) -> Ints:
        """The copies that answer a SUBSCRIBE."""
        found = self.messages.on_subscribe(topic_filter, now_us, self.handling, is_new)
        return np.array([message + RETAINED_FROM for _, message in found], np.int64)

    def seen(self, copies: Ints) -> tuple[Ints, dict[str, Ints]]:
        """Which messages these are copies of, and the RETAIN flag of each as its subscriber sees it."""
        answers = are_retained(copies)
        messages = np.where(answers, copies - RETAINED_FROM, copies)
        flags = answers | self.by_publisher[messages % self.schedule.count] if self.as_published else answers
        return messages, {"retained": flags.astype(np.int64)}
