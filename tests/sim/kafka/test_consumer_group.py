"""Producer, fetch, offsets and fencing, in virtual time."""

import pytest

from orderlab.sim.engine.clock import Clock
from orderlab.sim.kafka.broker import BrokerCosts, KafkaCluster, java_hash, offsets_partition_for
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, ConsumerSettings
from orderlab.sim.kafka.producer import Producer, ProducerSettings


def cluster(partitions=1, **costs):
    env = Clock()
    kafka = KafkaCluster(env, 3, BrokerCosts(**costs))
    kafka.create_topic("t", partitions)
    return env, kafka


def consume(env, consumer, seen, commit=True):
    def loop():
        while True:
            polled = yield from consumer.poll()
            seen.extend((env.now, record) for _, _, records in polled for record in records)
            if commit:
                yield from consumer.commit(polled)

    env.process(loop())


def send(producer, kafka, records, answers=None):
    answers = [] if answers is None else answers
    producer.send(kafka.topics["t"][0], records, lambda sent, error: answers.append((list(sent), error)))
    return answers


def test_records_come_once_in_order_after_linger_and_replication():
    env, kafka = cluster(replication_lag_us=1500)
    producer = Producer(env, kafka, ProducerSettings(linger_us=5000))
    group = ConsumerGroup(env, kafka, "t")
    consumer, seen = Consumer(group, "c"), []
    group.join(consumer)
    consume(env, consumer, seen)
    answers = send(producer, kafka, [1, 2, 3])
    env.run(50_000)
    assert [record for _, record in seen] == [1, 2, 3]
    assert seen[0][0] >= 5000 + 100 + 1500 + 100
    assert answers == [([1, 2, 3], None)]
    assert group.committed[kafka.topics["t"][0]] == 3


def test_a_full_batch_does_not_linger():
    env, kafka = cluster()
    producer = Producer(env, kafka, ProducerSettings(linger_us=1_000_000, batch_records=2))
    answers = send(producer, kafka, [1, 2, 3])
    env.run(10_000)
    assert answers == [([1, 2], None)]


def test_a_poll_hands_out_at_most_what_is_allowed():
    env, kafka = cluster()
    group = ConsumerGroup(env, kafka, "t", ConsumerSettings(max_poll_records=4))
    consumer, polls = Consumer(group, "c"), []
    group.join(consumer)

    def loop():
        while True:
            polled = yield from consumer.poll()
            polls.append([(offset, records) for _, offset, records in polled])

    env.process(loop())
    send(Producer(env, kafka, ProducerSettings(linger_us=0)), kafka, list(range(10)))
    env.run(100_000)
    assert polls == [[(0, [0, 1, 2, 3])], [(4, [4, 5, 6, 7])], [(8, [8, 9])]]


def test_an_answer_has_all_partitions_of_a_leader_and_what_comes_after_it_waits_for_another_poll():
    """As in the Java client: a fetch is sent when the last answer has been handed out, and is answered with what is
    readable then."""
    env, kafka = cluster(partitions=6, replication_lag_us=0)
    group = ConsumerGroup(env, kafka, "t")
    consumer, polls, times = Consumer(group, "c"), [], []
    group.join(consumer)
    producer = Producer(env, kafka, ProducerSettings(linger_us=0))

    def work():
        while True:
            polled = yield from consumer.poll()
            polls.append(sorted(record for _, _, records in polled for record in records))
            times.append(env.now)
            yield env.timeout(10_000)

    def publish():
        for hundreds in range(3):
            for partition in kafka.topics["t"]:
                producer.send(partition, [100 * hundreds + partition.number], lambda records, error: None)
            yield env.timeout(4_000)

    env.process(work())
    env.process(publish())
    env.run(50_000)
    # the 200s are there at 8 ms, and the second poll comes after 10: its answers were given at 4 ms
    assert 10_000 < times[1] < 11_000
    assert polls == [[hundreds + number for number in range(6)] for hundreds in (0, 100, 200)]


def test_the_commit_of_a_member_that_lost_its_partitions_is_refused_and_its_records_come_again():
    env, kafka = cluster()
    group = ConsumerGroup(env, kafka, "t", ConsumerSettings(rebalance_us=1000))
    old, new, seen, outcome = Consumer(group, "old"), Consumer(group, "new"), [], []
    group.join(old)

    def slow():
        polled = yield from old.poll()
        yield env.timeout(50_000)
        outcome.append((yield from old.commit(polled)))

    env.process(slow())
    send(Producer(env, kafka, ProducerSettings(linger_us=0)), kafka, [7, 8])
    env.run(10_000)
    group.members.append(new)
    group.leave(old)
    consume(env, new, seen)
    env.run(200_000)
    assert outcome == [False]
    assert group.fenced_commits == 1
    assert [record for _, record in seen] == [7, 8]


