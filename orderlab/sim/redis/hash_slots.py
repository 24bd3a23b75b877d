"""Hash slots: which of the 16,384 slots of a Redis Cluster a key belongs to.

The slot of a key is CRC16 modulo 16,384 (XMODEM polynomial 0x1021, initial value 0). Only the *hash tag* is hashed when
there is one: the bytes between the first ``{`` and the first ``}`` after it, provided that they are not empty.
Source: Redis Cluster specification, "Keys distribution model" and "Hash tags"; ``keyHashSlot`` of Redis 7.0.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable

SLOT_COUNT = 16_384


def hash_tag(key: bytes) -> bytes:
    """The part of ``key`` that is hashed: its hash tag, or the whole key when it has none.

    >>> hash_tag(b"{client}_messages"), hash_tag(b"{}_messages"), hash_tag(b"{{a}}"), hash_tag(b"x}{y")
    (b'client', b'{}_messages', b'{a', b'x}{y')
    """
    opening = key.find(b"{")
    if opening < 0:
        return key
    closing = key.find(b"}", opening + 1)
    if closing <= opening + 1:
        return key
    return key[opening + 1 : closing]


def hash_slot(key: bytes) -> int:
    """The slot of ``key``, 0..16383.

    >>> hash_slot(b"foo"), hash_slot(b"{foo}bar"), hash_slot(b"")
    (12182, 12182, 0)
    """
    return crc_hqx(hash_tag(key), 0) % SLOT_COUNT


def hash_slots(keys: Iterable[bytes]) -> frozenset[int]:
    """The set of slots that ``keys`` fall into: a multi-key command needs exactly one."""
    return frozenset(map(hash_slot, keys))
