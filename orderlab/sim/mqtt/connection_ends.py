"""Who notices when that a connection has ended: Keep Alive on both sides, of subscribers and of publishers.

A broker closes a connection on which nothing came for one and a half times the Keep Alive (MQTT-3.1.2-22), which the
server may have set instead of the client (MQTT-3.1.2-21). A client sends PINGREQ after a Keep Alive without other
packets, and gives the connection up when no PINGRESP comes within half of one more: the standard says "a reasonable
time". When the last packet before a fault came is drawn, as clients ping at phases of their own. Without Keep Alive
nobody notices anything by himself.
"""

from __future__ import annotations

from collections.abc import Iterable

from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.network import RETRANSMIT_US
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.world import World


def half_open(world: World, subscribers: Iterable[int], notices_us: int) -> None:
    """Kill the links of these; their clients notice at ``notices_us`` and connect to the next broker."""
    for subscriber in subscribers:
        if world.delivery.connections.connected[subscriber]:
            _kill(world, subscriber)
            _server_notices(world, subscriber, NEVER_US)
            world.presence.connect_anew(subscriber, notices_us)


def cut(world: World, subscribers: Iterable[int], until_us: int) -> None:
    """Cut the links of these for a while. A connection that both sides believe in at the end of it goes on."""
    table, now = world.delivery.connections, int(world.env.now)
    for subscriber in subscribers:
        if not table.connected[subscriber]:
            continue
        server_us = _server_notices(world, subscriber, until_us)
        # The client finds out at the same time at the earliest, and cannot connect before.
        if server_us is not None and server_us < until_us:
            _kill(world, subscriber)
            world.presence.connect_anew(subscriber, until_us + world.traffic.reconnect_us)
        else:
            table.links.cut(subscriber, now, until_us)


def cut_publishers(world: World, broker: int, until_us: int) -> float:
    """Cut the links between a broker and its publishers for a while. If Keep Alive ends the connections before that,
    nothing that is sent meanwhile arrives, and the publishers connect anew when the links are there again. When all is
    well."""
    links, keep_us = world.brokers[broker].publisher_links(), world.traffic.keep_alive_us
    # They send, so that the last packet came just before.
    if keep_us is None or world.env.now + 1.5 * keep_us >= until_us:
        links.cut(until_us)
        return float(until_us + 2 * (until_us - world.env.now) + RETRANSMIT_US)
    back_us = _at_a_tick(world, until_us + world.traffic.reconnect_us)
    world.measured.count("keep_alive_timeouts_of_publishers")
    links.kill()
    call_at(world.env, back_us, links.come_back)
    return back_us


def move_publishers(world: World, broker: int, at_us: int) -> float:
    """Let the publishers of a broker connect to the next one then."""

    def move() -> None:
        other = world.brokers.next_after(broker)
        if not world.brokers[broker].is_dead and other.number != broker:
            world.brokers[broker].move_publishers(other)

    moved_us = _at_a_tick(world, at_us)
    call_at(world.env, moved_us, move)
    return moved_us


def _at_a_tick(world: World, at_us: int) -> float:
    """The next instant at which brokers look for what has come: what is sent again then comes before what is new."""
    node = world.brokers[0]
    assert isinstance(node, BrokerNode), "brokers of one system are of one kind"
    return float(-(-at_us // node.settings.tick_us) * node.settings.tick_us)


NEVER_US = 2**62


def _kill(world: World, subscriber: int) -> None:
    table = world.delivery.connections
    table.links.kill(subscriber, int(world.env.now))
    table.losses += 1  # whoever looks whether a packet got through must look closely


def _server_notices(world: World, subscriber: int, before_us: int) -> int | None:
    """Let the broker close the connection by Keep Alive, if it does before that; when."""
    keep_us, table = world.traffic.keep_alive_us, world.delivery.connections
    if keep_us is None:
        return None
    silent_us = int(world.streams.stream("keep_alive").uniform(0, keep_us))
    at_us, connection = int(world.env.now) + round(1.5 * keep_us) - silent_us, int(table.connection_number[subscriber])
    at_us = max(at_us, int(world.env.now) + 1)

    def close() -> None:
        if table.connection_number[subscriber] == connection and table.connected[subscriber]:
            world.measured.count("keep_alive_timeouts")
            world.presence.disconnect(subscriber)
        else:
            world.presence.notice(subscriber, connection)

    if at_us < before_us:
        call_at(world.env, at_us, close)
    return at_us
