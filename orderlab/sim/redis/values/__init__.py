"""Values of the keyspace, one file per type. A string is plain ``bytes``."""

from __future__ import annotations

from orderlab.sim.redis.config import EncodingLimits
from orderlab.sim.redis.values.hash import ExpiringHash, Hash
from orderlab.sim.redis.values.list import List
from orderlab.sim.redis.values.set import Set
from orderlab.sim.redis.values.sorted_set import SortedSet
from orderlab.sim.redis.values.stream import Stream

Value = bytes | SortedSet | Hash | List | Set | Stream

__all__ = ["EncodingLimits", "ExpiringHash", "Hash", "List", "Set", "SortedSet", "Stream", "Value"]
