"""Key to partition, exactly as Kafka's Java client computes it (``BuiltInPartitioner.partitionForKey``, murmur2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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


def murmur2_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """``murmur2`` of every row of bytes, as unsigned integers: the same hash for many keys of one length."""
    count, length = rows.shape
    whole = length & ~3
    hashed = np.full(count, (_SEED ^ length) & _MASK, np.uint64)
    mask, multiplier, shift = np.uint64(_MASK), np.uint64(_MULTIPLIER), np.uint64(24)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4").astype(np.uint64)
    for column in range(whole // 4):
        word = words[:, column] * multiplier & mask
        word = (word ^ word >> shift) * multiplier & mask
        hashed = hashed * multiplier & mask ^ word
    if whole < length:
        rest = np.zeros(count, np.uint64)
        for column in range(length - 1, whole - 1, -1):
            rest = rest << np.uint64(8) | rows[:, column].astype(np.uint64)
        hashed = (hashed ^ rest) * multiplier & mask
    hashed = (hashed ^ hashed >> np.uint64(13)) * multiplier & mask
    return (hashed ^ hashed >> np.uint64(15)).astype(np.int64)


def partitions_for_rows(rows: npt.NDArray[np.uint8], partitions: int) -> npt.NDArray[np.int64]:
    """``partition_for_key`` of every row of bytes."""
    return (murmur2_rows(rows) & 0x7FFFFFFF) % partitions
