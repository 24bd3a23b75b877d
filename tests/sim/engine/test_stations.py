"""Stations agree with a plain event simulation; usage follows from the work."""

import random

from orderlab.sim.engine.clock import Station, Tenant


def by_search(servers, jobs):
    """Second algorithm: every server's next free instant, searched in full."""
    free, done = [0.0] * servers, []
    for arrival, work in jobs:
        first = min(range(servers), key=lambda server: (max(free[server], arrival), free[server]))
        free[first] = max(free[first], arrival) + work
        done.append(free[first])
    return done


def test_completion_times_agree_with_a_search_over_all_servers():
    draw = random.Random(3)
    for servers in (1, 2, 5):
        now, jobs = 0.0, []
        for _ in range(300):
            now += draw.expovariate(1.0)
            jobs.append((now, draw.expovariate(1.0 / servers)))
        station = Station(servers)
        assert [station.serve(*job) for job in jobs] == by_search(servers, jobs)


def test_usage_counts_work_and_waiting():
    station = Station(1)
    station.serve(0, 40)
    station.serve(10, 40)
    assert (station.jobs, station.busy_us) == (2, 80)
    assert [station.waits.until(now) for now in (10, 20, 40, 100)] == [0, 10, 30, 30]


def test_what_waits_counts_up_to_now_as_a_count_at_every_instant_does():
    draw = random.Random(5)
    for station in (Station(1), Station(3), Tenant(Station(2))):
        now, jobs = 0, []
        for _ in range(200):
            now += draw.randrange(3)
            work = draw.randrange(1, 8)
            jobs.append((now, round(station.serve(now, work)) - work))
        for end in (now, now + 7, now + 10_000):
            waiting = sum(arrival <= at < begun for arrival, begun in jobs for at in range(end))
            assert station.waits.until(end) == waiting


def test_a_stalled_station_serves_nothing_before_its_end():
    station = Station(2)
    station.stall(500)
    assert station.serve(10, 1) == 501
