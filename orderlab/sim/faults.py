"""Every fault that can strike a broker system, by the name that operators use; `fault_schedule` says when.

Each is a function of the system, the number of what it strikes (a broker, a Redis node, a Kafka broker) and how long it
lasts, in microseconds. It returns the instant at which it has healed, or None if it cannot strike as things stand (a
node that is down already).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from orderlab.sim.drivers.pipelined import PipelinedDriver
from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.mqtt import connection_ends
from orderlab.sim.mqtt.world import World
from orderlab.sim.redis.memory import STARTUP_BYTES, MemoryAccount
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.servers.redis import CLUSTER_DOWN, NO_REPLICAS, RedisNode

Among = Literal["broker", "redis", "kafka", "postgres"]
Needs = Literal["", "two brokers", "two nodes", "two Kafka brokers", "replicas", "a pipeline"]
Strike = Callable[[World, int, int], float | None]

MEMORY_SHARE = 0.5
"""Of the memory that sessions use, what is left to them."""
SLOW_US = 50_000
"""Between two packets that a slow consumer reads."""
SLOW_LINK_US = 200_000
"""By how much each packet over a slow link is later."""
SKEW_US = 60_000_000
"""By how much a clock is ahead while it is wrong."""
SLOTS_MOVED_MAX = 50
ELECTION_US = 750_000
"""From the loss of a master to the vote for its replica: 500 ms and up to 500 ms more at random (Redis Cluster
specification), here the mean."""
RESYNC_US = 500_000
KAFKA_BACK_US = 500_000
"""After which a Kafka broker that died leads again what nobody else may lead."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What ``among`` it strikes, and for how long unless told otherwise."""

    strike: Strike
    among: Among
    duration_us: int
    needs: Needs

    @property
    def summary(self) -> str:
        """What happens, in a sentence or two."""
        return " ".join((self.strike.__doc__ or "").split())


FAULTS: dict[str, FaultKind] = {}


def _fault(among: Among, duration_s: float = 0.0, needs: Needs = "") -> Callable[[Strike], Strike]:
    def enter(strike: Strike) -> Strike:
        name = strike.__name__.replace("_", "-")
        FAULTS[name] = FaultKind(strike, among, round(duration_s * 1e6), needs)
        return strike

    return enter


# -- brokers ---------------------------------------------------------------------------------------------------


def _crash(world: World, target: int, at_commit: Literal["before", "after"] | None = None) -> float | None:
    broker, settings = world.brokers[target], world.kafka.groups[0].settings
    if broker.is_dead or broker.is_last:
        return None
    if at_commit is None:
        broker.crash()
    else:
        broker.crash_at_commit = at_commit
    return float(world.env.now) + settings.session_timeout_us + settings.rebalance_us


@_fault("broker", needs="two brokers")
def broker_crash(world: World, target: int, _duration_us: int) -> float | None:
    """The process of a broker dies. Its clients connect to the next broker; its partitions go to the others."""
    return _crash(world, target)


@_fault("broker", needs="two brokers")
def broker_crash_before_commit(world: World, target: int, _duration_us: int) -> float | None:
    """The same at its next commit: what was saved is saved again by the next owner."""
    return _crash(world, target, "before")


@_fault("broker", needs="two brokers")
def broker_crash_after_commit(world: World, target: int, _duration_us: int) -> float | None:
    """The same right after its next commit: what was saved is not sent on."""
    return _crash(world, target, "after")


@_fault("broker", 0.6)
def consumer_rebalance(world: World, target: int, duration_us: int) -> float | None:
    """A consumer stands still with a pack in its hands for longer than the rebalance, loses its partitions, and goes on
    with the pack later."""
    broker = world.brokers[target]
    if broker.is_dead:
        return None
    broker.persisted_consumers[0].pause_us = duration_us
    return float(world.env.now) + duration_us


@_fault("broker", 0.5)
def network_partition(world: World, target: int, duration_us: int) -> float | None:
    """A broker reaches neither Kafka nor Redis, until the partition heals. Its clients stay connected."""
    broker = world.brokers[target]
    if broker.is_dead:
        return None
    others = {node.name for node in world.storage.nodes} | {database.name for database in world.storage.databases}
    others |= {f"kafka-{kafka}" for kafka in range(len(world.kafka.cluster.stations))}
    name = f"broker-{target}"
    heal = world.network.partition({name}, others)
    now, group_settings = world.env.now, world.kafka.groups[0].settings
    consumers = (*broker.all_consumers, *broker.persisted_consumers)

    def is_cut() -> bool:
        return world.network.is_cut(name, f"kafka-{world.kafka.groups[0].coordinator}")

    def miss_heartbeats() -> None:
        """The coordinator has not heard of the broker's consumers for a session timeout."""
        if is_cut():
            for consumer in consumers:
                consumer.group.leave(consumer)
            for function in world.brokers.on_silence:
                function(target, world.env.now)

    def answer_heartbeat() -> None:
        """Who was put out is told so. With a pack in its hands it finds out at the commit."""
        if not is_cut():
            for consumer in consumers:
                if not consumer.is_busy:
                    consumer.group.rejoin(consumer)

    call_at(world.env, now + duration_us, heal)
    call_at(world.env, now + group_settings.session_timeout_us, miss_heartbeats)
    call_at(world.env, now + duration_us + group_settings.heartbeat_us, answer_heartbeat)
    return float(now + duration_us)


@_fault("broker")
def producer_retry(world: World, target: int, _duration_us: int) -> float | None:
    """The answers to the next produce requests of a broker are lost."""
    producer = world.brokers[target].producer
    producer.lose_requests.extend(["response", "request"] * 4)
    return world.env.now + 2.0 * producer.settings.request_timeout_us


@_fault("broker", 0.5)
def broker_pause(world: World, target: int, duration_us: int) -> float | None:
    """A broker stands still: its collector stops the world. If that is longer than the session timeout, its partitions
    go to the others."""
    broker = world.brokers[target]
    if broker.is_dead:
        return None
    broker.pause(duration_us)
    return float(world.env.now) + duration_us


@_fault("broker", 5.0)
def broker_clock_skew(world: World, target: int, duration_us: int) -> float | None:
    """The clock of a broker is ahead, until it is set right."""
    broker = world.brokers[target]
    broker.clock_skew_us += SKEW_US

    def set_right() -> None:
        broker.clock_skew_us -= SKEW_US

    call_at(world.env, world.env.now + duration_us, set_right)
    return float(world.env.now) + duration_us


# -- clients ---------------------------------------------------------------------------------------------------


@_fault("broker")
def lost_puback(world: World, target: int, _duration_us: int) -> float | None:
    """Publishers do not get their next PUBACKs, and lose their connections with them; they connect anew and publish all
    again that has none, with DUP."""
    world.brokers[target].lose_pubacks(50)
    return world.env.now + 2.0 * world.traffic.reconnect_us


@_fault("broker", needs="two brokers")
def session_takeover(world: World, target: int, _duration_us: int) -> float | None:
    """The subscribers of a broker connect to the next one while they are still connected."""
    other = world.brokers.next_after(target)
    for subscriber in _subscribers_of(world, target):
        if world.delivery.connections.connected[subscriber]:
            world.presence.disconnect(subscriber, is_noticed=False)
            other.connect(subscriber)
    return float(world.env.now)


@_fault("broker", 0.5)
def slow_consumer(world: World, target: int, duration_us: int) -> float | None:
    """The subscribers of a broker read slowly: packets wait in socket buffers, acknowledgements come late."""
    slow = _subscribers_of(world, target)
    world.traffic.slow_readers.slow_down(slow, SLOW_US)
    call_at(world.env, world.env.now + duration_us, lambda: world.traffic.slow_readers.recover(slow))
    return float(world.env.now) + duration_us


@_fault("broker", 0.5)
def client_link_cut(world: World, target: int, duration_us: int) -> float | None:
    """The links between a broker and its subscribers let nothing through, and nobody is told. What is sent meanwhile
    comes with TCP's next attempt, unless Keep Alive ends the connection first: then clients connect anew when the link
    is there again."""
    heals_us = int(world.env.now) + duration_us
    connection_ends.cut(world, _subscribers_of(world, target), heals_us)
    return heals_us + 2.0 * world.traffic.reconnect_us


@_fault("broker", 0.3)
def client_half_open(world: World, target: int, duration_us: int) -> float | None:
    """The connections of a broker's subscribers die on the way: what the broker writes goes nowhere, and it believes in
    them until Keep Alive or a new CONNECT tells. The clients notice after a while, and connect to the next broker."""
    notice_us = int(world.env.now) + duration_us
    connection_ends.half_open(world, _subscribers_of(world, target), notice_us)
    return float(notice_us)


@_fault("broker", 0.5)
def client_link_slow(world: World, target: int, duration_us: int) -> float | None:
    """Every packet between a broker and its subscribers takes 0.2 s longer each way."""
    links, slow = world.delivery.connections.links, _subscribers_of(world, target)
    for subscriber in slow:
        links.slow_down(subscriber, SLOW_LINK_US)

    def speed_up() -> None:
        for subscriber in slow:
            links.speed_up(subscriber)

    call_at(world.env, world.env.now + duration_us, speed_up)
    return float(world.env.now) + duration_us


@_fault("broker", 0.5)
def publisher_link_cut(world: World, target: int, duration_us: int) -> float | None:
    """The links between a broker and its publishers let nothing through. What is sent meanwhile comes with TCP's next
    attempt, unless Keep Alive ends the connections first: then publishers connect anew when the links are there again,
    and send all again that has no PUBACK."""
    if world.brokers[target].is_dead:
        return None
    return connection_ends.cut_publishers(world, target, int(world.env.now) + duration_us)


@_fault("broker", 0.3, needs="two brokers")
def publisher_half_open(world: World, target: int, duration_us: int) -> float | None:
    """The connections of a broker's publishers die on the way: what they send goes nowhere. They notice after a while,
    connect to the next broker, and send all again that has no PUBACK."""
    if world.brokers[target].is_dead:
        return None
    world.brokers[target].publisher_links().kill()
    return connection_ends.move_publishers(world, target, int(world.env.now) + duration_us)


@_fault("broker", 0.5)
def publisher_link_slow(world: World, target: int, duration_us: int) -> float | None:
    """Every packet between a broker and its publishers takes 0.2 s longer each way."""
    if world.brokers[target].is_dead:
        return None
    links = world.brokers[target].publisher_links()
    links.slow_down(SLOW_LINK_US)
    call_at(world.env, world.env.now + duration_us, lambda: links.slow_down(0))
    return float(world.env.now) + duration_us + SLOW_LINK_US


@_fault("broker", 0.05, needs="two brokers")
def publisher_takeover(world: World, target: int, duration_us: int) -> float | None:
    """The links of a broker's publishers become slow, by as much as the fault lasts. After twice that time they connect
    to the next broker, while what they have sent is on its way over their old connections: the old broker reads it
    until it knows of the new ones."""
    if world.brokers[target].is_dead:
        return None
    world.brokers[target].publisher_links().slow_down(duration_us)
    return connection_ends.move_publishers(world, target, int(world.env.now) + 2 * duration_us) + duration_us


def _subscribers_of(world: World, broker: int) -> list[int]:
    found: list[int] = np.flatnonzero(world.traffic.subscribers.broker == broker).tolist()
    return found


# -- Redis -----------------------------------------------------------------------------------------------------


@_fault("redis", 0.2, needs="replicas")
def redis_failover(world: World, target: int, duration_us: int) -> float | None:
    """A Redis master dies; its replica takes over with what had reached it. The dead one comes back as the new
    replica."""
    node = world.storage.nodes[target]
    if node.is_replica_away:  # there is none to promote: the dead one has to come back itself
        world.measured.count("failovers_without_replica")
        return _start_again(world, node, duration_us)
    return _down(world, node, duration_us, lambda: world.measured.count("commands_lost", node.fail_over()))


@_fault("redis", 1.5, needs="replicas")
def redis_old_master(world: World, target: int, duration_us: int) -> float | None:
    """A Redis master is cut off from the other nodes and from all brokers but one, which writes to it until it notices
    after cluster-node-timeout. If that takes longer than an election, its replica is promoted, and what it took
    meanwhile is lost."""
    node, now = world.storage.nodes[target], int(world.env.now)
    if node.is_down or node.is_replica_away:
        return None
    stays = target % len(world.brokers)
    heal = world.network.partition(
        {f"broker-{number}" for number in range(len(world.brokers)) if number != stays}, {node.name}
    )
    node.isolate()
    rules, shard = node.rules, node.shard
    promoted_us = now + rules.node_timeout_us + ELECTION_US

    def refuse(reply: ErrorReply) -> None:
        if node.shard is shard and node.is_replica_away and node.refusal is None:
            node.refusal = reply

    def give_way() -> None:
        if not node.is_down:
            world.measured.count("commands_lost", node.give_way())
        heal()

    def rejoin() -> None:
        node.rejoin()
        heal()

    if rules.min_replicas_lag_us is not None:
        call_at(world.env, now + rules.min_replicas_lag_us, partial(refuse, NO_REPLICAS))
    call_at(world.env, now + rules.node_timeout_us, partial(refuse, CLUSTER_DOWN))
    if promoted_us < now + duration_us:
        call_at(world.env, promoted_us, give_way)
        return float(promoted_us)
    call_at(world.env, now + duration_us, rejoin)
    return float(now) + duration_us


@_fault("redis", needs="replicas")
def redis_full_resync(world: World, target: int, duration_us: int) -> float | None:
    """The replica of a Redis node was away for longer than the backlog reaches: the master forks, and until all has
    been sent it has nobody to fail over to."""
    node = world.storage.nodes[target]
    if node.is_down or node.is_replica_away:
        return None
    lasts_us = duration_us or node.rules.resync_us or RESYNC_US
    node.lose_replica(lasts_us)
    return float(world.env.now) + lasts_us


@_fault("redis", 0.2)
def redis_restart(world: World, target: int, duration_us: int) -> float | None:
    """A Redis process dies and starts again with its append-only file, if it has one: all that it had run is in it, as
    the system keeps what was written."""
    node = world.storage.nodes[target]
    if node.file is not None and not node.is_down:
        node.file.catch_up(int(world.env.now) + node.file.lag_us)
    return _start_again(world, node, duration_us)


@_fault("redis", 0.2)
def redis_machine_crash(world: World, target: int, duration_us: int) -> float | None:
    """The machine of a Redis node dies and starts again with what of the append-only file was on disk, by
    ``appendfsync``."""
    return _start_again(world, world.storage.nodes[target], duration_us)


def _start_again(world: World, node: RedisNode, duration_us: int) -> float | None:
    def start_again() -> None:
        lost = node.restart()
        if lost is None:
            world.measured.count("nodes_emptied")
        else:
            world.measured.count("commands_lost", lost)

    return _down(world, node, duration_us, start_again)


def _down(world: World, node: RedisNode, duration_us: int, come_back: Callable[[], None]) -> float | None:
    if node.is_down:
        return None
    node.crash()
    call_at(world.env, world.env.now + duration_us, come_back)
    if node.rules.needs_full_coverage and node.rules.node_timeout_us < duration_us:
        others = [other for other in world.storage.nodes if other is not node]

        def cover(change: int) -> None:
            for other in others:
                other.uncovered += change

        call_at(world.env, world.env.now + node.rules.node_timeout_us, partial(cover, 1))
        call_at(world.env, world.env.now + duration_us, partial(cover, -1))
    return float(world.env.now) + duration_us


@_fault("redis", 0.5)
def redis_stall(world: World, target: int, duration_us: int) -> float | None:
    """A Redis node serves nothing for a while: fork, swap, a slow command of somebody else."""
    world.storage.nodes[target].stall(world.env.now + duration_us)
    return float(world.env.now) + duration_us


