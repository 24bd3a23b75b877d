"""Who gets a message on each topic: the subscription trie, asked once per topic and kept until a subscription changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.rules.subscription_trie import SubscriptionTrie

_UNKNOWN, _SEVERAL = -1, -2


class Matches:
    """The subscribers of each topic, as an array where a topic has exactly one. Shared by the brokers of a system."""

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
