"""Shares of QoS: who gets which, what a delivery has, what is refused."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.clients import QosLevels, draw_levels, parse_shares, where


def test_shares_are_met_to_within_a_client_and_the_seed_decides_who():
    drawn = [draw_levels((0.2, 0.5, 0.3), 101, RandomStreams(seed), "x") for seed in (1, 1, 2)]
    assert np.abs(np.bincount(drawn[0]) - 101 * np.array([0.2, 0.5, 0.3])).max() < 1
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()
    assert draw_levels((0, 0, 1.0), 5, RandomStreams(1), "x") == 2


def test_a_delivery_has_the_lower_qos_of_the_two():
    published, granted = np.array([0, 1, 2, 2]), np.array([2, 2, 1, 2])
    levels, each = QosLevels(published, granted), np.arange(4)
    assert levels.sole is None
    assert levels.of_deliveries(each, each).tolist() == [0, 1, 1, 2]
    assert QosLevels(published, granted, "granted").of_deliveries(each, each).tolist() == [2, 2, 1, 2]
    assert QosLevels(published, granted, "published").of_deliveries(each, each).tolist() == [0, 1, 2, 2]
    assert QosLevels(2, 1).sole is None
    assert QosLevels(2, 1).of_deliveries(each, each).tolist() == [1, 1, 1, 1]
    assert QosLevels.all_at(1).of_deliveries(each, each) == QosLevels.all_at(1).sole == 1


def test_where_takes_one_answer_or_one_for_each():
    values = np.arange(3)
    assert where(True, values) is values
    assert len(where(False, values)) == 0
    assert where(values > 1, values).tolist() == [2]


@pytest.mark.parametrize("text", ["1", "3=1", "1=x", "1=0.5", "0=0.6 1=0.6", "0=-0.5 1=1.5", "1=nan"])
def test_shares_that_make_no_sense_are_refused(text):
    with pytest.raises(InputError, match="publish_qos"):
        parse_shares("publish_qos", text)
    assert parse_shares("publish_qos", "0=0.25 2=0.75") == (0.25, 0.0, 0.75)
