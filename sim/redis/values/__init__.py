"""Values of the keyspace, one file per type. A string is plain ``bytes``."""

from __future__ import annotations

from sim.redis.values.sorted_set import SortedSet

Value = bytes | SortedSet

__all__ = ["SortedSet", "Value"]