def rebalance_during_a_pack(works_us, **settings):
    """(outcome of the commit, records that each of two members got) when a third leaves while the first has a pack."""
    env, kafka = cluster(partitions=2)
    group = ConsumerGroup(env, kafka, "t", ConsumerSettings(rebalance_us=10_000, **settings))
    slow, gone, seen, outcome = Consumer(group, "slow"), Consumer(group, "gone"), [], []
    group.join(slow, gone)

    def work():
        while True:
            polled = yield from slow.poll()
            seen.extend(record for _, _, records in polled for record in records)
            yield env.timeout(works_us)
            outcome.append((yield from slow.commit(polled)))

    env.process(work())
    send(Producer(env, kafka, ProducerSettings(linger_us=0)), kafka, [7, 8])
    env.run(5_000)
    group.leave(gone)
    env.run(1_000_000)
    return outcome, seen, list(slow.positions)


@pytest.mark.parametrize("works_us", [9_000, 200_000])
def test_a_rebalance_waits_for_the_packs_of_those_that_stay_and_their_commits_count(works_us):
    outcome, seen, owned = rebalance_during_a_pack(works_us)
    assert (outcome, seen, len(owned)) == ([True], [7, 8], 2)


def test_a_rebalance_does_not_wait_for_longer_than_the_maximum_between_polls():
    outcome, _, _ = rebalance_during_a_pack(200_000, max_poll_interval_us=100_000)
    assert outcome == [False]


def retried(idempotent):
    """What the log holds after the answer to the first request was lost."""
    env, kafka = cluster()
    settings = ProducerSettings(linger_us=0, idempotent=idempotent, request_timeout_us=10_000, retry_backoff_us=1000)
    producer = Producer(env, kafka, settings)
    producer.lose_requests.append("response")
    send(producer, kafka, [1])
    send(producer, kafka, [2])
    env.run(100_000)
    return kafka.topics["t"][0].log.read(0, 100, 10**9)[1]


def test_a_lost_answer_doubles_a_batch_behind_its_successor_unless_the_producer_is_idempotent():
    assert retried(idempotent=False) == [1, 2, 1]
    assert retried(idempotent=True) == [1, 2]


def test_a_leader_change_loses_what_was_acknowledged_by_the_leader_alone():
    env, kafka = cluster(replication_lag_us=5000)
    answers = send(Producer(env, kafka, ProducerSettings(linger_us=0, acks="1")), kafka, [1])
    env.run(2000)
    assert answers == [([1], None)]
    assert kafka.fail_leader(kafka.topics["t"][0]) == [1]

    env, kafka = cluster(replication_lag_us=5000)
    answers = send(Producer(env, kafka, ProducerSettings(linger_us=0, acks="all")), kafka, [1])
    env.run(2000)
    assert answers == []


def test_a_member_knows_up_to_where_another_owner_may_have_worked():
    env, kafka = cluster(replication_lag_us=100)
    (partition,) = kafka.topics["t"]
    group = ConsumerGroup(env, kafka, "t", ConsumerSettings(rebalance_us=1000))
    first, second, seen = Consumer(group, "first"), Consumer(group, "second"), []
    group.join(first, second)
    assert first.taken_over == {}, "nobody was there before the first assignment"
    consume(env, first, seen, commit=False)
    consume(env, second, seen)
    send(Producer(env, kafka, ProducerSettings(linger_us=0)), kafka, [1, 2, 3])
    env.run(50_000)
    group.leave(first)
    env.run(100_000)
    assert second.taken_over == {partition: 3}
    assert [record for _, record in seen] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 97), ("hello", 99162322), ("msg.all", 1342595508), ("polygenelubricants", -(1 << 31))],
)
def test_groups_are_hashed_as_java_hashes_strings(text, hashed):
    assert java_hash(text) == hashed
    assert 0 <= offsets_partition_for(text) < 50


def test_the_smallest_integer_has_no_absolute_value_and_goes_to_the_first_partition():
    assert offsets_partition_for("polygenelubricants") == 0
    assert offsets_partition_for("hello") == 99162322 % 50


def test_commits_of_many_groups_are_spread_over_the_brokers():
    env, kafka = cluster()
    groups = [ConsumerGroup(env, kafka, "t", group_id=f"group-{number}") for number in range(60)]
    assert {group.coordinator for group in groups} == {0, 1, 2}
    served = [0, 0, 0]

    def note(broker, what, *_):
        served[broker] += what == "commit"

    kafka.on_request = note
    for group in groups:
        consumer = Consumer(group, "c")
        group.join(consumer)
        consume(env, consumer, [])
    send(Producer(env, kafka, ProducerSettings(linger_us=0)), kafka, [1])
    env.run(50_000)
    assert sum(served) == 60
    assert max(served) < 2 * min(served)
