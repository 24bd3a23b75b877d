"""The order in which a hash table hands out its members.

A server's order depends on a random seed, so a script may rely on none. This one depends on the members alone, not on
how they came in: equal values answer equally, and a script that relies on the order of insertion is found out. The
position of a member is also its place in a scan: a SCAN cursor is the first position that is still to come, which
returns every member that stays from start to end, whatever else comes and goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from zlib import crc32

Place = tuple[int, bytes]


def place(member: bytes) -> Place:
    """What the order sorts by."""
    return crc32(member), member


def in_hash_order(members: Iterable[bytes]) -> list[bytes]:
    """The members as the hash table hands them out."""
    return sorted(members, key=place)


def add_in_hash_order(order: list[bytes], member: bytes) -> None:
    """Put a new member into its place."""
    order.insert(bisect_left(order, place(member), key=place), member)


def remove_from_hash_order(order: list[bytes], member: bytes) -> None:
    """Take a member out that is there."""
    del order[bisect_left(order, place(member), key=place)]


def scan_page(order: list[bytes], cursor: int, count: int) -> tuple[int, list[bytes]]:
    """The next cursor (0 at the end) and about ``count`` members from ``cursor`` on: members that share a position
    come together."""
    begin = bisect_left(order, (cursor, b""), key=place)
    end = begin + count
    if end >= len(order):
        return 0, order[begin:]
    following = crc32(order[end - 1]) + 1
    end = bisect_left(order, (following, b""), end, key=place)
    return (following if end < len(order) else 0), order[begin:end]
