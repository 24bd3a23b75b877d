"""Who is owed what: subscriptions in force, and the MQTT rule by which a topic filter matches a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from orderlab.model.history.events import EventBatch, EventKind, Names

EPOCH_KINDS = np.array(
    [kind in range(EventKind.CLEAR, EventKind.CUT + 1) or kind == EventKind.FAULT for kind in EventKind], dtype=np.bool_
)
"""Kinds that open a new epoch in the delivery pass."""


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter matches a topic (MQTT 5.0, 4.7.1 and 4.7.2: no leading wildcard for `$` topics)."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for depth, level in enumerate(wanted):
        if level == "#":
            return True
        if depth >= len(levels) or level not in ("+", levels[depth]):
            return False
    return len(wanted) == len(levels)


@dataclass(frozen=True)
class Subscription:
    """In force since an epoch of the delivery pass, with the granted QoS."""

    epoch: int
    qos: int


@dataclass
class Subscriptions:
    """The subscriptions in force after the rows seen so far: subscriber → filter → subscription, by code."""

    in_force: dict[int, dict[int, Subscription]] = field(default_factory=dict)
    seen: int = 0
    ever: dict[int, set[int]] = field(default_factory=dict)
    """Subscriber → filters, those that have been given up included."""
    _epoch: int = 0

    def observe(self, batch: EventBatch) -> None:
        """Follow subscribe, unsubscribe and clear rows."""
        changes = EPOCH_KINDS[batch.kind]
        if not changes.any():
            return
        rows = np.flatnonzero(changes)
        for order, row in enumerate(rows.tolist(), 1):
            kind, subscriber = int(batch.kind[row]), int(batch.subscriber[row])
            if kind == EventKind.SUBSCRIBE:
                self.seen += 1
                qos = int(batch.qos[row])
                now = Subscription(self._epoch + order, 2 if qos < 0 else qos)
                mine = self.in_force.setdefault(subscriber, {})
                self.ever.setdefault(subscriber, set()).add(int(batch.topic[row]))
                before = mine.get(int(batch.topic[row]))
                if before is not None and before.qos > 0:  # else what was published at QoS 0 would be owed
                    now = Subscription(before.epoch, now.qos)
                mine[int(batch.topic[row])] = now
            elif kind == EventKind.UNSUBSCRIBE:
                self.in_force.get(subscriber, {}).pop(int(batch.topic[row]), None)
            elif kind == EventKind.CLEAR:
                self.in_force.pop(subscriber, None)
        self._epoch += len(rows)

    def matching(self, topics: set[int], names: Names) -> list[tuple[int, int, Subscription]]:
        """(subscriber, topic, subscription) for each match at QoS 1 or 2; of overlapping filters the highest QoS and oldest
        epoch.
        """
        found: dict[tuple[int, int], Subscription] = {}
        for subscriber, topic, subscription in self._each_match(topics, names):
            if subscription.qos == 0:
                continue
            other = found.get((subscriber, topic), subscription)
            found[subscriber, topic] = Subscription(
                min(other.epoch, subscription.epoch), max(other.qos, subscription.qos)
            )
        return [(subscriber, topic, subscription) for (subscriber, topic), subscription in found.items()]

    def overlapping(self, topics: set[int], names: Names) -> int:
        """How many topics match several filters of one subscriber: a server may send a copy for each (3.3.4)."""
        times = Counter((subscriber, topic) for subscriber, topic, _ in self._each_match(topics, names))
        return sum(count > 1 for count in times.values())

    def shared(self, names: Names) -> int:
        """How many shared subscriptions ($share/group/filter) are in force."""
        filters = (names.topics.label(code) for mine in self.in_force.values() for code in mine)
        return sum(str(text).startswith("$share/") for text in filters)

    def ever_matched(self, topics: set[int], names: Names) -> set[tuple[int, int]]:
        """(subscriber, topic) where the subscriber has had a matching subscription, a shared one included."""
        matched: dict[int, list[int]] = {}
        found = set()
        for subscriber, filters in self.ever.items():
            for topic_filter in filters:
                if topic_filter not in matched:
                    matched[topic_filter] = _matched(topic_filter, topics, names, unshared=True)
                found |= {(subscriber, topic) for topic in matched[topic_filter]}
        return found

    def _each_match(self, topics: set[int], names: Names) -> Iterator[tuple[int, int, Subscription]]:
        by_filter: dict[int, list[int]] = {}
        for subscriber, mine in self.in_force.items():
            for topic_filter, subscription in mine.items():
                if topic_filter not in by_filter:
                    by_filter[topic_filter] = _matched(topic_filter, topics, names)
                for topic in by_filter[topic_filter]:
                    yield subscriber, topic, subscription


def _matched(topic_filter: int, topics: set[int], names: Names, unshared: bool = False) -> list[int]:
    pattern = names.topics.label(topic_filter)
    if unshared and isinstance(pattern, str) and pattern.startswith("$share/"):
        pattern = pattern.split("/", 2)[-1]
        return [topic for topic in sorted(topics) if matches(pattern, str(names.topics.label(topic)))]
    if isinstance(pattern, int) or not ("+" in pattern or "#" in pattern):
        return [topic_filter] if topic_filter in topics else []
    return [topic for topic in sorted(topics) if matches(pattern, str(names.topics.label(topic)))]
