"""Stores whose keys are sorted: bytes to bytes, written in atomic batches, read by seek and next.

Two, behind one interface: `MemoryStore` for speed, and `RocksStore`, the embedded database that the proposal names, for
truth. An iterator reads the store as it was when the iterator was made, and a snapshot as it was when the snapshot was
taken, in both.

What a `RocksStore` has taken survives the end of its process at any moment, whole batches only: each is one record of
the write-ahead log, which the operating system holds. It survives a machine that loses power only with ``sync``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

Pair = tuple[bytes, bytes]


class View(Protocol):
    """What can be read."""

    def seek(self, key: bytes) -> Iterator[Pair]:
        """The pairs from the first key that is not less than ``key`` on, in order; each `next` is one step."""


class OrderedStore(View, Protocol):
    """A view that changes."""

    def put(self, batch: Iterable[Pair]) -> None:
        """Write all pairs or none; of two with one key the later stands."""

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Remove the keys from ``start`` up to and without ``stop``."""

    def sync(self) -> None:
        """Return once what was written survives a machine that loses power."""

    def snapshot(self) -> View:
        """The store as it is now, whatever is written later."""

    def close(self) -> None:
        """Give the files back."""


BLOCK = 512
"""Keys that a block of the store in memory is cut down to; it is cut when it has twice as many."""


class _Blocks:
    """Sorted pairs in sorted blocks. Never changed once made: what writes makes new blocks in a new list."""

    __slots__ = ("blocks", "firsts")

    def __init__(self, blocks: list[list[Pair]]) -> None:
        self.blocks = blocks
        self.firsts = [block[0][0] for block in blocks]

    def seek(self, key: bytes) -> Iterator[Pair]:
        at = max(bisect_right(self.firsts, key) - 1, 0)
        if at < len(self.blocks):
            block = self.blocks[at]
            yield from islice(block, bisect_left(block, (key,)), None)
            for following in range(at + 1, len(self.blocks)):
                yield from self.blocks[following]


class MemoryStore:
    """Blocks of sorted pairs, copied when they are written to, so that a snapshot costs nothing."""

    def __init__(self) -> None:
        self._now = _Blocks([])

    def seek(self, key: bytes) -> Iterator[Pair]:
        return self._now.seek(key)

    def put(self, batch: Iterable[Pair]) -> None:
        fresh = sorted(dict(batch).items())
        if not fresh:
            return
        blocks: list[list[Pair]] = []
        begun = 0
        old, firsts = self._now.blocks or [[]], self._now.firsts
        for at, block in enumerate(old):
            # pairs before the first block belong to it, and those behind the last to the last
            ended = bisect_left(fresh, (firsts[at + 1],), begun) if at + 1 < len(firsts) else len(fresh)
            if begun == ended:
                blocks.append(block)
                continue
            merged = sorted({**dict(block), **dict(fresh[begun:ended])}.items())
            size = BLOCK if len(merged) > 2 * BLOCK else len(merged)
            blocks += (merged[start : start + size] for start in range(0, len(merged), size))
            begun = ended
        self._now = _Blocks(blocks)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        if start >= stop:
            return
        left = (
            block[: bisect_left(block, (start,))] + block[bisect_left(block, (stop,)) :] for block in self._now.blocks
        )
        self._now = _Blocks([block for block in left if block])

    def sync(self) -> None:
        """Do nothing: what is in memory does not outlast the process."""

    def snapshot(self) -> View:
        return self._now

    def close(self) -> None:
        """Do nothing: no file is held."""


class RocksStore:
    """A RocksDB database at ``path``, made if there is none. Raises Exception of rocksdict where another process has it
    open."""

    def __init__(self, path: Path, sync: bool = False) -> None:
        import rocksdict

        self._rocksdict: Any = rocksdict
        self._db: Any = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
        if sync:
            options = rocksdict.WriteOptions()
            options.sync = True
            self._db.set_write_options(options)

    def seek(self, key: bytes) -> Iterator[Pair]:
        pairs: Iterator[Pair] = self._db.items(from_key=key)
        return pairs

    def put(self, batch: Iterable[Pair]) -> None:
        written = self._rocksdict.WriteBatch(raw_mode=True)
        put = written.put
        for key, value in batch:
            put(key, value)
        self._db.write(written)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        if start < stop:  # RocksDB refuses the other order when it reads, not here
            self._db.delete_range(start, stop)

    def sync(self) -> None:
        self._db.flush_wal(sync=True)

    def snapshot(self) -> View:
        return _RocksSnapshot(self._db.iter())

    def close(self) -> None:
        self._db.close()


class _RocksSnapshot:
    """One iterator, which RocksDB keeps on what was there when it was made. The binding's own snapshots (rocksdict
    0.3.29) show later writes as well; those who read through this one take turns, each going on behind the key where it
    was."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._turn: object = None

    def seek(self, key: bytes) -> Iterator[Pair]:
        iterator, me = self._iterator, object()
        while True:
            if self._turn is not me:
                iterator.seek(key)
                self._turn = me
            if not iterator.valid():
                return
            found: Pair = iterator.key(), iterator.value()
            key = found[0] + b"\0"
            iterator.next()
            yield found
