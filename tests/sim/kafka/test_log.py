"""The partition log: visibility, idempotence, failover, retention."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orderlab.sim.kafka.broker import SEQUENCES_REMEMBERED, AppendError, Batch, PartitionLog


def test_a_record_is_readable_once_the_followers_have_it() -> None:
    log = PartitionLog()
    log.append([10, 11], now_us=100, lag_us=50)
    assert log.read(0, 10, now_us=149) == (0, [])
    assert log.next_visible_us(0) == 150
    assert log.read(0, 10, now_us=150) == (0, [10, 11])
    assert log.read(1, 10, now_us=150) == (1, [11])
    assert log.next_visible_us(2) is None


def test_a_failover_loses_what_no_follower_had() -> None:
    log = PartitionLog()
    log.append([1], 0, 10)
    log.append([2, 3], 5, 10)
    assert log.fail_over(12) == [2, 3]
    assert (log.end_offset, log.leader_epoch) == (1, 1)
    log.append([4], 20, 0)
    assert log.read(0, 10, 20) == (0, [1, 4])


def test_an_idempotent_batch_is_appended_once_and_in_order() -> None:
    log = PartitionLog()
    first = log.append([1, 2], 0, 0, producer=7, sequence=0)
    assert log.append([1, 2], 1, 0, producer=7, sequence=0) is first
    assert log.append([4], 2, 0, producer=7, sequence=3) is AppendError.OUT_OF_ORDER_SEQUENCE
    assert isinstance(log.append([3], 3, 0, producer=7, sequence=2), Batch)
    assert log.read(0, 10, 3) == (0, [1, 2, 3])


def test_a_batch_that_the_leader_has_forgotten_is_a_duplicate_and_not_out_of_order() -> None:
    log = PartitionLog()
    batches = [
        log.append([number], number, 0, producer=7, sequence=number) for number in range(SEQUENCES_REMEMBERED + 1)
    ]
    assert log.append([1], 9, 0, producer=7, sequence=1) is batches[1]
    assert log.append([0], 9, 0, producer=7, sequence=0) is AppendError.DUPLICATE_SEQUENCE
    assert log.read(0, 10, 9) == (0, [0, 1, 2, 3, 4, 5])


def test_without_idempotence_a_repeated_batch_is_there_twice() -> None:
    log = PartitionLog()
    log.append([1], 0, 0)
    log.append([1], 1, 0)
    assert log.read(0, 10, 1) == (0, [1, 1])


def test_after_a_failover_the_lost_batch_can_be_appended_again() -> None:
    log = PartitionLog()
    log.append([1], 0, 0, producer=7, sequence=0)
    log.append([2], 1, 99, producer=7, sequence=1)
    assert log.fail_over(2) == [2]
    assert isinstance(log.append([2], 3, 0, producer=7, sequence=1), Batch)
    assert log.read(0, 10, 3) == (0, [1, 2])


def test_retention_moves_the_start() -> None:
    log = PartitionLog()
    for at in range(3):
        log.append([at], at * 10, 0)
    log.high_watermark(20)
    log.retain(before_us=15)
    assert log.start_offset == 2
    assert log.read(0, 10, 20) == (2, [2])


def test_what_is_not_committed_stays_however_old() -> None:
    log = PartitionLog()
    for at in range(3):
        log.append([at], at * 10, 0)
    log.high_watermark(20)
    log.retain(before_us=100, committed=1)
    assert log.read(0, 10, 20) == (1, [1, 2])


def test_who_reads_below_the_start_waits_for_what_comes_next() -> None:
    log = PartitionLog()
    log.append([0], 0, 0)
    log.high_watermark(0)
    log.retain(before_us=1)
    assert log.next_visible_us(0) is None
    log.append([1], 5, 20)
    assert log.next_visible_us(0) == 25


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of the log
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20), st.integers(0, 30)), max_size=12), st.data())
def test_reading_in_any_pieces_gives_the_replicated_prefix(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    log, plain, now = PartitionLog(), [], 0
    for size, wait, lag in steps:
        now += wait
        records = list(range(len(plain), len(plain) + size))
        batch = log.append(records, now, lag)
        assert isinstance(batch, Batch)
        plain += [(record, batch.replicated_us) for record in records]
    now += data.draw(st.integers(0, 40))
    expected = [record for record, at in plain if at <= now]
    position, found = 0, []
    while True:
        first, part = log.read(position, data.draw(st.integers(1, 5)), now)
        assert first == position
        if not part:
            break
        found += part
        position += len(part)
    assert found == expected
    assert log.high_watermark(now) == len(expected)
