"""Memory that a pipeline's look-ups will want, asked for before it runs (``lookahead.c``): in a large keyspace each look-up waits for memory three times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orderlab.sim.native.install import extension

KEYS_MIN = 4096
"""The caches hold a smaller keyspace."""
_machine_code = extension(Path(__file__).with_suffix(".c"))


def look_ahead(data: Mapping[bytes, Any], commands: Sequence[Sequence[bytes]]) -> None:
    """Ask for what the keys of these EVALSHAs, lists in a list, hold in ``data``; nothing changes but the time that they take. Without machine code,
    or in a Python whose dictionaries are not known, nothing happens."""
    if _machine_code is not None and len(data) >= KEYS_MIN and len(commands) > 1:
        _machine_code.prefetch(data, commands)
