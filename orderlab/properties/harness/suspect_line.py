"""The line of Lua to look at first: where the call stands that made an operation do what it did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orderlab.properties.harness.recording import Record
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed, Result

REMOVING = frozenset(
    b"del unlink getdel zrem zremrangebyrank zremrangebyscore zremrangebylex hdel lrem ltrim lpop rpop srem spop "
    b"zpopmin zpopmax expire pexpire expireat pexpireat set".split()
)
"""Commands that can take something away."""
ERROR_LINE = re.compile(rb"user_(?:script|function):(\d+)")
"""Where Redis says that a script failed."""


class LuaLine(NamedTuple):
    """A line of a script and the call in it. Empty where nothing was called; without a line where no script called it."""

    path: Path | None = None
    line: int | None = None
    call: str = ""
    source: str = ""
    written: str = ""
    """Of a script that failed there: the place and the call with which it had written last; nothing takes that back."""

    @property
    def place(self) -> str:
        """``file:line``, or nothing."""
        return f"{self.path}:{self.line}" if self.path is not None and self.line is not None else ""


def line_to_look_at(records: Sequence[Record], binding: Binding, result: Result | None) -> LuaLine:
    """Of what the operations of a step called, and what the step answered."""
    failed = ERROR_LINE.search(result.error) if isinstance(result, Failed) else None
    records = records[-1:] if failed else records
    if not records:
        return LuaLine()
    record, call = _guilty(records)
    script = binding.operation(record.operation).script
    path, lines = (script.path, script.source.decode("utf-8", "replace").splitlines()) if script else (None, [])
    line = int(failed[1]) if failed else call.line if call else None
    writes = [one for one in record.calls if one.changes and one.line not in (None, line)]
    if not failed and not (call and isinstance(call.reply, ErrorReply)):
        writes = []
    if call is not None and line != call.line:
        call = None  # the script failed elsewhere than in its last call
    return LuaLine(
        path,
        line,
        _shown(call) if call else "",
        lines[line - 1].strip() if line and line <= len(lines) else "",
        f"{path}:{writes[-1].line}: {_shown(writes[-1])}" if writes else "",
    )


def _shown(call: Effect) -> str:
    return " ".join(shown_bytes(part[:40]) for part in call.argv)


def shown_bytes(value: bytes) -> str:
    """Bytes as text: what cannot be printed as escapes."""
    return value.decode("latin-1").encode("unicode_escape").decode("ascii")


def _guilty(records: Sequence[Record]) -> tuple[Record, Effect | None]:
    """The call to look at first: one that failed, else the last that took something away, wrote, or was made."""
    calls = [(record, call) for record in records for call in record.calls]
    failed = [one for one in calls if isinstance(one[1].reply, ErrorReply)]
    removing = [one for one in calls if one[1].changes and one[1].argv[0].lower() in REMOVING]
    for choice in (failed, removing, [one for one in calls if one[1].changes], calls):
        if choice:
            return choice[-1]
    return records[-1], None
