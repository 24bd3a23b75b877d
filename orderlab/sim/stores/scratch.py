"""Trying something on a backend and taking it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orderlab.sim.redis.backends import Backend, KernelBackend


@contextmanager
def untouched(backend: Backend) -> Iterator[None]:
    """Whatever happens to the keys within is undone at the end."""
    if isinstance(backend, KernelBackend):
        shard = backend.shard
        was_journaling = shard.undo is not None
        mark = shard.snapshot()
        try:
            yield
        finally:
            shard.rollback(mark)
            if not was_journaling:
                shard.forget_snapshots()
        return
    before = backend.keyspace()
    try:
        yield
    finally:
        if backend.keyspace() != before:
            backend.load(before)
