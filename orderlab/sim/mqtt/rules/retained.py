"""Retained messages (MQTT 5.0, 3.3.1.3): the last one of each topic, and who gets them when a subscription is made.

A PUBLISH with RETAIN replaces what its topic had; one with an empty payload removes it and is not kept itself. A new
subscription gets what its filter matches, with RETAIN set (MQTT-3.3.1-8), as its Retain Handling says (3.8.3.1); a shared one
gets nothing (4.8.2). A message past its expiry interval is gone. What is sent on to subscriptions that exist already carries
RETAIN only where they asked for Retain As Published (MQTT-3.3.1-12, -13).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from orderlab.sim.mqtt.clients import Ints, Schedule
from orderlab.sim.mqtt.rules.topics import check_topic_filter, check_topic_name, split_shared

M = TypeVar("M")


class RetainHandling(IntEnum):
    """When a SUBSCRIBE is answered with retained messages."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class _Kept(Generic[M]):
    message: M
    expires_us: int | None


@dataclass(slots=True)
class _Level(Generic[M]):
    children: dict[str, _Level[M]] = field(default_factory=dict)
    kept: _Kept[M] | None = None


class RetainedMessages(Generic[M]):
    """The retained messages of a broker, as a tree of topic levels: a filter without wildcards costs its levels."""

    def __init__(self) -> None:
        self._root: _Level[M] = _Level()
        self._size = 0

    def __len__(self) -> int:
        """How many topics have one, expired ones that nobody has asked for since included."""
        return self._size

    def publish(self, topic: str, message: M, is_empty: bool = False, expires_us: int | None = None) -> None:
        """A PUBLISH with RETAIN on ``topic``. ``expires_us``: from that instant on it is gone. Raises InputError for an
        invalid topic."""
        check_topic_name(topic)
        if is_empty:
            self._remove(topic)
            return
        level = self._root
        for name in topic.split("/"):
            level = level.children.setdefault(name, _Level())
        self._size += level.kept is None
        level.kept = _Kept(message, expires_us)

    def on_subscribe(
        self, topic_filter: str, now_us: int, handling: RetainHandling = RetainHandling.ALWAYS, is_new: bool = True
    ) -> list[tuple[str, M]]:
        """(topic, message) of what a SUBSCRIBE is answered with, in the order of topics. ``is_new``: the session did not have
        the subscription. Raises InputError for an invalid filter."""
        shared, _ = split_shared(topic_filter)
        check_topic_filter(topic_filter)
        if shared is not None or handling is RetainHandling.NEVER or (handling is RetainHandling.IF_NEW and not is_new):
            return []
        return self.matching(topic_filter, now_us)

    def matching(self, topic_filter: str, now_us: int) -> list[tuple[str, M]]:
        """(topic, message) of those that have not expired, in the order of topics; expired ones are dropped."""
        found, expired = [], []
        for topic, kept in sorted(self._find(topic_filter.split("/")), key=lambda pair: pair[0]):
            if kept.expires_us is not None and now_us >= kept.expires_us:
                expired.append(topic)
            else:
                found.append((topic, kept.message))
        for topic in expired:
            self._remove(topic)
        return found

    def _find(self, wanted: list[str]) -> Iterator[tuple[str, _Kept[M]]]:
        stack: list[tuple[_Level[M], int, tuple[str, ...]]] = [(self._root, 0, ())]
        while stack:
            level, depth, path = stack.pop()
            name = wanted[depth] if depth < len(wanted) else None
            if level.kept is not None and (name is None or name == "#"):
                yield "/".join(path), level.kept
            if name in ("+", "#"):
                below = depth if name == "#" else depth + 1
                stack += (
                    (child, below, (*path, called))
                    for called, child in level.children.items()
                    if path or not called.startswith("$")  # MQTT-4.7.2-1
                )
            elif name is not None and name in level.children:
                stack.append((level.children[name], depth + 1, (*path, name)))

    def _remove(self, topic: str) -> None:
        path, level = [], self._root
        for name in topic.split("/"):
            if name not in level.children:
                return
            path.append((level, name))
            level = level.children[name]
        self._size -= level.kept is not None
        level.kept = None
        for parent, name in reversed(path):
            if parent.children[name].kept is not None or parent.children[name].children:
                break
            del parent.children[name]


RETAINED_FROM = 500_000_000
"""Half of the numbers that a payload can begin with."""


def are_retained(copies: Ints) -> npt.NDArray[np.bool_]:
    """Which copies answer a SUBSCRIBE."""
    return copies >= RETAINED_FROM


@dataclass
class RetainedByTopic:
    """Retained messages in a system. ``by_publisher``: whether each sets RETAIN on all that it publishes; of that, every ``clear_every``-th message
    is empty (0: none). ``expiry_us``: the Message Expiry Interval of every message.

    A copy that answers a SUBSCRIBE is numbered ``RETAINED_FROM`` above its message, in payloads too: so it is told from the copy
    that the message's own publication made, in a broker's memory and in the store alike.

    Every broker sees the same retained messages, as `msg.all` is consumed: how they get from broker to broker takes no time.
    """

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
        """Let those with RETAIN of the messages that go to their subscribers now become what their topics have."""
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
