"""Eviction: what goes when memory is full (``performEvictions`` of Redis 7.0).

As the server does it: a few keys are sampled, the best of them are kept in a pool of sixteen from one eviction to
the next, and the best of the pool goes. Draws come from the shard's own stream, so that the same run evicts the same
keys. The server gives up a long eviction after some time and goes on later; here each one is carried through.
"""

from __future__ import annotations

from bisect import insort

from orderlab.sim.redis.database import DrawableKeys, KeyUse, name_in, place_of
from orderlab.sim.redis.memory import MemoryAccount
from orderlab.sim.redis.node_state import EvictionPool, NodeState
from orderlab.sim.redis.random_draws import draw

POOL_SIZE = 16
LFU_FIRST = 5
"""The counter of a new key, so that it is not the first to go."""
LFU_MAX = 255
_MS_PER_MINUTE = 60_000
_LRU_RESOLUTION_MS = 1000


class KeySet:
    """Keys that can be added, removed and drawn from in constant time."""

    __slots__ = ("_keys", "_positions")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._positions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> bytes:
        return self._keys[position]

    def add(self, key: bytes) -> None:
        """Add ``key`` if it is not there."""
        if key not in self._positions:
            self._positions[key] = len(self._keys)
            self._keys.append(key)

    def discard(self, key: bytes) -> None:
        """Remove ``key`` if it is there; the last one takes its place."""
        position = self._positions.pop(key, None)
        if position is not None:
            last = self._keys.pop()
            if last != key:
                self._keys[position] = last
                self._positions[last] = position


class KeysInUse:
    """When each key was last used, and how often: 24 bits per object on a server. Not part of a frozen state."""

    def __init__(self, shard: NodeState) -> None:
        self._shard = shard
        self.is_lfu = shard.config.maxmemory_policy.endswith("lfu")
        self.keys = KeySet()
        self.volatile = KeySet()
        """Those that have a deadline."""
        self._last_ms: dict[bytes, int] = {}
        self._counters: dict[bytes, int] = {}
        self.reset()

    def anew(self) -> KeysInUse:
        """The same for the database that is selected now, each key of which counts as used now."""
        return KeysInUse(self._shard)

    def reset(self) -> None:
        """The whole database was replaced: every key counts as used now."""
        self.keys, self.volatile = KeySet(), KeySet()
        self._last_ms.clear()
        self._counters.clear()
        for key in self._shard.data:
            self.admit(key)
        for key in self._shard.deadlines_ms:
            self.volatile.add(key)

    def admit(self, key: bytes) -> None:
        """``key`` may be new."""
        if key not in self._last_ms:
            self.keys.add(key)
            self._last_ms[key] = self._shard.now_ms
            self._counters[key] = LFU_FIRST

    def drop(self, key: bytes) -> None:
        """``key`` is gone."""
        self.keys.discard(key)
        self.volatile.discard(key)
        self._last_ms.pop(key, None)
        self._counters.pop(key, None)

    def note_deadline(self, key: bytes, has_deadline: bool) -> None:
        """``key`` was given a deadline, or has lost it."""
        if has_deadline:
            self.volatile.add(key)
        else:
            self.volatile.discard(key)

    def touch(self, key: bytes) -> None:
        """``key`` was just used. Its LFU counter grows with a probability that falls as it grows (``LFULogIncr``)."""
        if self.is_lfu:
            counter = self.frequency(key)
            if counter < LFU_MAX:
                above = max(0, counter - LFU_FIRST)
                counter += draw(self._shard, above * self._shard.config.lfu_log_factor + 1) == 0
            self._counters[key] = counter
        self._last_ms[key] = self._shard.now_ms

    def idle_ms(self, key: bytes) -> int:
        """Time since the last use, in the server's resolution of a second."""
        tick = _LRU_RESOLUTION_MS
        return (self._shard.now_ms // tick - self._last_ms[key] // tick) * tick

    def frequency(self, key: bytes) -> int:
        """The LFU counter now: it loses one for each ``lfu-decay-time`` minutes without use."""
        decay_minutes = self._shard.config.lfu_decay_time
        counter = self._counters[key]
        if not decay_minutes:
            return counter
        idle_minutes = self._shard.now_ms // _MS_PER_MINUTE - self._last_ms[key] // _MS_PER_MINUTE
        return max(0, counter - idle_minutes // decay_minutes)


def _offer(pool: EvictionPool, key: bytes, idleness: int) -> None:
    """Consider ``key``; the higher its idleness the better."""
    candidates = pool.candidates
    if any(key == other for _, other in candidates):
        return
    insort(candidates, (idleness, key))
    if len(candidates) > POOL_SIZE:
        del candidates[0]


def _take(shard: NodeState, volatile_only: bool) -> bytes | None:
    """The best candidate that is still there, by its name among the keys of all databases."""
    candidates = shard.eviction_pool.candidates
    while candidates:
        name = candidates.pop()[1]
        database, key = shard.home_of(name)
        if key in database.deadlines_ms or (not volatile_only and key in database.data):
            return name
    return None


def prepare(shard: NodeState) -> None:
    """Begin to account for memory and for the use of keys, if that has not begun."""
    if shard.memory is None:
        shard.memory = MemoryAccount(shard)
        shard.observe_changes()
    if shard.access is None or shard.access.is_lfu != shard.config.maxmemory_policy.endswith("lfu"):
        shard.forget_use()
        shard.access = KeysInUse(shard)


def make_room(shard: NodeState) -> bool:
    """Evict keys until the estimate of used memory is within ``maxmemory``; whether that was achieved. A replica
    leaves eviction to its master (``replica-ignore-maxmemory``)."""
    config = shard.config
    if not config.maxmemory or shard.is_replica:
        return True
    prepare(shard)
    assert shard.memory is not None
    while shard.memory.used() > config.maxmemory:
        name = None if config.maxmemory_policy == "noeviction" else _choose(shard)
        if name is None:
            return False
        selected = shard.database
        index, key = place_of(name)
        shard.use(index)
        shard.remove(key)
        shard.evicted_keys += 1
        if shard.evicted is not None:
            shard.evicted.append(name)
        if shard.on_vanished is not None:
            shard.on_vanished(key)
        shard.use(selected)
    return True


def _choose(shard: NodeState) -> bytes | None:
    """The key that the policy gives up next, by its name; None if there is none."""
    policy, pool = shard.config.maxmemory_policy, shard.eviction_pool
    volatile_only = not policy.startswith("allkeys")
    while eligible := _eligible(shard, volatile_only):
        if policy.endswith("random"):  # the databases take turns, however full they are
            index = min(eligible, key=lambda one: (one - pool.next_database) % shard.config.databases)
            pool.next_database = index + 1
            return name_in(index, eligible[index][draw(shard, len(eligible[index]))])
        selected = shard.database
        for index, keys in eligible.items():
            shard.use(index)
            assert shard.access is not None
            for _ in range(min(shard.config.maxmemory_samples, len(keys))):
                key = keys[draw(shard, len(keys))]
                _offer(pool, name_in(index, key), _idleness(shard, shard.access, policy, key))
        shard.use(selected)
        chosen = _take(shard, volatile_only)
        if chosen is not None:
            return chosen
    return None


def _eligible(shard: NodeState, volatile_only: bool) -> dict[int, DrawableKeys]:
    """What may go, by the index of its database; none of them is empty."""
    found = {}
    selected = shard.database
    for index in shard.databases():
        shard.use(index)
        assert shard.access is not None
        keys = shard.access.volatile if volatile_only else shard.access.keys
        if keys:
            found[index] = keys
    shard.use(selected)
    return found


def _idleness(shard: NodeState, use: KeyUse, policy: str, key: bytes) -> int:
    if policy.endswith("lru"):
        return use.idle_ms(key)
    if policy.endswith("lfu"):
        return LFU_MAX - use.frequency(key)
    return -shard.deadlines_ms[key]
