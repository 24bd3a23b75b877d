"""Saves of one session wait for one another; what stands behind a failed one falls with it."""

from orderlab.sim.mqtt.broker.save_stage import SerialQueue


def test_a_session_has_one_save_in_flight_and_the_others_do_not_wait_for_it():
    turns = SerialQueue([7, 8, 7, 7, 8])
    assert turns.enter(range(5)) == [0, 1]
    assert turns.over(0, has_failed=False) == ([2], [])
    assert turns.over(1, has_failed=False) == ([4], [])
    assert turns.over(2, has_failed=False) == ([3], [])
    assert turns.over(3, has_failed=False) == turns.over(4, has_failed=False) == ([], [])


def test_those_behind_a_failed_one_fail_with_it_and_come_again_in_order():
    turns = SerialQueue([7, 7, 7])
    turns.enter([0, 1, 2])
    assert turns.over(0, has_failed=True) == ([], [1, 2])
    assert turns.enter([0, 1, 2]) == [0]
    assert turns.over(0, has_failed=False) == ([1], [])


def test_a_place_that_comes_later_waits_for_what_is_in_flight():
    turns = SerialQueue([7, 8, 7])
    assert turns.enter([0, 1]) == [0, 1]
    assert turns.enter([2]) == []
    assert turns.over(0, has_failed=False) == ([2], [])
