"""What every test may take for granted of its process."""

from __future__ import annotations

import gc
import signal

# A shell without job control starts what it puts into the background with Ctrl-C ignored, and children inherit that: the
# tests that end a program by Ctrl-C would wait for ever, or find that it has gone on to its end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Look seldom for cyclic garbage: a tenth of the suite's time went into passing over what is kept to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 20)
