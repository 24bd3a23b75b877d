"""What the lines of scripts called, as the records of operations tell it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed, Result, Script
from orderlab.sim.stores.records import Record

REMOVING = frozenset(
    b"del unlink getdel zrem zremrangebyrank zremrangebyscore zremrangebylex hdel lrem ltrim lpop rpop srem spop "
    b"zpopmin zpopmax expire pexpire expireat pexpireat set".split()
)
"""Commands that can take something away."""
ERROR_LINE = re.compile(rb"user_(?:script|function):(\d+)")
"""Where Redis says that a script failed."""
ERROR_SCRIPT = re.compile(rb"script: ([^\s,]+), on @user_(?:script|function):\d+")
"""Which one it says it was."""


class LuaLine(NamedTuple):
    """A line of a script and the call in it. Empty where nothing was called; without a line where no script called
    it."""

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
    caller = next((by for one, by in zip(record.calls, record.callers, strict=False) if one is call), b"")
    if failed and isinstance(result, Failed):
        caller = (
            named[1].lower()
            if (named := ERROR_SCRIPT.search(result.error))
            else next(filter(None, record.callers[::-1]), b"")
        )
    line = int(failed[1]) if failed else call.line if call else None
    script = script_of(binding, record.operation, caller)
    _, path, number = script.place_of(line) if script and line else ("", script.path if script else None, line)
    writes = [
        (one, by)
        for one, by in zip(record.calls, record.callers, strict=False)
        if one.changes and (one.line, by) != (line, caller)
    ]
    writes = [one for one in writes if one[0].line is not None]
    if not failed and not (call and isinstance(call.reply, ErrorReply)):
        writes = []
    if call is not None and line != call.line:
        call = None  # the script failed elsewhere than in its last call
    return LuaLine(
        path,
        number,
        _shown(call) if call else "",
        script.text_of(line) if script and line else "",
        f"{place_of_call(binding, record.operation, *writes[-1])}: {_shown(writes[-1][0])}" if writes else "",
    )


def script_of(binding: Binding, operation: str, caller: bytes) -> Script | None:
    """The script of an operation that is called so (its digest, the function of a library); the first one where none
    is."""
    found = binding.operation(operation).script
    for version in binding.versions.values():
        for step in version.operation(operation).steps:
            if step.script is not None and caller in (
                (step.function or "").lower().encode(),
                step.script.sha1.encode(),
            ):
                return step.script
    return found


def place_of_call(binding: Binding, operation: str, call: Effect, caller: bytes) -> str:
    """``file:line`` of a script's call; nothing where no script called it."""
    script = script_of(binding, operation, caller)
    if script is None or call.line is None:
        return ""
    _, path, line = script.place_of(call.line)
    return f"{path}:{line}"


def lines_run(binding: Binding, records: Sequence[Record]) -> tuple[tuple[Path, int], ...]:
    """The file and the line of every call that scripts made, each once, in order."""
    found: dict[tuple[Path, int], None] = {}
    for record in records:
        for call, caller in zip(record.calls, record.callers, strict=False):
            script = script_of(binding, record.operation, caller)
            if script is not None and call.line is not None:
                _, path, line = script.place_of(call.line)
                found[path, line] = None
    return tuple(found)


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
