"""Key to partition, exactly as Kafka's Java client computes it (``BuiltInPartitioner.partitionForKey``, murmur2)."""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of the Java client, as the signed integer that Java prints."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a keyed record: the hash with its sign bit cleared, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
