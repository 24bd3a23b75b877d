"""What MQTT 5.0 says of topics, without time: names and filters (4.7), who gets a topic, and retained messages
(3.3.1.3).

A PUBLISH with RETAIN replaces what its topic had; one with an empty payload removes it and is not kept itself. A new
subscription gets what its filter matches, with RETAIN set (MQTT-3.3.1-8), as its Retain Handling says (3.8.3.1); a
shared one gets nothing (4.8.2). A message past its expiry interval is gone. What is sent on to subscriptions that exist
already carries RETAIN only where they asked for Retain As Published (MQTT-3.3.1-12, -13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from orderlab.model.history.topics import check_topic_filter, check_topic_name, split_shared
from orderlab.sim.engine.packs import all_of, any_of
from orderlab.sim.mqtt.clients import Ints, Schedule


def matches(topic_filter: str, topic: str) -> bool:
    """Whether ``topic`` is selected by ``topic_filter``. A leading wildcard selects no ``$``-topic (MQTT-4.7.2-1)."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or (level != "+" and level != levels[position]):
            return False
    return len(wanted) == len(levels)


V = TypeVar("V")


class _SubscriptionLevel(Generic[V]):
    __slots__ = ("children", "groups", "here")

    def __init__(self) -> None:
        self.children: dict[str, _SubscriptionLevel[V]] = {}
        self.here: dict[str, V] = {}
        self.groups: dict[str, dict[str, V]] | None = None
        """Of shared subscriptions; the member whose turn it is stands first."""

    def members(self, group: str | None) -> dict[str, V]:
        """Who holds the subscription, alone or in a group."""
        if group is None:
            return self.here
        if self.groups is None:
            self.groups = {}
        return self.groups.setdefault(group, {})

    def drop_if_empty(self, group: str | None) -> None:
        """Forget a group without members."""
        if group is not None and self.groups is not None and not self.groups[group]:
            del self.groups[group]
            self.groups = self.groups or None

    def selected(self) -> Iterable[tuple[str, V]]:
        """Who holds a subscription alone, and of each group one member: the next in turn."""
        if self.groups is None:
            return self.here.items()
        chosen = []
        for members in self.groups.values():
            subscriber = next(iter(members))
            members[subscriber] = value = members.pop(subscriber)
            chosen.append((subscriber, value))
        return [*self.here.items(), *chosen]


class SubscriptionTrie(Generic[V]):
    """Filters to values, by subscriber. One subscriber holds at most one value per filter (MQTT-3.8.4-3). Of those that
    share a subscription (``$share/group/filter``) a message goes to one, in turn (MQTT-4.8.2-4).

    Who gets a topic is found in time that grows with the levels, not with the subscriptions.
    """

    def __init__(self) -> None:
        self._root: _SubscriptionLevel[V] = _SubscriptionLevel()
        self._size = 0
        self._wild = 0
        """Subscriptions with a wildcard."""
        self.version = 0
        """Grows with every change."""

    def __len__(self) -> int:
        return self._size

    def subscribe(self, topic_filter: str, subscriber: str, value: V) -> bool:
        """Add or replace a subscription; True if it is new. Raises InputError for an invalid filter."""
        check_topic_filter(topic_filter)
        group, plain = split_shared(topic_filter)
        level = self._root
        for name in plain.split("/"):
            level = level.children.setdefault(name, _SubscriptionLevel())
        members = level.members(group)
        is_new = subscriber not in members
        members[subscriber] = value
        self.version += 1
        self._size += is_new
        self._wild += is_new and _has_wildcard(topic_filter)
        return is_new

    def unsubscribe(self, topic_filter: str, subscriber: str) -> bool:
        """Remove a subscription, and every level that nothing needs any more. True if it was there."""
        path: list[tuple[_SubscriptionLevel[V], str]] = []
        group, plain = split_shared(topic_filter)
        level = self._root
        for name in plain.split("/"):
            if name not in level.children:
                return False
            path.append((level, name))
            level = level.children[name]
        is_gone = level.members(group).pop(subscriber, None) is not None
        level.drop_if_empty(group)
        if not is_gone:
            return False
        self._size -= 1
        self._wild -= _has_wildcard(topic_filter)
        self.version += 1
        for parent, name in reversed(path):
            child = parent.children[name]
            if child.here or child.groups or child.children:
                break
            del parent.children[name]
        return True

    def matching(self, topic: str) -> Iterator[tuple[str, V]]:
        """(subscriber, value) of every subscription whose filter selects ``topic``, once per subscription."""
        names = topic.split("/")
        if not self._wild:
            yield from self._exactly(names)
            return
        wild_first = not topic.startswith("$")
        stack = [(self._root, 0)]
        while stack:
            level, depth = stack.pop()
            wild = depth > 0 or wild_first
            if wild and "#" in level.children:
                yield from level.children["#"].selected()
            if depth == len(names):
                yield from level.selected()
                continue
            if wild and "+" in level.children:
                stack.append((level.children["+"], depth + 1))
            exact = level.children.get(names[depth])
            if exact is not None and names[depth] not in ("+", "#"):
                stack.append((exact, depth + 1))

    def _exactly(self, names: list[str]) -> Iterable[tuple[str, V]]:
        """The subscriptions to a topic where no filter has a wildcard: there is one way down the trie."""
        level: _SubscriptionLevel[V] | None = self._root
        for name in names:
            if level is None:
                return ()
            level = level.children.get(name)
        return () if level is None else level.selected()


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


