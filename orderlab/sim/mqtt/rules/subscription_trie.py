"""The subscription trie: who gets a topic, in time that grows with the levels, not with the subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from orderlab.sim.mqtt.rules.topics import check_topic_filter, split_shared

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
        """Everyone here, and of each group one member: the next in turn."""
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
    subscription (``$share/group/filter``) a message goes to one, in turn (MQTT-4.8.2-4)."""

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
        """Without wildcards there is one way down."""
        level: _Level[V] | None = self._root
        for name in names:
            if level is None:
                return ()
            level = level.children.get(name)
        return () if level is None else level.selected()


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter
