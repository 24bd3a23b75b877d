"""The subscription trie: who gets a topic, in time that grows with the levels, not with the subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from sim.mqtt.topics import check_topic_filter

V = TypeVar("V")


class _Level(Generic[V]):
    __slots__ = ("children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Level[V]] = {}
        self.here: dict[str, V] = {}


class SubscriptionTrie(Generic[V]):
    """Filters to values, by subscriber. One subscriber holds at most one value per filter (MQTT-3.8.4-3)."""

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
        level = self._root
        for name in topic_filter.split("/"):
            level = level.children.setdefault(name, _Level())
        is_new = subscriber not in level.here
        level.here[subscriber] = value
        self.version += 1
        self._size += is_new
        self._wild += is_new and _has_wildcard(topic_filter)
        return is_new

    def unsubscribe(self, topic_filter: str, subscriber: str) -> bool:
        """Remove a subscription, and every level that nothing needs any more. True if it was there."""
        path: list[tuple[_Level[V], str]] = []
        level = self._root
        for name in topic_filter.split("/"):
            if name not in level.children:
                return False
            path.append((level, name))
            level = level.children[name]
        if level.here.pop(subscriber, None) is None:
            return False
        self._size -= 1
        self._wild -= _has_wildcard(topic_filter)
        self.version += 1
        for parent, name in reversed(path):
            child = parent.children[name]
            if child.here or child.children:
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
                yield from level.children["#"].here.items()
            if depth == len(names):
                yield from level.here.items()
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
        return () if level is None else level.here.items()


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter
