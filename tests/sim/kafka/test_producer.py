"""A producer whose leader dies: what it was promised is there, and what it was not promised comes again."""

import random
from functools import partial

import pytest

from orderlab.sim.engine.clock import Clock
from orderlab.sim.kafka.broker import BrokerCosts, KafkaCluster
from orderlab.sim.kafka.producer import Producer, ProducerSettings

COSTS = BrokerCosts(replication_lag_us=1500, leader_election_us=50_000)


def run(dies_us, lost=(), **settings):
    """(records that were acknowledged, records in the log) of a producer whose leader dies at ``dies_us``, and of whose
    first requests are ``lost``."""
    env = Clock()
    cluster = KafkaCluster(env, 3, COSTS)
    (partition,) = cluster.create_topic("t", 1)
    producer = Producer(env, cluster, ProducerSettings(linger_us=0, retry_backoff_us=1000, **settings))
    producer.lose_requests.extend(lost)
    acknowledged = []
    for number in range(20):

        def send(number=number):
            producer.send(partition, [number], lambda records, error: acknowledged.extend(() if error else records))

        env.process(_after(env, 500 * number, send))
    env.process(_after(env, dies_us, lambda: cluster.fail_leader(partition)))
    env.run(2_000_000)
    return acknowledged, partition.log.read(0, 1000, 2_000_000)[1]


def _after(env, delay_us, function):
    yield env.timeout(delay_us)
    function()


@pytest.mark.parametrize("dies_us", range(3000, 7000, 371))
def test_with_acks_all_and_idempotence_nothing_is_lost_doubled_or_out_of_order(dies_us):
    acknowledged, log = run(dies_us, acks="all", idempotent=True)
    assert log == list(range(20))
    assert sorted(acknowledged) == log


@pytest.mark.parametrize("lost", [["response"], ["request"], ["response", "request"] * 4])
def test_what_was_appended_so_long_ago_that_nobody_knows_where_counts_as_appended(lost):
    acknowledged, log = run(1_900_000, lost, acks="all", idempotent=True, request_timeout_us=50_000)
    assert log == list(range(20)) == sorted(acknowledged)


@pytest.mark.parametrize("dies_us", range(3000, 7000, 371))
def test_with_acks_all_what_is_acknowledged_is_there(dies_us):
    acknowledged, log = run(dies_us, acks="all", retries=0)
    assert set(acknowledged) <= set(log)
    assert len(acknowledged) < 20


def test_with_acks_0_what_is_lost_on_the_way_counts_as_sent():
    env = Clock()
    cluster = KafkaCluster(env, 3, COSTS)
    (partition,) = cluster.create_topic("t", 1)
    producer, sent = Producer(env, cluster, ProducerSettings(acks="0", linger_us=0, request_timeout_us=10_000)), []
    producer.lose_requests.append("request")
    for number in range(2):
        producer.send(partition, [number], lambda records, error: sent.append((env.now, list(records), error)))
    env.run(1_000_000)
    assert sent == [(0, [0], None), (0, [1], None)]
    assert partition.log.read(0, 10, 1_000_000)[1] == [1]


def test_with_acks_1_what_no_follower_had_is_acknowledged_and_gone():
    lost = [
        set(run(dies_us, acks="1", retries=0)[0]) - set(run(dies_us, acks="1", retries=0)[1])
        for dies_us in range(3000, 7000, 371)
    ]
    assert all(lost)


@pytest.mark.parametrize(("brokers", "answered_us"), [(1, 300), (3, 1800)])
def test_a_broker_without_followers_waits_for_nobody(brokers, answered_us):
    env = Clock()
    cluster = KafkaCluster(env, brokers, BrokerCosts(request_us=100.0, record_us=0.0, replication_lag_us=1500))
    (partition,) = cluster.create_topic("t", 1)
    producer, answered = Producer(env, cluster, ProducerSettings(acks="all", linger_us=0)), []
    producer.send(partition, [1], lambda records, error: answered.append(env.now))
    env.run(10_000)
    assert answered == [answered_us]
    assert partition.log.next_visible_us(0) == answered_us - 100


@pytest.mark.parametrize("lost", [[], ["request", "response"], ["request"] * 4])
def test_records_are_unanswered_until_they_are_acknowledged_or_given_up(lost):
    env = Clock()
    cluster = KafkaCluster(env, 1, BrokerCosts())
    (partition,) = cluster.create_topic("t", 1)
    producer = Producer(env, cluster, ProducerSettings(batch_records=2, retries=1, request_timeout_us=1000))
    producer.lose_requests.extend(lost)
    heard = []
    producer.send(partition, [1, 2, 3], lambda records, error: heard.extend(records))
    assert producer.unanswered == 3
    while len(heard) < 3:
        assert producer.unanswered == 3 - len(heard)
        env.step()
    assert producer.unanswered == 0


@pytest.mark.parametrize("linger_us", [0, 300])
def test_a_pack_goes_where_its_records_go_when_each_partition_gets_them_alone(linger_us):
    """The batches, what is told of them and to whom are those of ``send``."""

    def told(hand_over):
        env = Clock()
        cluster = KafkaCluster(env, 3, COSTS)
        partitions, heard, draw = cluster.create_topic("t", 4), [], random.Random(1)
        producer = Producer(env, cluster, ProducerSettings(linger_us=linger_us, batch_records=7))
        for pack in range(60):
            records = list(range(100 * pack, 100 * pack + draw.randint(1, 25)))
            numbers = [draw.randrange(4) for _ in records]

            def answered(records, error, pack=pack):
                heard.append((env.now, pack, list(records), error))

            env.process(_after(env, 100 * pack, partial(hand_over, producer, partitions, records, numbers, answered)))
        env.run(1_000_000)
        return (
            heard,
            [partition.log.read(0, 10_000, 1_000_000)[1] for partition in partitions],
            producer.unanswered,
            producer.batches,
        )

    def one_by_one(producer, partitions, records, numbers, answered):
        for number in dict.fromkeys(numbers):
            producer.send(
                partitions[number],
                [record for record, its in zip(records, numbers, strict=True) if its == number],
                answered,
            )

    assert told(Producer.send_each) == told(one_by_one)
