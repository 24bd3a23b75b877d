"""The records of `msg.persisted`: a message, the subscriber that it was routed to, and the session that it was routed for.

All in one integer, so that Kafka carries nothing else: the session's number less one, then message times subscribers plus
subscriber. 10^9 messages of two million subscribers fit, and 4096 sessions of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.clients.population import Ints

_SHIFT = 51
SESSIONS_MAX = 1 << 12
"""Of one subscriber."""


def copies(messages: Ints, subscribers: Ints, sessions: Ints, population: int) -> list[int]:
    """Records for ``messages``, each routed to a subscriber for its session. ``population``: subscribers in all. Raises
    InputError for a subscriber that begins more sessions than there are numbers."""
    if len(sessions) and int(sessions.max()) > SESSIONS_MAX:
        raise InputError(f"a subscriber began more than {SESSIONS_MAX} sessions; set online_s or offline_s higher")
    records: list[int] = ((sessions - 1 << _SHIFT) + messages * population + subscribers).tolist()
    return records


def read_copies(records: Sequence[int], population: int) -> tuple[Ints, Ints, Ints]:
    """(messages, subscribers, sessions) of records."""
    packed = np.array(records, np.int64)
    messages, subscribers = np.divmod(packed & (1 << _SHIFT) - 1, population)
    return messages, subscribers, (packed >> _SHIFT) + 1
