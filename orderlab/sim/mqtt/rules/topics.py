"""Topic names and topic filters (MQTT 5.0, 4.7): what is valid, what matches, and who gets a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.clients import Ints

LONGEST = 65535
"""Bytes of UTF-8 (1.5.4)."""


def check_topic_name(topic: str) -> None:
    """Raise InputError unless ``topic`` may be published to (4.7.3, MQTT-3.3.2-2)."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise InputError(f'topic {topic!r}: a topic name has no wildcard (MQTT-3.3.2-2); take out "+" and "#"')


def check_topic_filter(topic_filter: str) -> None:
    """Raise InputError unless ``topic_filter`` may be subscribed to (4.7.1, 4.8.2): ``#`` stands last, wildcards alone."""
    _check_text(topic_filter, "filter")
    split_shared(topic_filter)
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise InputError(f'filter {topic_filter!r}: "#" must be the whole last level (MQTT-4.7.1-1)')
        if "+" in level and level != "+":
            raise InputError(f'filter {topic_filter!r}: "+" must be a whole level (MQTT-4.7.1-2)')


def split_shared(topic_filter: str) -> tuple[str | None, str]:
    """``$share/group/filter`` as (group, filter); any other filter as (None, filter) (4.8.2)."""
    if not topic_filter.startswith("$share/"):
        return None, topic_filter
    _, group, *rest = topic_filter.split("/", 2)
    if not group or not rest or not rest[0] or "+" in group or "#" in group:
        raise InputError(f"filter {topic_filter!r}: write $share/GROUP/FILTER, GROUP without wildcard (MQTT-4.8.2-1)")
    return group, rest[0]


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


def _check_text(text: str, what: str) -> None:
    if not text:
        raise InputError(f"{what} '': at least one character is needed (MQTT-4.7.3-1)")
    if "\0" in text:
        raise InputError(f"{what} {text!r}: U+0000 is not allowed (MQTT-4.7.3-2)")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"{what} {text!r}: not well-formed UTF-8 (MQTT-1.5.4-1)") from None
    if size > LONGEST:
        raise InputError(f"{what} of {size} bytes: at most {LONGEST} (MQTT-4.7.3-3)")


V = TypeVar("V")


class _Level(Generic[V]):
    __slots__ = ("children", "groups", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Level[V]] = {}
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
    """Filters to values, by subscriber. One subscriber holds at most one value per filter (MQTT-3.8.4-3). Of those that share a
    subscription (``$share/group/filter``) a message goes to one, in turn (MQTT-4.8.2-4).

    Who gets a topic is found in time that grows with the levels, not with the subscriptions.
    """

    def __init__(self) -> None:
        self._root: _Level[V] = _Level()
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
            level = level.children.setdefault(name, _Level())
        members = level.members(group)
        is_new = subscriber not in members
        members[subscriber] = value
        self.version += 1
        self._size += is_new
        self._wild += is_new and _has_wildcard(topic_filter)
        return is_new

    def unsubscribe(self, topic_filter: str, subscriber: str) -> bool:
        """Remove a subscription, and every level that nothing needs any more. True if it was there."""
        path: list[tuple[_Level[V], str]] = []
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
        level: _Level[V] | None = self._root
        for name in names:
            if level is None:
                return ()
            level = level.children.get(name)
        return () if level is None else level.selected()


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


_UNKNOWN, _SEVERAL = -1, -2


class Matches:
    """The subscribers of each topic, as an array where a topic has exactly one: the trie is asked once per topic, and its answer kept until a
    subscription changes. Shared by the brokers of a system."""

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
        if (sole == _UNKNOWN).any():
            for topic in topics[sole == _UNKNOWN].tolist():
                found = [subscriber for _, subscriber in self.trie.matching(self.topics[topic].decode())]
                self._sole[topic] = found[0] if len(found) == 1 else _SEVERAL
                if len(found) != 1:
                    self._several[topic] = found
            sole = self._sole[topics]
        if (sole != _SEVERAL).all():
            return np.arange(len(topics)), sole
        pairs = [
            (place, subscriber)
            for place, (one, topic) in enumerate(zip(sole.tolist(), topics.tolist(), strict=True))
            for subscriber in ([one] if one != _SEVERAL else self._several[topic])
        ]
        places, subscribers = np.array(pairs, np.int64).reshape(-1, 2).T
        return places, subscribers
