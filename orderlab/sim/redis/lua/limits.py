"""What one run of a script may use, as it is counted; the counting is in `libraries/limits.lua`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of a script may use before it is stopped."""

    instructions_max: int = 100_000_000
    """Instructions of the Lua machine, counted in steps of 1000; what a call of the library copies counts too."""
    work_max: int = 100_000_000
    """What its commands may do, in the units of ``work``."""
    seconds_max: float = 20.0
    """Processor time from the second thousand instructions on: the last resort, for what no count sees (without
    machine code: comparing two strings of 60 MB is one instruction). Counted work ends in 5 s on a machine of 2025.
    Looked at after every 1000 instructions, and more often the more memory a script holds. One call that never ends is
    beyond this; see ``watchdog``."""
    memory_bytes_max: int = 128 << 20
    """Memory of the Lua runtime."""
    argument_bytes_max: int = 128 << 20
    """Bytes handed to redis.call and redis.pcall in all, each call with ``CALL_BYTES`` more: what a script may leave in
    the keyspace."""
