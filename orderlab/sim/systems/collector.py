"""Python's cyclic garbage collector during a run: millions of objects stay to the end, and few cycles come up."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000
"""Between two collections; Python's own 700 would look at every batch of messages under way again and again."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """What exists now is not looked at until the end, what comes is looked at less often."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
