"""What was read from the store is not sent again, and nothing that had left it overtakes."""

import numpy as np
import pytest

from orderlab.sim.mqtt.connections import ReplayFilter

PUSHED = np.array([(10, 7, 1, 1), (11, 7, 2, 2), (12, 7, 3, 3), (13, 7, 4, 4)], np.int64)
FOUND = [(11, 2, 2, False), (12, 3, 3, False)]


def messages(deliveries):
    return deliveries[:, 0].tolist()


@pytest.mark.parametrize(("has_tokens", "kept"), [(True, [13]), (False, [10, 13])])
def test_tokens_tell_what_left_the_queue_before_it_was_read(has_tokens, kept):
    read = ReplayFilter(has_tokens)
    assert messages(read.beyond(PUSHED)) == [10, 11, 12, 13]
    read.note(7, FOUND)
    assert messages(read.beyond(PUSHED)) == kept


@pytest.mark.parametrize("has_tokens", [True, False])
def test_what_was_read_counts_for_its_connection_only(has_tokens):
    read = ReplayFilter(has_tokens)
    read.note(8, FOUND)
    assert messages(read.beyond(PUSHED)) == [10, 11, 12, 13]
    read.note(7, FOUND)
    read.forget(7)
    assert messages(read.beyond(PUSHED)) == [10, 11, 12, 13]


def test_a_queue_that_is_read_again_and_found_empty_forgets_nothing():
    read = ReplayFilter(has_tokens=True)
    read.note(7, FOUND)
    read.note(7, [])
    read.note(7, [(10, 1, 1, False)])
    assert messages(read.beyond(PUSHED)) == [13]


def test_a_pubrel_stands_for_a_message_that_was_received():
    read = ReplayFilter(has_tokens=True)
    read.note(7, [(-1, 3, 3, True)])
    assert messages(read.beyond(PUSHED)) == [13]


@pytest.mark.parametrize("has_tokens", [True, False])
def test_qos_0_passes_as_no_store_has_it(has_tokens):
    read = ReplayFilter(has_tokens)
    read.note(7, FOUND)
    unstored = np.array([(14, 7, -1, 0)], np.int64)
    assert messages(read.beyond(unstored)) == [14]


def test_what_the_store_says_it_saved_last_counts_as_read_though_the_queue_is_empty():
    read = ReplayFilter(has_tokens=True)
    read.note(7, [], newest=3)
    assert messages(read.beyond(PUSHED)) == [13]


def test_pushes_behind_newer_ones_are_told_apart():
    read = ReplayFilter(has_tokens=True)
    new, late = read.in_sequence(PUSHED[[1, 2]])
    assert (messages(new), messages(late)) == ([11, 12], [])
    new, late = read.in_sequence(PUSHED[[0, 3, 3]])
    assert (messages(new), messages(late)) == ([13], [10, 13])
    read.forget(7)
    assert messages(read.in_sequence(PUSHED)[0]) == [10, 11, 12, 13]


def test_a_session_that_is_read_after_pushes_was_read_up_to_them():
    read = ReplayFilter(has_tokens=True)
    read.in_sequence(PUSHED[[2]])
    assert messages(read.beyond(PUSHED)) == [10, 11, 12, 13]
    read.note(7, [])
    assert messages(read.beyond(PUSHED)) == [13]