@_fault("redis", needs="a pipeline")
def command_timeout(world: World, target: int, duration_us: int) -> float | None:
    """A Redis node stalls for longer than the clients' command timeout: calls fail that run all the same, later."""
    drivers = [broker.driver for broker in world.brokers]
    timeout_us = max(driver.settings.command_timeout_us for driver in drivers if isinstance(driver, PipelinedDriver))
    return redis_stall(world, target, duration_us or timeout_us + 100_000)


@_fault("redis", 0.5, needs="a pipeline")
def redis_partition(world: World, target: int, duration_us: int) -> float | None:
    """No broker reaches one Redis node, until the partition heals."""
    brokers = {f"broker-{number}" for number in range(len(world.brokers))}
    heal = world.network.partition(brokers, {world.storage.nodes[target].name})
    call_at(world.env, world.env.now + duration_us, heal)
    return float(world.env.now) + duration_us


@_fault("redis")
def redis_connection_loss(world: World, target: int, _duration_us: int) -> float | None:
    """Every broker loses its connection to one Redis node, and sends again what had no answer."""
    for broker in world.brokers:
        broker.driver.lose(target)
    return float(world.env.now)


@_fault("redis")
def script_cache_flush(world: World, target: int, _duration_us: int) -> float | None:
    """SCRIPT FLUSH on a node."""
    world.storage.nodes[target].shard.execute((b"SCRIPT", b"FLUSH"))
    return float(world.env.now)


@_fault("redis", 0.3, needs="two nodes")
def slot_migration(world: World, target: int, duration_us: int) -> float | None:
    """The slots of a node that hold sessions move to the next node one by one, as redis-cli moves them: at most
    fifty."""
    moving, other = world.storage.slots, (target + 1) % len(world.storage.nodes)
    assert moving is not None, "needs two nodes of a cluster"
    if moving.is_migrating or world.storage.nodes[target].is_down or world.storage.nodes[other].is_down:
        return None
    slot_of = {
        one: moving.slot_of(world.traffic.subscribers.name(one)) for one in range(len(world.traffic.subscribers))
    }
    slots = sorted({slot for slot in slot_of.values() if moving.owner(slot) == target})[:SLOTS_MOVED_MAX]
    moving.move(slots, target, other, duration_us)
    return float(world.env.now) + duration_us


@_fault("redis", 5.0)
def redis_clock_skew(world: World, target: int, duration_us: int) -> float | None:
    """The clock of a Redis node is ahead, until it is set right: what has a deadline goes earlier."""
    node = world.storage.nodes[target]
    node.epoch_us += SKEW_US

    def set_right() -> None:
        node.epoch_us -= SKEW_US

    call_at(world.env, world.env.now + duration_us, set_right)
    return float(world.env.now) + duration_us


@_fault("redis", 0.3)
def redis_eviction(world: World, target: int, duration_us: int) -> float | None:
    """Memory runs out under allkeys-lru: the node evicts half of what it holds, at its next write."""
    return _limit_memory(world, target, duration_us, b"allkeys-lru")


@_fault("redis", 0.3)
def redis_oom(world: World, target: int, duration_us: int) -> float | None:
    """Memory runs out under noeviction: whatever may need more is refused with OOM, until there is memory again."""
    return _limit_memory(world, target, duration_us, b"noeviction")


def _limit_memory(world: World, target: int, duration_us: int, policy: bytes) -> float | None:
    node = world.storage.nodes[target]
    if node.is_down:
        return None
    used = MemoryAccount(node.shard).used() - STARTUP_BYTES
    node.configure(b"maxmemory-policy", policy)
    node.configure(b"maxmemory", b"%d" % (STARTUP_BYTES + round(used * MEMORY_SHARE)))
    call_at(world.env, world.env.now + duration_us, lambda: node.configure(b"maxmemory", b"0"))
    return float(world.env.now) + duration_us


# -- PostgreSQL ------------------------------------------------------------------------------------------------


