"""Which filters with wildcards match which topics: links that compiled code follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from orderlab.model.checkers.delivery.missing import matches, unshared
from orderlab.model.history.events import (
    DELIVER,
    SUBSCRIBE,
    UNSUBSCRIBE,
    EventBatch,
    IntArray,
    Names,
)

AS_TOPIC = 1 << 30
"""Added to the code of a topic that is spelt as a shared subscription."""


class Wildcards:
    """Which topics that clients receive are matched by their filters with wildcards, and by shared subscriptions."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._read = 0
        self._patterns: dict[int, str] = {}
        self._shared: list[int] = []
        self._filters: dict[int, list[int]] = {}
        self._topics: dict[int, set[int]] = {}

    def new_links(self, batch: EventBatch) -> IntArray:
        """(client, topic, filter) of those that the rows are the first to have need of. O(filters and topics that are
        new)."""
        self._read_names()
        if not self._patterns:
            return np.zeros((0, 3), np.int64)
        links: list[tuple[int, int, int]] = []
        for client, topic_filter in self._pairs(batch, SUBSCRIBE, np.array(list(self._patterns))):
            mine = self._filters.setdefault(client, [])
            if topic_filter not in mine:
                mine.append(topic_filter)
                links += [
                    (client, topic, topic_filter)
                    for topic in self._topics.get(client, ())
                    if self.matches(topic_filter, topic)
                ]
        for client, topic in self._pairs(batch, DELIVER, None):
            known = self._topics.setdefault(client, set())
            if topic not in known:
                known.add(topic)
                links += [
                    (client, topic, topic_filter)
                    for topic_filter in self._filters.get(client, ())
                    if self.matches(topic_filter, topic)
                ]
        return np.array(links, np.int64).reshape(-1, 3)

    def told_apart(self, batch: EventBatch) -> EventBatch:
        """The rows, where a topic that begins with ``$share/`` has another code than the shared subscription that is
        spelt alike, which does not match it."""
        self._read_names()
        if not self._shared:
            return batch
        is_topic = np.isin(batch.topic, self._shared) & ~np.isin(batch.kind, (SUBSCRIBE, UNSUBSCRIBE))
        return (
            replace(batch, topic=np.where(is_topic, batch.topic | AS_TOPIC, batch.topic)) if is_topic.any() else batch
        )

    def matches(self, topic_filter: int, topic: int) -> bool:
        """Whether a filter matches a topic, by code."""
        pattern = self._patterns.get(topic_filter)
        return (
            topic_filter == topic
            if pattern is None
            else matches(pattern, str(self._names.topics.label(topic & ~AS_TOPIC)))
        )

    def _read_names(self) -> None:
        names = self._names.topics.names
        new = names[self._read :]
        text = "\0".join(new)
        if "+" in text or "#" in text or "$share/" in text:
            for code, name in enumerate(new, self._read):
                if "+" in name or "#" in name or name.startswith("$share/"):
                    self._patterns[code] = str(unshared(name))
                if name.startswith("$share/"):
                    self._shared.append(code)
        self._read += len(new)

    @staticmethod
    def _pairs(batch: EventBatch, kind: int, codes: Any) -> list[tuple[int, int]]:
        """Each (client, code) of the rows of a kind, once, in the order of the codes."""
        rows = np.flatnonzero(batch.kind == kind)
        if codes is not None:
            rows = rows[np.isin(batch.topic[rows], codes)]
        pairs = np.unique(batch.subscriber[rows].astype(np.int64) << 32 | batch.topic[rows])
        return list(zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True))
