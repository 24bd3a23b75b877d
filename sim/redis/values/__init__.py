"""Values of the keyspace, one file per type. A string is plain ``bytes``."""

from __future__ import annotations

from sim.redis.values.encodings import EncodingLimits
from sim.redis.values.hash import Hash
from sim.redis.values.list import List
from sim.redis.values.set import Set
from sim.redis.values.sorted_set import SortedSet

Value = bytes | SortedSet | Hash | List | Set

__all__ = ["EncodingLimits", "Hash", "List", "Set", "SortedSet", "Value"]
