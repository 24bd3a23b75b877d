"""Strategies give clients that MQTT allows, configurations and schedules that shrink to what a person would write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from orderlab.properties.contracts.session.strategies import allowed_clients, ordinary_clients
from orderlab.sim.systems.catalogue import settings_of
from tests.laboratory.schedules import (
    ANYWHERE,
    ROUND_MS,
    SMALLEST,
    TICKS_MS,
    WAITING,
    Strike,
    configurations,
    moments_ms,
    schedules,
    ticks_ms,
    written,
)

QUICK = settings(max_examples=500, database=None, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("strategy", "condition", "simplest"),
    [
        (ordinary_clients, lambda client: True, b"c"),
        (moments_ms(80), lambda ms: True, ROUND_MS),
        (moments_ms(80), lambda ms: ms > 41, 50),
        (moments_ms(80), lambda ms: ms % 10 == 9 and ms > 30, 39),
        (schedules(("redis-stall", "lost-puback")), lambda faults: len(faults) > 1, None),
    ],
)
def test_it_shrinks_to_what_a_person_would_write(
    strategy: st.SearchStrategy[Any], condition: Any, simplest: Any
) -> None:
    found = find(strategy, condition, settings=QUICK)
    if simplest is not None:
        assert found == simplest
    else:
        assert found == (Strike(ROUND_MS, "redis-stall", 0),) * 2
        assert written(found) == "redis-stall@0.01:0 redis-stall@0.01:0"


@QUICK
@given(allowed_clients)
def test_clients_are_allowed(client: bytes) -> None:
    assert "\x00" not in client.decode()


@QUICK
@given(configurations)
def test_every_configuration_is_one_that_the_system_takes(drawn: dict[str, Any]) -> None:
    settings_of("tbmq-p2p", drawn)


@QUICK
@given(moments_ms(80))
def test_moments_are_round_or_those_of_a_flush_or_1_ms_beside_them(ms: int) -> None:
    assert 1 <= ms <= 80
    assert any(abs(ms - round(ms / unit) * unit) <= 1 for unit in (ROUND_MS, *TICKS_MS))


def test_a_schedule_has_a_choice_of_moments() -> None:
    assert ticks_ms(SMALLEST) == ticks_ms(WAITING) == TICKS_MS
    for wanted in (7, 9, 10, 11, 12, 29, 31, 79, 80):
        assert find(moments_ms(80), lambda ms, wanted=wanted: ms == wanted, settings=QUICK) == wanted


def test_faults_that_strike_anywhere_take_in_leader_changes() -> None:
    assert "kafka-leader-change" in ANYWHERE