@_fault("postgres", 0.3)
def postgres_restart(world: World, target: int, duration_us: int) -> float | None:
    """The database dies, every connection with it, and comes back with what was on disk."""
    server = world.storage.databases[target]
    if server.is_down:
        return None
    world.measured.count("transactions_lost", server.crash())
    call_at(world.env, world.env.now + duration_us, server.restart)
    return float(world.env.now) + duration_us


@_fault("postgres", 0.5)
def postgres_stall(world: World, target: int, duration_us: int) -> float | None:
    """The database serves nothing for a while: a checkpoint that starves it, a paused machine."""
    world.storage.databases[target].stall(world.env.now + duration_us)
    return float(world.env.now) + duration_us


@_fault("postgres")
def postgres_connection_loss(world: World, target: int, _duration_us: int) -> float | None:
    """Every broker loses its connections to the database: nobody knows of an open transaction whether it is
    committed."""
    for broker in world.brokers:
        broker.driver.lose(target)
    return float(world.env.now)


# -- Kafka -----------------------------------------------------------------------------------------------------


@_fault("kafka", needs="two Kafka brokers")
def kafka_leader_change(world: World, target: int, duration_us: int) -> float | None:
    """A Kafka broker dies: the partitions that it led, and the groups that it coordinated, go to the next one, without
    what had not been replicated. If the next one is not in sync it leads where an unclean election is allowed; else the
    dead one leads again when it is back."""
    cluster, healed_us = world.kafka.cluster, 0
    for partition in _led_by(world, target):
        truncations = len(partition.truncations)
        world.measured.count("records_lost", len(cluster.fail_leader(partition, duration_us or KAFKA_BACK_US)))
        healed_us = max(healed_us, partition.leaderless_until_us)
        if len(partition.truncations) > truncations:
            world.measured.count("unclean_elections")
            for group in world.kafka.groups:
                if partition in group.partitions:
                    group.truncated(partition, partition.log.end_offset)
    healed_us = max(healed_us, _change_coordinators(world, target, duration_us))
    _refresh(world)
    return float(max(healed_us, world.env.now))


@_fault("kafka", 0.5, needs="two Kafka brokers")
def kafka_isr_shrink(world: World, target: int, duration_us: int) -> float | None:
    """The followers of what a Kafka broker leads cannot keep up, and leave the in-sync replicas after
    replica.lag.time.max.ms."""
    cluster = world.kafka.cluster
    for partition in (*_led_by(world, target), *(offsets for offsets in cluster.offsets if offsets.leader == target)):
        cluster.follow_no_more(partition, duration_us)
    return float(world.env.now) + duration_us + cluster.costs.replication_lag_us


@_fault("kafka", needs="two Kafka brokers")
def kafka_coordinator_loss(world: World, target: int, duration_us: int) -> float | None:
    """A Kafka broker dies as a coordinator of consumer groups: commits of those that it coordinates wait for the next
    one, which goes on with the offsets that it has."""
    if not any(group.coordinator == target for group in world.kafka.groups):
        return None
    return float(max(_change_coordinators(world, target, duration_us), world.env.now))


def _change_coordinators(world: World, target: int, back_us: int) -> int:
    """The next broker leads the partitions of the offsets' topic that ``target`` led; when."""
    cluster, healed_us = world.kafka.cluster, 0
    for offsets in cluster.offsets:
        if offsets.leader != target:
            continue
        behind, elections = offsets.behind, len(offsets.truncations)
        cluster.fail_leader(offsets, back_us or KAFKA_BACK_US)
        had_until_us = behind.since_us if behind is not None and len(offsets.truncations) > elections else None
        groups = [group for group in world.kafka.groups if group.offsets is offsets]
        if groups:
            healed_us = max(healed_us, offsets.leaderless_until_us)
        for group in groups:
            world.measured.count("commits_lost", group.change_coordinator(had_until_us))
    return healed_us


def _led_by(world: World, leader: int) -> list[Partition]:
    return [
        partition
        for partitions in world.kafka.cluster.topics.values()
        for partition in partitions
        if partition.leader == leader
    ]


def _refresh(world: World) -> None:
    for group in world.kafka.groups:
        for member in group.members:
            member.refresh()