_UNKNOWN, _SEVERAL = -1, -2


class Matches:
    """The subscribers of each topic, as an array where a topic has exactly one: the trie is asked once per topic, and
    its answer kept until a subscription changes. Shared by the brokers of a system."""

    def __init__(self, trie: SubscriptionTrie[int], topics: Sequence[bytes]) -> None:
        self.trie = trie
        self.topics = topics
        self._version = -1
        self._sole: Ints = np.empty(0, np.int64)
        self._several: dict[int, list[int]] = {}
        self.of(np.arange(len(topics)))  # before the run: then nothing is looked up until a subscription changes

    def of(self, topics: Ints) -> tuple[Ints, Ints]:
        """(place in ``topics``, subscriber) of every match, in the order of the topics."""
        if self._version != self.trie.version:
            self._version = self.trie.version
            self._sole = np.full(len(self.topics), _UNKNOWN, np.int64)
            self._several.clear()
        sole = self._sole[topics]
        if any_of(sole == _UNKNOWN):
            for topic in topics[sole == _UNKNOWN].tolist():
                found = [subscriber for _, subscriber in self.trie.matching(self.topics[topic].decode())]
                self._sole[topic] = found[0] if len(found) == 1 else _SEVERAL
                if len(found) != 1:
                    self._several[topic] = found
            sole = self._sole[topics]
        if all_of(sole != _SEVERAL):
            return np.arange(len(topics)), sole
        pairs = [
            (place, subscriber)
            for place, (one, topic) in enumerate(zip(sole.tolist(), topics.tolist(), strict=True))
            for subscriber in ([one] if one != _SEVERAL else self._several[topic])
        ]
        places, subscribers = np.array(pairs, np.int64).reshape(-1, 2).T
        return places, subscribers


M = TypeVar("M")


class RetainHandling(IntEnum):
    """When a SUBSCRIBE is answered with retained messages."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class _RetainedMessage(Generic[M]):
    message: M
    expires_us: int | None


@dataclass(slots=True)
class _RetainedLevel(Generic[M]):
    children: dict[str, _RetainedLevel[M]] = field(default_factory=dict)
    kept: _RetainedMessage[M] | None = None


class RetainedMessages(Generic[M]):
    """The retained messages of a broker, as a tree of topic levels: a filter without wildcards costs its levels."""

    def __init__(self) -> None:
        self._root: _RetainedLevel[M] = _RetainedLevel()
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
            level = level.children.setdefault(name, _RetainedLevel())
        self._size += level.kept is None
        level.kept = _RetainedMessage(message, expires_us)

    def on_subscribe(
        self, topic_filter: str, now_us: int, handling: RetainHandling = RetainHandling.ALWAYS, is_new: bool = True
    ) -> list[tuple[str, M]]:
        """(topic, message) of what a SUBSCRIBE is answered with, in the order of topics. ``is_new``: the session did
        not have the subscription. Raises InputError for an invalid filter."""
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

    def _find(self, wanted: list[str]) -> Iterator[tuple[str, _RetainedMessage[M]]]:
        stack: list[tuple[_RetainedLevel[M], int, tuple[str, ...]]] = [(self._root, 0, ())]
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
    """Retained messages in a system. ``by_publisher``: whether each sets RETAIN on all that it publishes; of that,
    every ``clear_every``-th message is empty (0: none). ``expiry_us``: the Message Expiry Interval of every message.

    A copy that answers a SUBSCRIBE is numbered ``RETAINED_FROM`` above its message, in payloads too: so it is told from
    the copy that the message's own publication made, in a broker's memory and in the store alike.

    Every broker sees the same retained messages, as `msg.all` is consumed: how they get from broker to broker takes no
    time.
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
        """Whether a message with RETAIN has no payload, and so removes what its topic had. What a run calls its payload
        is how the history knows it."""
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
