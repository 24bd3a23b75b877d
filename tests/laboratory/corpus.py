"""The public corpus: small histories, sound and broken, each with its verdicts, their reason, and how it was made.

``python -m tests.laboratory.corpus`` makes what follows from a line or a seed anew, and the index; recordings stay as
they are. What is right of each line and log is said here, by hand, from the law's text, and not by the checkers that
``orderlab check --corpus`` scores; of recordings it is what those said, and the reason says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history

FOLDER = Path(__file__).parents[2] / "histories"
REMAKE = "python -m tests.laboratory.corpus"
VIOLATED, HOLDS = "violated", "holds"


class Line(NamedTuple):
    """A history in the notation of ``orderlab.history.parse_history``."""

    name: str
    law: str
    outcome: str
    line: str
    reason: str


LINES = (
    Line("fifo-turned", "fifo", VIOLATED, "S + P1 A1 P2 A2 D2#1 K#1 D1#2 K#2 Z", "1 comes first after 2 has come"),
    Line("fifo-repeat", "fifo", HOLDS, "S + P1 A1 P2 A2 D1#1 D2#2 - + D1#1! D2#2! Z", "a repeat is no first delivery"),
    Line("loss", "at-least-once", VIOLATED, "S + P1 A1 P2 A2 D2#1 K#1 Z", "1 had its PUBACK, and never came"),
    Line("loss-unacknowledged", "at-least-once", HOLDS, "S + P1 P2 A2 D2#1 K#1 Z", "1 had no PUBACK"),
    Line("loss-overtaken", "at-least-once", VIOLATED, "S + P1 A1 P2 A2 D2#1 K#1 - Z", "2 overtook 1, so that 1 is lost "
         "though the subscriber is away"),
    Line("loss-pending", "at-least-once", HOLDS, "S + P1 A1 P2 A2 D1#1 K#1 - Z", "2 may still come"),
    Line("twice", "exactly-once", VIOLATED, "S + P1q2 A1q2 D1q2#1 R#1 L#1 K#1 D1q2#2 R#2 L#2 K#2 Z", "1 is handed over "
         "again under a new identifier after its handshake"),
    Line("twice-retried", "exactly-once", HOLDS, "S + P1q2 A1q2 D1q2#1 - + D1q2#1! R#1 L#1 K#1 Z", "sent again before "
         "PUBREC, under its identifier: the receiver knows it"),
    Line("phantom", "no-phantom", VIOLATED, "S + P1 A1 D1#1 K#1 D2#2 K#2 Z", "nobody published 2"),
    Line("phantom-cleared", "no-phantom", VIOLATED, "S + P1 A1 - C=1 + S D1=1#1 K#1 Z", "1 was queued for the session "
         "that was cleared"),
    Line("phantom-next-session", "no-phantom", HOLDS, "S + - C=1 + S P1 A1 D1=2#1 K#1 Z", "1 was published to the new "
         "session"),
    Line("disagreement", "agreement", VIOLATED, "S + S>b +>b P1 A1 P2 A2 D1#1 D2#2 D2>b#1 Z", "s has 1, and b, who was "
         "there all the time, has not"),
    Line("agreement", "agreement", HOLDS, "S + S>b +>b P1 A1 P2 A2 D1#1 D2#2 D1>b#1 D2>b#2 Z", "both have both"),
    Line("not-retransmitted", "retransmission", VIOLATED, "S + P1 A1 D1#1 - + P2 A2 D2#2 K#2 Z", "1 was unacknowledged "
         "when the connection ended, and is not sent again"),
    Line("retransmitted", "retransmission", HOLDS, "S + P1 A1 D1#1 - + D1#1! K#1 P2 A2 D2#2 K#2 Z", "1 is sent again, "
         "first"),
    Line("late", "expiry", VIOLATED, "S + P1%50 A1 @200 D1#1 K#1 Z", "its interval of 50 ms is over at 200 ms"),
    Line("in-time", "expiry", HOLDS, "S + P1%50 A1 @20 D1#1 K#1 Z", "delivered within its interval"),
    Line("identifier-in-use", "packet-id", VIOLATED, "S + P1 A1 P2 A2 D1#7 D2#7 K#7 Z", "7 stands for 1 yet"),
    Line("identifier-free", "packet-id", HOLDS, "S + P1 A1 P2 A2 P3 A3 D1#7 D2#8 K#7 D3#7 K#8 Z", "7 is free again"),
    Line("window-exceeded", "receive-maximum", VIOLATED, "S +^1 P1 A1 P2 A2 D1#1 D2#2 K#1 K#2 Z", "two in flight where "
         "one is allowed"),
    Line("window-kept", "receive-maximum", HOLDS, "S +^1 P1 A1 P2 A2 D1#1 K#1 D2#2 K#2 Z", "one at a time"),
    Line("release-first", "handshake", VIOLATED, "S + P1q2 A1q2 D1q2#1 L#1 R#1 K#1 Z", "PUBREL before PUBREC"),
    Line("handshake", "handshake", HOLDS, "S + P1q2 A1q2 D1q2#1 R#1 L#1 K#1 Z", "PUBLISH, PUBREC, PUBREL, PUBCOMP"),
    Line("unsubscribed", "subscribed", VIOLATED, "S + P1 A1 D1#1 K#1 U @500 P2 A2 D2#2 K#2 Z", "2 was published after "
         "the subscription had ended"),
    Line("before-unsubscribe", "subscribed", HOLDS, "S + P1 A1 D1#1 K#1 P2 A2 U D2#2 K#2 Z", "2 was published while "
         "the subscription was in force"),
    Line("qos-raised", "granted-qos", VIOLATED, "Sq1 + P1q2 A1q2 D1q2#1 R#1 L#1 K#1 Z", "QoS 2 where 1 was granted"),
    Line("qos-granted", "granted-qos", HOLDS, "Sq1 + P1q2 A1q2 D1q2d1#1 K#1 Z", "QoS 1, as granted"),
    Line("will-after-goodbye", "will", VIOLATED, "+>w&0*1 ->w$0 P1.w>w*1 A1.w>w*1 @500 Z", "the client said goodbye "
         "(DISCONNECT with Reason Code 0)"),
    Line("will", "will", HOLDS, "+>w&0*1 ->w P1.w>w*1 A1.w>w*1 @500 Z", "the connection was lost"),
)  # fmt: skip


class Log(NamedTuple):
    """A log of operations in EDN, an event in a tuple: process, type, function, value."""

    name: str
    law: str
    outcome: str
    model: str
    events: tuple[tuple[int, str, str, str], ...]
    reason: str


def _sent(*values: int) -> tuple[tuple[int, str, str, str], ...]:
    """Process 0 sends them to x, one after the other, from offset 0 on."""
    pairs = (
        ((0, "invoke", "send", f"[[:send :x {value}]]"), (0, "ok", "send", f"[[:send :x [{offset} {value}]]]"))
        for offset, value in enumerate(values)
    )
    return tuple(event for pair in pairs for event in pair)


def _polled(process: int, pairs: str) -> tuple[tuple[int, str, str, str], ...]:
    """A process polls offsets and values of x."""
    return (process, "invoke", "poll", "[[:poll]]"), (process, "ok", "poll", f"[[:poll {{:x [{pairs}]}}]]")


LOGS = (
    Log("register-stale", "linearizability", VIOLATED, "register",
        ((0, "invoke", "write", "1"), (0, "ok", "write", "1"), (0, "invoke", "write", "2"), (0, "ok", "write", "2"),
         (1, "invoke", "read", "nil"), (1, "ok", "read", "1")), "2 was written before the read began"),
    Log("register-concurrent", "linearizability", HOLDS, "register",
        ((0, "invoke", "write", "1"), (0, "ok", "write", "1"), (0, "invoke", "write", "2"),
         (1, "invoke", "read", "nil"), (1, "ok", "read", "1"),
         (0, "ok", "write", "2")), "the write of 2 was under way: the read may come first"),
    Log("register-unknown", "linearizability", HOLDS, "register",
        ((0, "invoke", "write", "1"), (0, "info", "write", "1"), (1, "invoke", "read", "nil"), (1, "ok", "read", "nil"),
         (1, "invoke", "read", "nil"), (1, "ok", "read", "1")), "the write may have come between the reads"),
    Log("register-back", "linearizability", VIOLATED, "register",
        ((0, "invoke", "write", "1"), (0, "info", "write", "1"), (1, "invoke", "read", "nil"), (1, "ok", "read", "1"),
         (1, "invoke", "read", "nil"), (1, "ok", "read", "nil")), "once read, the write has taken place"),
    Log("queue-turned", "linearizability", VIOLATED, "queue",
        ((0, "invoke", "enqueue", "1"), (0, "ok", "enqueue", "1"), (0, "invoke", "enqueue", "2"),
         (0, "ok", "enqueue", "2"), (1, "invoke", "dequeue", "nil"), (1, "ok", "dequeue", "2"),
         (1, "invoke", "dequeue", "nil"), (1, "ok", "dequeue", "1")), "2 leaves before 1, which was there first"),
    Log("queue-in-order", "linearizability", HOLDS, "queue",
        ((0, "invoke", "enqueue", "1"), (0, "ok", "enqueue", "1"), (0, "invoke", "enqueue", "2"),
         (0, "ok", "enqueue", "2"), (1, "invoke", "dequeue", "nil"), (1, "ok", "dequeue", "1"),
         (1, "invoke", "dequeue", "nil"), (1, "ok", "dequeue", "2")), "first in, first out"),
    Log("kafka-lost", "no-lost-write", VIOLATED, "kafka",
        (*_sent(1, 2, 3), *_polled(1, "[0 1] [2 3]")), "2 was acknowledged at offset 1, and a poll reads past it"),
    Log("kafka-all", "no-lost-write", HOLDS, "kafka",
        (*_sent(1, 2, 3), *_polled(1, "[0 1] [1 2] [2 3]")), "all that was acknowledged is polled"),
    Log("kafka-skipped", "no-poll-skip", VIOLATED, "kafka",
        (*_sent(1, 2, 3), *_polled(1, "[0 1]"), *_polled(1, "[2 3]"), *_polled(2, "[1 2]")),
        "one consumer goes from offset 0 to 2"),
    Log("kafka-shared", "no-poll-skip", HOLDS, "kafka",
        (*_sent(1, 2, 3), *_polled(1, "[0 1]"), *_polled(2, "[1 2]"), *_polled(2, "[2 3]")), "another goes on"),
    Log("kafka-back", "no-nonmonotonic-poll", VIOLATED, "kafka",
        (*_sent(1, 2), *_polled(1, "[0 1] [1 2]"), *_polled(1, "[1 2]")), "one consumer reads offset 1 twice"),
    Log("kafka-restarted", "no-nonmonotonic-poll", HOLDS, "kafka",
        (*_sent(1, 2, 3), *_polled(1, "[0 1] [1 2]"), (1, "invoke", "crash", "nil"), (1, "info", "crash", "nil"),
         *_polled(1, "[1 2]"), *_polled(1, "[2 3]")), "it crashed between, and begins where it had committed"),
)  # fmt: skip


class Recorded(NamedTuple):
    """A recording or a simulation, made by a command at some time and kept."""

    file: str
    command: str
    verdicts: dict[str, str]
    reason: str
    model: str | None = None


_DELIVERY = ("fifo", "at-least-once", "exactly-once", "no-phantom", "retransmission", "handshake", "granted-qos")
RECORDED = (
    Recorded("mosquitto-cut.parquet", "orderlab record mqtt --start mosquitto --protocol 3.1.1 --messages 60 "
             "--cut 0.01 --drop 0.005 --seed 1 --history mosquitto-cut.parquet", dict.fromkeys(_DELIVERY, HOLDS),
             "Mosquitto 2.0.11 under cuts, as orderlab check judges it"),
    Recorded("mosquitto-window.parquet", "orderlab record mqtt --start mosquitto --messages 60 --history "
             "mosquitto-window.parquet", {"receive-maximum": VIOLATED, "fifo": HOLDS, "at-least-once": HOLDS},
             "Mosquitto 2.0.11 sends two for each PUBACK once the window is full (notes/findings/mosquitto.md); the "
             "other laws as orderlab check judges it"),
    Recorded("redis-rq.edn", "python -m tests.laboratory.conformance.recorded redis --jobs 12 --kills 1 --folder . && "
             "python -m tests.laboratory.conformance.queue_log rq.parquet redis-rq.edn", {"linearizability": HOLDS},
             "the list of rq 3.0.0 on Redis 7.0.15, killed and started again, as orderlab check judges it", "queue"),
    Recorded("redis-rq-turned.edn", REMAKE, {"linearizability": VIOLATED},
             "redis-rq.edn with the first two jobs taken the other way round: 0 was in the list before 1", "queue"),
)  # fmt: skip
TURNED = "redis-rq.edn", "redis-rq-turned.edn"


def entries() -> list[dict[str, object]]:
    """Rows of the index."""
    made: list[dict[str, object]] = []
    for row in LINES:
        made.append({"file": f"{row.name}.parquet", "command": REMAKE, "notation": row.line,
                     "verdicts": {row.law: row.outcome}, "reason": row.reason})  # fmt: skip
    for log in LOGS:
        made.append({"file": f"{log.name}.edn", "command": REMAKE, "model": log.model,
                     "verdicts": {log.law: log.outcome}, "reason": log.reason})  # fmt: skip
    for kept in RECORDED:
        model = {} if kept.model is None else {"model": kept.model}
        made.append({"file": kept.file, "command": kept.command, **model, "verdicts": kept.verdicts,
                     "reason": kept.reason})  # fmt: skip
    return made


def write(folder: Path) -> None:
    """Write what follows from this file, and the index."""
    for row in LINES:
        write_history(parse_history(row.line), folder / f"{row.name}.parquet")
    for log in LOGS:
        text = "".join(
            f"{{:process {process}, :type :{kind}, :f :{function}, :value {value}}}\n"
            for process, kind, function, value in log.events
        )
        (folder / f"{log.name}.edn").write_text(text)
    recorded, turned = (folder / name for name in TURNED)
    if recorded.is_file():
        end = ":f :dequeue, :value "
        text = recorded.read_text().replace(f"{end}0}}", f"{end}turned}}").replace(f"{end}1}}", f"{end}0}}")
        turned.write_text(text.replace(f"{end}turned}}", f"{end}1}}"))
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries())
    (folder / "index.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(lambda: write(FOLDER), "corpus")
