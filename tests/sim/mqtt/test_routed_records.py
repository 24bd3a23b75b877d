"""Records of `msg.persisted`: what was packed comes out, to the last message, subscriber and session that fit."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.broker.routing import SESSIONS_MAX, RoutedRecords

POPULATION = 2_000_000


def packed(*rows):
    messages, subscribers, sessions = np.array(rows, np.int64).T
    return RoutedRecords(messages, subscribers, sessions).packed(POPULATION)


def test_what_is_packed_is_read():
    rows = [(0, 0, 1), (10**9 - 1, POPULATION - 1, SESSIONS_MAX), (7, 3, 2), (10**9 - 1, 0, 1)]
    assert [
        tuple(int(word) for word in row) for row in zip(*RoutedRecords.unpack(packed(*rows), POPULATION), strict=True)
    ] == rows


def test_the_first_session_costs_no_bits():
    assert packed((7, 3, 1)) == [7 * POPULATION + 3]


def test_one_session_too_many_is_refused():
    with pytest.raises(InputError, match="more than 4096 sessions"):
        packed((0, 0, SESSIONS_MAX + 1))
