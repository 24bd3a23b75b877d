"""On and off times: what arrives is what was sent, each once and in order, however the ticks are cut."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.clients import BurstSchedule, Clients, Schedule

PATTERNS = ("regular", "exponential", "together")


def schedule(pattern, count=30, on_us=50_000, off_us=70_000, rate=200.0, until_us=1_000_000, seed=1):
    clients = Clients.draw("p", count, 2, RandomStreams(seed), 100, 400, 0.5)
    return BurstSchedule(clients, rate, RandomStreams(seed), on_us, off_us, pattern, until_us)


def arrived(made, ticks):
    found = []
    for broker in (0, 1):
        arrivals = made.arrivals(broker)
        found += [arrivals.until(tick) for tick in ticks]
    messages, instants = (np.concatenate(column) for column in zip(*found, strict=True))
    return messages, instants


@pytest.mark.parametrize("pattern", PATTERNS)
def test_everything_arrives_once_its_latency_after_it_was_sent(pattern):
    made = schedule(pattern)
    messages, instants = arrived(made, range(500, 1_200_000, 777))
    assert len(set(messages.tolist())) == len(messages) > 1000
    publisher, sequence = messages % made.count, messages // made.count
    assert (instants == made.published_us(messages) + made.publishers.latency_us[publisher]).all()
    for one in range(made.count):
        assert sorted(sequence[publisher == one].tolist()) == list(range(int((publisher == one).sum())))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_ticks_do_not_matter(pattern):
    coarse, fine = (arrived(schedule(pattern), range(step, 900_001, step)) for step in (300_000, 500))
    assert (np.sort(coarse[0]) == np.sort(fine[0])).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_publishers_are_on_for_their_share_and_never_faster_than_their_rate(pattern):
    made = schedule(pattern, count=400, until_us=2_000_000)
    messages, _ = arrived(made, [2_000_000])
    instants = made.published_us(np.sort(messages))
    assert (instants >= 0).all()
    steady = 400 * 2.0 * 200.0
    assert 0.36 < len(messages) / steady < 0.5  # on for 50 of 120 ms, and a message at the begin of every burst
    for one in range(20):
        of_one = np.sort(made.published_us(messages[messages % made.count == one]))
        assert (np.diff(of_one) >= made.interval_us).all()


def test_together_means_at_the_same_time_and_regular_does_not():
    def busiest(pattern):
        made = schedule(pattern, count=400, on_us=20_000, off_us=180_000)
        messages, _ = arrived(made, [900_000])
        in_bins = np.bincount(made.published_us(messages) // 20_000)
        return in_bins.max() / in_bins.mean()

    assert busiest("together") > 4 * busiest("regular")


def test_a_schedule_that_never_stops_is_the_plain_one():
    clients = Clients.draw("p", 10, 1, RandomStreams(3), 100, 400, 0.5)
    plain = Schedule(clients, 100.0, RandomStreams(3))
    messages, instants = plain.arrivals(0).until(500_000)
    assert (instants == plain.published_us(messages) + clients.latency_us[messages % 10]).all()
    assert (np.bincount(messages % 10) >= 49).all()


def test_more_bursts_than_are_kept_are_refused():
    with pytest.raises(InputError, match="publish_on_s"):
        schedule("regular", on_us=1000, off_us=1000, until_us=10**12)
