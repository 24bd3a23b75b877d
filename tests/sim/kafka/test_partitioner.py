"""murmur2 and the key → partition rule, against the values of the Java client's own test."""

from __future__ import annotations

import pytest

from orderlab.sim.kafka.producer import murmur2, partition_for_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_a_negative_hash_loses_its_sign_bit_only() -> None:
    assert murmur2(b"21") < 0
    assert partition_for_key(b"21", 12) == (-973932308 & 0x7FFFFFFF) % 12 == 0


def test_keys_spread_over_all_partitions() -> None:
    assert {partition_for_key(f"client-{number}".encode(), 12) for number in range(200)} == set(range(12))
