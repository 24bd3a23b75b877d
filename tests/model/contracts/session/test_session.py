"""The abstract session: lifetimes, actions and their guards, and every state of a small scope."""

from __future__ import annotations

import pytest

from orderlab.model.contracts.session.spec import (
    FOREVER_MS,
    Lifetime,
    Message,
    Scope,
    Session,
    SessionSystem,
    acknowledge,
    clear,
    expire,
    fetch,
    lifetime,
    next_packet_id,
    page,
    release,
    save,
)
from orderlab.model.explorer.exploration import explore
from orderlab.model.verdict import Outcome

FOREVER = Lifetime(FOREVER_MS, FOREVER_MS)


def saved(*labels: int, limit: int = 3, modulus: int = 4, state: Session | None = None) -> Session:
    state = state or Session()
    for label in labels:
        state = save(state, [Message(label, FOREVER, 2)], limit, state.epoch, 0, state.mark(0) + 1, modulus)
    return state


def labels(state: Session) -> list[int]:
    return [entry.label for entry in state.queue]


@pytest.mark.parametrize(
    ("interval_ms", "expected"),
    [
        (None, (7, 7)),
        (0, (0, 0)),
        (2000, (2000, 2000)),
        (1500, (1000, 2000)),
        (4_294_967_295_000, (4_294_967_295_000, 4_294_967_295_000)),
        (4_294_967_296_000, (0, FOREVER_MS)),
        (-1, (0, FOREVER_MS)),
        ("x", (0, FOREVER_MS)),
        (True, (0, FOREVER_MS)),
        (float("nan"), (0, FOREVER_MS)),
    ],
)
def test_a_lifetime_is_exact_where_mqtt_can_express_it(interval_ms: object, expected: tuple[int, int]) -> None:
    assert lifetime(interval_ms, 7) == expected


def test_without_a_default_a_message_without_an_interval_stays() -> None:
    assert lifetime(None, 0) == (FOREVER_MS, FOREVER_MS)


def test_identifiers_go_round_without_zero() -> None:
    assert [next_packet_id(one) for one in (0, 1, 65534, 65535)] == [1, 2, 65535, 1]


def test_a_save_trims_the_oldest_and_skips_live_identifiers() -> None:
    state = saved(1, 2, 3, 4)
    assert labels(state) == [2, 3, 4]
    state = saved(5, state=acknowledge(acknowledge(state, 3), 4))
    assert [(entry.label, entry.packet_id) for entry in state.queue] == [(2, 2), (5, 1)]
    state = saved(6, state=state)
    assert [(entry.label, entry.packet_id) for entry in state.queue] == [(2, 2), (5, 1), (6, 3)]


@pytest.mark.parametrize("limit", [0, -1, 5])
def test_a_limit_beyond_the_identifiers_is_refused(limit: int) -> None:
    state = saved(1)
    assert save(state, [Message(2, FOREVER)], limit, 0, 0, 2, modulus=4) == state


def test_a_batch_that_was_accepted_and_a_record_of_a_cleared_session_change_nothing() -> None:
    state = saved(1)
    assert save(state, [Message(2, FOREVER)], 3, 0, 0, 1) == state
    cleared = clear(state, 1)
    assert save(cleared, [Message(2, FOREVER)], 3, 0, 1, 1) == cleared
    assert labels(save(cleared, [Message(2, FOREVER)], 3, 1, 1, 1)) == [2]


def test_a_message_that_is_dead_on_arrival_is_not_kept() -> None:
    assert saved(1).queue == save(saved(1), [Message(2, Lifetime(0, 0))], 3, 0, 0, 2).queue


def test_pages_go_on_behind_the_last_message() -> None:
    state = saved(1, 2, 3)
    assert [entry.label for entry in page(state, 2)] == [1, 2]
    assert [entry.label for entry in page(state, 2, after=2)] == [3]
    assert [entry.sent for entry in fetch(state, 2).queue] == [True, True, False]


def test_release_keeps_everything_but_the_kind() -> None:
    state = saved(1, 2)
    released = release(state, 1)
    assert released.queue == (state.queue[0]._replace(kind="PUBREL"), state.queue[1])
    assert release(state, 9) == state


def test_at_its_deadline_a_message_is_gone() -> None:
    state = save(Session(), [Message(1, Lifetime(1000, 1000))], 3, 0, 0, 1)
    assert labels(expire(state, 999)) == [1]
    assert labels(expire(state, 1000)) == []


def test_every_state_of_a_small_scope_keeps_the_invariants() -> None:
    found = explore(SessionSystem())
    assert {verdict.law: verdict.outcome for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS} == {}
    assert (found.distinct_states, found.transitions) == (5898, 31083)


def test_the_explorer_sees_a_limit_that_is_not_kept() -> None:
    class Careless(SessionSystem):
        def laws(self):  # type: ignore[no-untyped-def]
            return SessionSystem(Scope(limit=1)).laws()

    outcomes = {verdict.law: verdict.outcome for verdict in explore(Careless()).verdicts}
    assert outcomes["legal-trim"] is Outcome.VIOLATED
