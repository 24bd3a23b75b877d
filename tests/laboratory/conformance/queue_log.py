"""``python -m tests.laboratory.conformance.queue_log RECORDING LOG.edn``: what rq's workers took from their list, as a
log of a queue.

An enqueueing whose reply never came ends with ``:info``. A taking without a reply may have taken any job, which no log
of a queue can say: such a recording is refused. One that found nothing is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orderlab import exit_codes
from orderlab.model.errors import InputError
from orderlab.model.history.disk import HistoryFile
from orderlab.properties.recordings import RecordedCall, recorded_calls, settled
from orderlab.sim.redis.replies import ErrorReply

QUEUE = b"rq:queue:default"
_PUSH, _TAKE = b"rpush", b"lmove"


def log_of(history: Path) -> str:
    """The events, one a line. Raises InputError."""
    calls, _ = recorded_calls(HistoryFile(history))
    events: list[tuple[int, int, int, str]] = []
    for number, call in enumerate(settled(calls)):
        if call.argv[0].lower() not in (_PUSH, _TAKE) or call.argv[1] != QUEUE:
            continue
        if isinstance(call.reply, ErrorReply) or (call.returned_us is not None and call.reply is None):
            continue
        is_push = call.argv[0].lower() == _PUSH
        if not is_push and call.returned_us is None:
            raise InputError(f"{history}: a taking without a reply; record anew")
        function, value = ("enqueue", _job(call.argv[2])) if is_push else ("dequeue", _job(call.reply))
        asked = value if is_push else "nil"
        events.append((call.rows[0], number, 0, f":type :invoke, :f :{function}, :value {asked}"))
        events.append((call.rows[-1], number, 1, f":type :{_end(call)}, :f :{function}, :value {value}"))
    return "".join(f"{{:process {number}, {text}}}\n" for _, number, _, text in sorted(events))


def _end(call: RecordedCall) -> str:
    return "info" if call.returned_us is None else "ok"


def _job(name: object) -> str:
    assert isinstance(name, bytes), "a job is a text"
    return name.decode().removeprefix("job")


def main() -> None:
    """Write the log of a history: ``queue_log HISTORY LOG``."""
    Path(sys.argv[2]).write_text(log_of(Path(sys.argv[1])))


if __name__ == "__main__":
    exit_codes.run(main, "queue_log")
