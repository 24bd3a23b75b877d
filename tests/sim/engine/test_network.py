"""Connections keep order; a partition holds bytes up and loses none; the end of a connection loses them."""

import gc
import weakref

import numpy as np
import pytest

from orderlab.sim.engine.clock import Clock
from orderlab.sim.engine.network import RETRANSMIT_US, Connection, Latency, Link, Network


def arrivals(env, connection, sends):
    """Send (instant, bytes) and run to the end; the instants of arrival by number."""
    arrived = []
    for number, (at, size) in enumerate(sends):
        env.run(until=at) if at > env.now else None
        connection.send(size, lambda number=number: arrived.append((number, env.now)))
    return arrived


def test_order_is_kept_whatever_the_delays():
    env = Clock()
    connection = Connection(env, Latency(50, 500, 2.0).delays(np.random.Generator(np.random.PCG64(1))), 1000.0)
    sends = [(now, 100) for now in range(0, 10_000, 10)]
    arrived = arrivals(env, connection, sends)
    env.run()
    assert [number for number, _ in arrived] == list(range(len(sends)))
    assert all(at >= sent + 50 for (_, at), (sent, _) in zip(arrived, sends, strict=True))


def test_what_has_arrived_goes_without_the_cyclic_collector():
    env = Clock()
    connection = Connection(env, lambda: 10)

    class Carried:
        pass

    alive = weakref.WeakSet()
    gc.disable()
    try:
        for is_cut in (False, True):
            connection.is_cut = is_cut
            carried = Carried()
            alive.add(carried)
            connection.send(100, lambda carried=carried: None)
            del carried
            env.run()
            connection.heal()
            env.run()
        assert not alive
    finally:
        gc.enable()


def test_bandwidth_delays_what_follows():
    env = Clock()
    arrived = arrivals(env, Connection(env, lambda: 10, 2.0), [(0, 100), (0, 100)])
    env.run()
    assert arrived == [(0, 60), (1, 110)]


def test_a_partition_holds_bytes_up_and_they_come_once_in_order_after_it():
    env = Clock()
    network = Network(env, 8.0)
    link, other = network.connect("a", "b", lambda: 10), network.connect("a", "c", lambda: 10)
    heal = network.partition({"a"}, {"b"})
    held = []
    there = arrivals(env, link.there, [(0, 1), (100, 1)])
    link.back.send(1, lambda: there.append(("back", env.now)), on_held=lambda: held.append(env.now))
    assert arrivals(env, other.there, [(100, 1)]) == []
    env.run(until=1000)
    assert there == []
    assert len(held) == 1
    heal()
    link.there.send(1, lambda: there.append((2, env.now)))
    env.run()
    assert [number for number, _ in there if number != "back"] == [0, 1, 2]
    assert there[0][1] == 11 + RETRANSMIT_US
    assert ("back", pytest.approx(111 + RETRANSMIT_US, abs=2)) in there


def test_a_longer_partition_waits_for_a_later_retransmission():
    env = Clock()
    connection = Connection(env, lambda: 0)
    connection.cut()
    arrived = arrivals(env, connection, [(0, 1)])
    env.run(until=RETRANSMIT_US * 2)
    connection.heal()
    env.run()
    assert arrived == [(0, RETRANSMIT_US * 3)]


def test_bytes_under_way_when_the_partition_begins_are_held_too():
    env = Clock()
    connection = Connection(env, lambda: 100)
    arrived = arrivals(env, connection, [(0, 1), (50, 1)])
    connection.cut()
    env.run(until=500)
    assert arrived == []


def test_two_partitions_must_both_heal():
    env = Clock()
    network = Network(env, 8.0)
    first, second = network.partition({"a"}, {"b"}), network.partition({"a", "c"}, {"b"})
    link = network.connect("b", "a", lambda: 1)
    first()
    assert link.is_cut
    second()
    assert not link.is_cut
    assert not network.is_cut("a", "b")


def test_a_new_connection_forgets_the_bytes_of_the_old_one():
    env = Clock()
    link = Link.plain(env, lambda: 100)
    arrived = arrivals(env, link.there, [(0, 1)])
    link.reset()
    link.there.send(1, lambda: arrived.append("new"))
    env.run()
    assert arrived == ["new"]


@pytest.mark.parametrize("make", [lambda: Latency(-1), lambda: Connection(Clock(), lambda: 1, 0)])
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ValueError, match=r"negative|carries nothing"):
        make()
