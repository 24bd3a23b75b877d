"""The search for the sustainable rate: on a queue whose ceiling is known, and on a small system."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.engine.clock import Station
from orderlab.sim.systems.catalogue import entry, settings_of
from orderlab.sim.systems.sustainable import ceiling_json, find_ceiling, growth, is_sustained, runs_of, sustainable_rate


@dataclass
class Trial:
    means_ms: np.ndarray
    measured_s: float = 1.0
    out_per_s: float = 0.0
    in_per_s: float = 0.0
    is_complete: bool = True


def queue(capacity_per_s, base_ms=5.0):
    """Runs of one server with Poisson arrivals, from empty."""

    def run(rate, times):
        stream = np.random.default_rng(1)
        arrivals = np.cumsum(stream.exponential(1e6 / rate, int(rate * times)))
        station = Station(1)
        done = np.array([station.serve(at, 1e6 / capacity_per_s) for at in arrivals])
        waits = (done - arrivals) / 1000 + base_ms
        means = np.array([part.mean() for part in np.array_split(waits, 20)])
        out = (done <= times * 1e6).sum() / times
        return Trial(means, float(times), out, rate), {"history_digest": f"{rate:.3f}"}

    return run


@pytest.mark.parametrize("capacity", [700.0, 5_000.0, 23_456.0])
@pytest.mark.parametrize("start", [300.0, 5_000.0, 30_000.0])
def test_the_ceiling_of_a_queue_is_its_capacity(capacity, start):
    ceiling = find_ceiling(queue(capacity), start, limit_ms=100.0, tolerance=0.02)
    assert ceiling.rate_per_s == pytest.approx(capacity, rel=0.06 if capacity > 1000 else 0.12)
    assert ceiling.rate_per_s < ceiling.overloaded_per_s <= ceiling.rate_per_s * 1.03
    assert not any(step.is_sustained and step.rate_per_s > capacity for step in ceiling.steps)


def test_the_runs_behind_the_ceiling_are_kept_in_their_order():
    ceiling = find_ceiling(queue(1000.0), 1000.0)
    assert ceiling.steps[0].rate_per_s == 1000.0
    assert ceiling.at.is_sustained
    assert ceiling.at.rate_per_s == max(step.rate_per_s for step in ceiling.steps if step.is_sustained)
    assert ceiling.overloaded_per_s == min(step.rate_per_s for step in ceiling.steps if not step.is_sustained)
    assert len(ceiling.steps) <= 8


def test_a_latency_that_grows_is_not_sustained_though_its_mean_is_low():
    growing = Trial(np.linspace(10.0, 30.0, 20))
    assert growth(growing)[0] == pytest.approx(21, rel=0.05)
    assert not is_sustained(growing, 100.0, growth(growing)[0])
    level = Trial(np.linspace(10.0, 14.0, 20))
    assert is_sustained(level, 100.0, growth(level)[0])


def test_a_system_that_settles_late_is_looked_at_for_longer():
    def settling(rate, times):
        at_s = (np.arange(20) + 0.5) * times / 20
        means = 30.0 * (1 - np.exp(-at_s / 0.2)) if rate < 1000 else 30.0 + 500 * at_s
        return Trial(means, float(times), rate, rate), {"history_digest": ""}

    assert find_ceiling(settling, 900.0, tolerance=0.2).rate_per_s > 800


def test_a_level_latency_above_the_limit_is_not_sustained_and_just_below_it_is():
    assert not is_sustained(Trial(np.full(20, 100.0)), 100.0, 0.0)
    assert is_sustained(Trial(np.full(20, 99.9)), 100.0, 0.0)
    assert not is_sustained(Trial(np.full(20, 50.0), is_complete=False), 100.0, 0.0)


def test_an_overloaded_run_that_delivered_nearly_nothing_does_not_make_the_search_creep():
    def choked(rate, times):
        is_over = rate > 1000
        means = np.full(0 if is_over else 20, 10.0)
        return Trial(means, float(times), 20.0 if is_over else rate, rate, not is_over), {
            "history_digest": "",
            "counts": {"published": 1, "delivered": 1},
        }

    ceiling = find_ceiling(choked, 3000.0)
    assert ceiling.rate_per_s == pytest.approx(1000, rel=0.03)
    assert len(ceiling.steps) < 30
    assert json.loads(json.dumps(ceiling_json(ceiling), allow_nan=False))["runs"][0]["mean_ms"] is None


def test_a_lower_limit_gives_a_lower_ceiling():
    def slow(rate, times):  # latency that rises with the load, without growing in time
        return Trial(np.full(20, rate / 10), float(times), rate, rate), {"history_digest": ""}

    assert find_ceiling(slow, 100.0, limit_ms=100.0).rate_per_s == pytest.approx(1000, rel=0.03)
    assert find_ceiling(slow, 100.0, limit_ms=50.0).rate_per_s == pytest.approx(500, rel=0.03)


def test_an_open_question_is_asked_for_longer():
    asked = []

    def noisy(rate, times):
        asked.append(times)
        means = 10.0 + np.random.default_rng(len(asked)).normal(0, 20.0 / times**2, 20)
        return Trial(means if rate < 1000 else means + 200, float(times), rate, rate), {"history_digest": ""}

    find_ceiling(noisy, 900.0, tolerance=0.3)
    assert max(asked) > 1


@pytest.mark.parametrize("latency", [1.0, 1000.0])
def test_a_system_without_a_ceiling_is_an_error(latency):
    def run(rate, times):
        return Trial(np.full(20, latency), 1.0, rate, rate), {"history_digest": ""}

    with pytest.raises(InputError, match="no ceiling"):
        find_ceiling(run, 100.0)


@pytest.mark.parametrize(("limit", "tolerance"), [(0.0, 0.02), (100.0, 0.0), (100.0, 1.0)])
def test_a_search_without_sense_is_refused(limit, tolerance):
    with pytest.raises(InputError, match="sustainable"):
        find_ceiling(queue(100.0), 10.0, limit, tolerance)


def test_the_ceiling_of_a_small_machine_is_set_by_its_cores():
    given = {"publishers": 300, "broker_cores": 1, "warm_up_s": 0.15, "duration_s": 0.2, "rate": 3.0}
    found = sustainable_rate("tbmq-jedis", settings_of("tbmq-jedis", given), 1, tolerance=0.3)
    assert 700 < found.rate_per_s < 2000  # 1 core / 600 us
    assert found.at.report["utilisation"]["machine"][0] > 0.6


def test_each_run_of_a_search_tells_the_settings_that_make_it_again():
    given = {"publishers": 60, "broker_cores": 1, "warm_up_s": 0.05, "duration_s": 0.1, "rate": 5.0}
    _, report = runs_of("tbmq-jedis", settings_of("tbmq-jedis", given), 1)(1234.5, 2)
    system = entry("tbmq-jedis").assemble(settings_of("tbmq-jedis", {**given, **report["set"]}), 1, [])
    system.run()
    assert system.digest == report["history_digest"]


SMALL = {"publishers": 60, "broker_cores": 1, "warm_up_s": 0.1, "duration_s": 0.3, "rate": 5.0}


def test_the_rate_of_bursts_is_what_is_published_on_average():
    bursts = {"publish_on_s": 0.2, "publish_off_s": 0.4, "publish_pattern": "exponential"}
    # 30 messages/s while on.
    trial, report = runs_of("tbmq-jedis", settings_of("tbmq-jedis", {**SMALL, **bursts}), 1)(600.0, 4)
    assert trial.in_per_s == pytest.approx(report["counts"]["published"] / 1.3, rel=0.02)
    assert trial.in_per_s == pytest.approx(600, rel=0.2)
    steady, report = runs_of("tbmq-jedis", settings_of("tbmq-jedis", SMALL), 1)(600.0, 1)
    assert steady.in_per_s == pytest.approx(600, rel=0.001)


def test_what_nobody_is_owed_and_what_comes_twice_is_no_overload():
    for given in (
        {"qos": 0, "offline_share": 0.5, "online_s": 0.1, "offline_s": 0.1},
        {"offline_share": 0.5, "online_s": 0.1, "offline_s": 0.1, "clean_start_share": 0.8},
        {"faults": "lost-puback@0.2"},
        {"offline_share": 0.5, "online_s": 0.1, "offline_s": 50.0},
    ):
        trial, report = runs_of("tbmq-jedis", settings_of("tbmq-jedis", {**SMALL, **given}), 1)(300.0, 1)
        assert report["counts"]["published"] != report["counts"]["delivered"], given
        assert trial.is_complete, given


def test_what_is_lost_for_want_of_room_or_under_way_when_the_run_is_over_is_overload():
    slow = {"slow_share": 1.0, "slow_read_ms": 200.0, "receive_maximum": 1}
    for given in ({**slow, "limit": 1}, slow):
        trial, _ = runs_of("tbmq-jedis", settings_of("tbmq-jedis", {**SMALL, **given}), 1)(1200.0, 1)
        assert not trial.is_complete, given


@pytest.mark.parametrize("given", [{"publishers": 1, "rate": 999.0}, {"publish_on_s": 0.2, "publish_off_s": 0.2}])
def test_a_search_that_comes_to_rates_no_run_can_have_is_refused(given):
    settings = settings_of("tbmq-jedis", {**SMALL, **given})
    with pytest.raises(InputError, match="another number of publishers"):
        runs_of("tbmq-jedis", settings, 1)(1010.0 if "rate" in given else 20.0, 1)


PUBLISHED = {"tbmq-jedis": (1.0, 40_000), "tbmq-postgres": (0.78, 30_000), "tbmq-lettuce": (1.45, 60_000)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_ceiling_comes_out_within_15_percent(name):
    rate, published = PUBLISHED[name]
    told = ceiling_json(
        sustainable_rate(name, settings_of(name, {"publishers": 20_000, "rate": rate}), 0, tolerance=0.05)
    )
    assert told["sustainable_per_s"]["in_and_out"] == pytest.approx(published, rel=0.15)
    assert told["at_the_ceiling"]["utilisation"]["machine"][0] > 0.97
