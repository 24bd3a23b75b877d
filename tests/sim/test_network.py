"""Connections keep order and carry nothing while they are cut."""

import random

import pytest

from sim.network import Connection, Latency, Network


def test_order_is_kept_whatever_the_delays():
    connection = Connection(Latency(50, 500, 2.0), 1000.0, random.Random(1))
    arrivals = [connection.arrival_us(now, 100) for now in range(0, 10_000, 10)]
    assert arrivals == sorted(arrivals)
    assert all(arrival >= now + 50 for now, arrival in zip(range(0, 10_000, 10), arrivals, strict=True))


def test_bandwidth_delays_what_follows():
    connection = Connection(Latency(10), 2.0, random.Random(1))
    assert connection.arrival_us(0, 100) == 60
    assert connection.arrival_us(0, 100) == 110


def test_a_partition_cuts_both_ways_and_heals():
    network = Network(Latency(10), 8.0, random.Random(1))
    there, back = network.connection("a", "b"), network.connection("b", "a")
    other = network.connection("a", "c")
    network.partition({"a"}, {"b"})
    assert there.arrival_us(0, 1) is None
    assert back.arrival_us(0, 1) is None
    assert other.arrival_us(0, 1) is not None
    assert network.connection("a", "b") is there
    network.heal(1000.0)
    assert there.arrival_us(1000, 1) > 1000


def test_a_negative_latency_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Latency(-1)
