"""Which QoS publishers publish with and subscriptions are granted. A delivery has the lower of the two (MQTT 5.0, 3.8.4).

Most systems have one QoS for everything: then each answer is that number, and nothing is looked up per message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.clients import Ints

QOS_LEVELS = 3


@dataclass(frozen=True, slots=True)
class QosLevels:
    """``published``: per publisher, or of all. ``granted``: per subscriber, or to all."""

    published: Ints | int
    granted: Ints | int

    @classmethod
    def all_at(cls, qos: int) -> QosLevels:
        """The levels of a system with one QoS everywhere."""
        return cls(qos, qos)

    @property
    def sole(self) -> int | None:
        """The QoS of every message on all its way, if there is one."""
        published, granted = self.published, self.granted
        return published if isinstance(published, int) and isinstance(granted, int) and published == granted else None

    def of_publishers(self, publishers: Ints) -> Any:
        """QoS of what they publish: one number, or one for each."""
        return self.published if isinstance(self.published, int) else self.published[publishers]

    def granted_to(self, subscribers: Ints) -> Any:
        """QoS that their subscriptions are granted: one number, or one for each."""
        return self.granted if isinstance(self.granted, int) else self.granted[subscribers]

    def of_deliveries(self, publishers: Ints, subscribers: Ints) -> Any:
        """QoS of deliveries from publishers to subscribers: one number, or one for each."""
        sole = self.sole
        if sole is not None:
            return sole
        lower = np.minimum(self.of_publishers(publishers), self.granted_to(subscribers))
        return np.broadcast_to(lower, len(publishers))


def where(is_so: bool | npt.NDArray[np.bool_], values: Ints) -> Ints:
    """Those of ``values`` for which it is so; ``is_so`` may be one answer for all."""
    if isinstance(is_so, np.ndarray) and is_so.ndim:
        return values[is_so]
    return values if is_so else values[:0]


def parse_shares(setting: str, text: str) -> tuple[float, ...]:
    """The shares of QoS 0, 1 and 2 that ``0=0.2 1=0.5 2=0.3`` stands for. Raises InputError."""
    shares = [0.0] * QOS_LEVELS
    for word in text.split():
        level, equals, share = word.partition("=")
        if not equals or level not in ("0", "1", "2"):
            raise InputError(f'{setting}: {word}: not the share of a QoS; write "0=0.2 1=0.5 2=0.3"')
        try:
            shares[int(level)] += float(share)
        except ValueError:
            raise InputError(f"{setting}: {word}: {share} is not a number; a share lies between 0 and 1") from None
    if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-9:
        raise InputError(f"{setting}: {text}: the shares of QoS 0, 1 and 2 lie between 0 and 1 and add up to 1")
    return tuple(shares)


def draw_levels(shares: tuple[float, ...], count: int, streams: RandomStreams, name: str) -> Ints | int:
    """A QoS for each of ``count`` clients, in these shares to within a client, who gets which at random."""
    bounds = np.rint(np.cumsum(shares) * count).astype(np.int64)
    numbers = np.diff(bounds, prepend=0)
    if (numbers == count).any():
        return int(np.argmax(numbers))
    levels: Ints = streams.vector_stream(f"qos/{name}").permutation(np.repeat(np.arange(QOS_LEVELS), numbers))
    return levels
