"""Each filter of a delivery stops what it is there for, and lets its nearest neighbour pass."""

from dataclasses import replace

import numpy as np
import pytest

from orderlab.sim.mqtt.broker import filters
from orderlab.sim.mqtt.broker.filters import FilterContext, Origin
from orderlab.sim.mqtt.connections import ConnectionTable, InflightWindows, ReplayFilter

PUSHED = np.array([(10, 0, 1, 5), (11, 1, 1, 5)], np.int64)
"""Message 10 for subscriber 0, and message 11 for subscriber 1."""
BACKLOG = Origin(is_backlog=True)


@pytest.fixture
def context():
    replayed = ReplayFilter(has_tokens=True)
    return FilterContext(
        broker=0,
        broker_of=np.zeros(2, np.int64),
        table=ConnectionTable.all_connected(2, may_end=True),
        replayed=replayed,
        windows=InflightWindows(65_535),
        refuses_closed=True,
        pushes_early=True,
        has_unstored=True,
        on_late=lambda late: None,
        write_unstored=lambda deliveries: None,
    )


def messages(deliveries):
    return deliveries[:, 0].tolist()


def passed(filtered, context, origin=Origin(), deliveries=PUSHED):  # noqa: B008
    return messages(filtered(context, deliveries, origin))


def test_all_pass_where_nothing_is_wrong(context):
    for filtered in filters.FILTERS:
        assert passed(filtered, context) == [10, 11], filtered.__name__


def test_what_was_routed_for_another_session_stops_where_the_store_would_refuse_it(context):
    context.table.session_number[0] = 2
    came_along = Origin(sessions=np.array([1, 1]))
    assert passed(filters.of_routed_session, context, came_along) == [11]
    assert passed(filters.of_routed_session, context, Origin(sessions=np.array([0, 1]))) == [10, 11]
    assert passed(filters.of_routed_session, replace(context, refuses_closed=False), came_along) == [10, 11]
    assert context.table.sessions_of(PUSHED).tolist() == [1, 1]


def test_only_those_who_are_connected_here_are_sent_to(context):
    context.table.connected[0] = False
    assert passed(filters.connected_here, context) == [11]
    context.broker_of[1] = 1
    assert passed(filters.connected_here, context) == []


def test_nothing_goes_out_while_the_store_has_the_old_session(context):
    context.table.beginning.add(1)
    assert passed(filters.of_begun_session, context) == [10]


def test_what_waits_for_a_session_that_is_over_stops_but_not_a_backlog(context):
    context.table.note_queued([10, 11], [0, 1], [1, 1])
    context.table.session_number[1] = 2
    assert passed(filters.of_present_session, context) == [10]
    assert passed(filters.of_present_session, context, BACKLOG) == [10, 11]
    assert passed(filters.of_present_session, replace(context, refuses_closed=False)) == [10, 11]


def test_what_was_read_from_the_store_does_not_go_twice(context):
    context.replayed.note(0, [(10, 1, 5, False)])
    assert passed(filters.not_replayed, context) == [11]
    assert passed(filters.not_replayed, context, BACKLOG) == [10, 11]
    assert passed(filters.not_replayed, context, Origin(is_pushed=False)) == [10, 11]


def test_what_is_new_waits_for_a_backlog(context):
    context.table.fetching.add(0)
    assert passed(filters.behind_backlog, context) == [11]
    assert messages(np.concatenate(context.table.held_back[0])) == [10]
    assert passed(filters.behind_backlog, context, BACKLOG) == [10, 11]


def test_what_was_pushed_behind_newer_messages_is_asked_about(context):
    late = []
    context = replace(context, on_late=lambda deliveries: late.extend(messages(deliveries)))
    newer = np.array([(12, 0, 2, 6)], np.int64)
    assert passed(filters.in_sequence, context, deliveries=newer) == [12]
    assert passed(filters.in_sequence, context) == [11]
    assert late == [10]
    assert passed(filters.in_sequence, replace(context, pushes_early=False)) == [10, 11]


def test_what_came_with_a_late_push_waits_for_what_the_store_is_asked(context):
    context = replace(context, on_late=lambda late: context.table.fetching.update(late[:, 1].tolist()))
    assert passed(filters.in_sequence, context, deliveries=np.array([(12, 0, 2, 6), (10, 0, 1, 5)], np.int64)) == []
    assert messages(np.concatenate(context.table.held_back[0])) == [12]


def test_what_has_no_packet_identifier_is_written_at_once(context):
    written = []
    context = replace(context, write_unstored=lambda deliveries: written.extend(messages(deliveries)))
    mixed = np.array([(10, 0, -1, 0), (11, 1, 1, 5)], np.int64)
    assert passed(filters.with_packet_id, context, deliveries=mixed) == [11]
    assert written == [10]


def test_what_exceeds_the_receive_maximum_waits(context):
    context = replace(context, windows=InflightWindows(1))
    assert passed(filters.within_window, context, deliveries=np.array([(10, 0, 1, 5), (12, 0, 2, 6)])) == [10]
    assert context.windows.waiting(0) == {(12, 2)}
