"""Which law of the delivery pipeline survives which fault, as published and repaired: the tables beside
``notes/guarantees.md``.

``python -m tests.laboratory.guarantees`` runs every fault on both variants with several seeds, judges the histories,
and writes each table into its page, between its marks: with QoS 1, with QoS 2, and with Wills. "Broken" is proved by
a history; "kept" means that these runs showed no violation.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.model.history.events import EventBatch
from orderlab.model.verdict import Outcome, Verdict, overall
from orderlab.sim.faults import FAULTS
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

NOTES = Path(__file__).parents[2] / "notes"
SETTINGS = NOTES / "guarantees"
"""A file of settings for each variant."""
VARIANTS = ("published", "repaired")
LAWS = {
    "QoS 1": ("fifo", "at-least-once", "retransmission", "no-phantom", "packet-id", "expiry", "drain"),
    "QoS 2": ("fifo", "at-least-once", "exactly-once", "retransmission", "packet-id", "drain"),
    "Wills": ("will", "fifo", "at-least-once", "no-phantom", "packet-id", "drain"),
}
"""By table. Wills have one of their own: with them come as many watchers, messages and subscriptions again, another
system."""
DRAIN_BOUND_MS = 500
LATER_MS = (750, 1000, 1500, 2000, 3000)
"""Where queues are not empty within the bound, by when they are."""
FAULTS_HERE = tuple(name for name, kind in FAULTS.items() if kind.among != "postgres")
"""Those that this system can have."""
STRIKES_AT = "0.5"
LONGER = {"redis-partition": 1.0, "redis-oom": 1.0}
"""Faults that brokers ride out at their usual length; so long, in seconds, they do not."""
RATES = "redis-stall=1/s redis-failover=0.5/s redis-connection-loss=1/s kafka-leader-change=0.5/s lost-puback=1/s"
LATE = ("ownership", "by-connection")
WOKEN = (("ownership", "woken"),)
WRONG_BROKERS = (
    ("late ownership", (("takeover_share", "0.5"), LATE), WOKEN),
    ("late ownership, last event counts", (("takeover_share", "0.5"), ("ownership", "last-event")), WOKEN),
    ("late ownership, broker-crash", (LATE, ("faults", f"broker-crash@{STRIKES_AT}:0")), WOKEN),
    ("late ownership, network-partition", (LATE, ("faults", f"network-partition@{STRIKES_AT}:0")), WOKEN),
    (
        "late ownership, client-half-open",
        (LATE, ("keep_alive_s", "0.4"), ("faults", f"client-half-open@{STRIKES_AT}:0")),
        WOKEN,
    ),
    ("late ownership, publisher-takeover", (LATE, ("faults", f"publisher-takeover@{STRIKES_AT}:0")), WOKEN),
    (
        "late ownership, publisher-takeover from a broker cut off",
        (LATE, ("faults", f"network-partition@0.45:0 publisher-takeover@{STRIKES_AT}:0")),
        WOKEN,
    ),
    (
        "publisher-link-cut, Keep Alive 0.2 s",
        (("keep_alive_s", "0.2"), ("faults", f"publisher-link-cut@{STRIKES_AT}:0")),
        (),
    ),
    ("client-link-cut, Keep Alive 0.2 s", (("keep_alive_s", "0.2"), ("faults", f"client-link-cut@{STRIKES_AT}:0")), ()),
    (
        "slow-consumer, sockets of 4 packets",
        (("socket_packets", "4"), ("faults", f"slow-consumer@{STRIKES_AT}:0")),
        (("on_full_socket", "read-anew"),),
    ),
    ("Receive Maximum 1 of the server", (("server_receive_maximum", "1"),), ()),
    ("brokers read while Kafka owes 10 answers", (("producer_records_max", "10"),), ()),
)
"""Settings under which brokers are wrong, or hold back: title, settings, what repairs it."""
ISR = (("replica_lag_max_s", "0.05"), ("faults", f"kafka-isr-shrink@0.3:0:0.5 kafka-leader-change@{STRIKES_AT}:0"))
PARTS = (("cluster_node_timeout_s", "0.2"),)
COORDINATORS = " ".join(f"kafka-coordinator-loss@{STRIKES_AT}:{kafka}" for kafka in range(3))
"""Those of every group."""
WRONG_SERVERS = (
    ("ISR of one, unclean election", (*ISR, ("unclean_election", "true")), (("min_insync_replicas", "2"),)),
    ("ISR of one, clean election", ISR, ()),
    ("coordinator loses all commits", (("offsets_lag_ms", "1000"), ("faults", COORDINATORS)), ()),
    (
        "coordinator loses 0.2 s, broker-crash",
        (("offsets_lag_ms", "200"), ("faults", f"{COORDINATORS} broker-crash@0.51:0")),
        (),
    ),
    ("producer-retry, 1 in flight", (("max_in_flight", "1"), ("faults", f"producer-retry@{STRIKES_AT}:0")), ()),
    ("CLUSTERDOWN for 0.6 s", (*PARTS, ("redis_nodes", "10"), ("faults", f"redis-restart@{STRIKES_AT}:0:0.8")), ()),
    ("redis-old-master, promoted", (*PARTS, ("faults", f"redis-old-master@{STRIKES_AT}:0")), ()),
    (
        "failover during a full resync",
        (("resync_s", "0.4"), ("faults", "redis-failover@0.3:0:0.1 redis-failover@0.6:0:0.1")),
        (),
    ),
    ("broker-pause, 0.15 s", (("faults", f"broker-pause@{STRIKES_AT}:0:0.15"),), ()),
    ("collector pauses, one in 0.3 s", (("gc_every_s", "0.3"),), ()),
)
"""The same for Kafka, Redis Cluster and collectors."""
WILL_DELAYS = ("0", "0.1")
CLAIMED = (*WOKEN, ("wills", "claimed"))
WILL_FAULTS = (
    "broker-crash",
    "network-partition",
    "broker-pause",
    "client-half-open",
    "session-takeover",
    "producer-retry",
    "kafka-leader-change",
)
"""What strikes brokers that have Wills to publish, or what a Will goes through."""
MARKS = ("<!-- the table below is written by: python -m tests.laboratory.guarantees -->", "<!-- end of the table -->")


@dataclass(frozen=True, slots=True)
class Row:
    """What strikes: the settings that say so."""

    title: str
    settings: tuple[tuple[str, str], ...]
    repair: tuple[tuple[str, str], ...] = ()
    """Settings of the repaired variant beside these, or in place of them."""

    def of(self, variant: str) -> dict[str, str]:
        """Those of a variant."""
        return dict((*self.settings, *(self.repair if variant == "repaired" else ())))

    def command(self, variant: str, seed: int) -> str:
        """What reproduces a run."""
        setting = "".join(f' --set {name}="{value}"' for name, value in self.of(variant).items())
        config = f"--config notes/guarantees/{variant}.toml"
        return f"orderlab simulate tbmq-p2p {config} --drain-bound-ms {DRAIN_BOUND_MS}{setting} --seed {seed}"


def rows(name: str) -> Iterator[Row]:
    """Of the table of that name: nothing, every fault alone, and several kinds at random."""
    if name == "Wills":
        yield from _rows_with_wills()
        return
    level = () if name == "QoS 1" else (("qos", "2"),)
    yield Row("none", level)
    for name in FAULTS_HERE:
        yield Row(name, (*level, ("faults", f"{name}@{STRIKES_AT}:0")))
        if name in LONGER:
            yield Row(f"{name}, {LONGER[name]:g} s", (*level, ("faults", f"{name}@{STRIKES_AT}:0:{LONGER[name]:g}")))
    for title, settings, repair in (*WRONG_BROKERS, *WRONG_SERVERS):
        yield Row(title, (*level, *settings), repair)
    yield Row("several at random", (*level, ("fault_rates", RATES)))


def _rows_with_wills() -> Iterator[Row]:
    """Each fault with Wills that are due at once and with such that have a delay, published by the broker that had the
    connection."""
    for delay_s in WILL_DELAYS:
        base, title = (LATE, ("will_delay_s", delay_s)), "no delay" if delay_s == "0" else f"{delay_s} s"
        yield Row(f"{title}, no fault", base, CLAIMED)
        for name in WILL_FAULTS:
            more = (("keep_alive_s", "0.4"),) if name == "client-half-open" else ()
            yield Row(f"{title}, {name}", (*base, *more, ("faults", f"{name}@{STRIKES_AT}:0")), CLAIMED)
        partition = ("faults", f"network-partition@{STRIKES_AT}:0")
        yield Row(f"{title}, replicated, network-partition", (*base, ("wills", "replicated"), partition), CLAIMED)


def settings_of(variant: str, row: Row, folder: Path) -> P2PSettings:
    """Of one run. The defaults are those of the note's file."""
    content = tomllib.loads((folder / f"{variant}.toml").read_text())
    return P2PSettings(**{**content, **row.of(variant)})


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells. ``drained_ms``: where ``drain`` is violated, the bound within which it is not, if one of
    LATER_MS is."""

    seed: int
    verdicts: Mapping[str, Verdict]
    drained_ms: int | None = None


def run(settings: P2PSettings, seed: int) -> Told:
    """One run."""
    batches: list[EventBatch] = []
    system = P2PSystem(settings, seed, [batches.append])
    system.run()
    source = in_memory("run", batches, system.names())

    def judged(bound_ms: int) -> dict[str, Verdict]:
        verdicts, _ = judge(source, Question(drain_bound_us=bound_ms * 1000))
        return {verdict.law: verdict for verdict in verdicts}

    verdicts, drained_ms = judged(DRAIN_BOUND_MS), None
    if verdicts["drain"].outcome is Outcome.VIOLATED:
        within = (bound for bound in LATER_MS if judged(bound)["drain"].outcome is Outcome.HOLDS)
        drained_ms = next(within, None)
    return Told(seed, verdicts, drained_ms)


def cell(told: Sequence[tuple[int, Verdict]]) -> str:
    """A law over the runs of a row: the first seed that breaks it, and how many do."""
    broken = [(seed, verdict) for seed, verdict in told if verdict.outcome is Outcome.VIOLATED]
    if broken:
        most = max(int(verdict.work.get("violations", 0)) for _, verdict in broken)
        return f"**broken** {len(broken)}/{len(told)}, seed {broken[0][0]}, up to {most}"
    if all(verdict.vacuous for _, verdict in told):
        return "–"
    return "kept" if overall(verdict for _, verdict in told) is Outcome.HOLDS else "unknown"


def drain_cell(told: Sequence[Told]) -> str:
    """The same for `drain`, and by when the queues of all runs are empty."""
    said = cell([(each.seed, each.verdicts["drain"]) for each in told])
    late = [each.drained_ms for each in told if each.verdicts["drain"].outcome is Outcome.VIOLATED]
    if not late:
        return said
    by_then = [bound for bound in late if bound is not None]
    return f"{said}, {f'all by {max(by_then)} ms' if len(by_then) == len(late) else 'some never'}"


def told_seeds(seeds: Sequence[int]) -> str:
    """How a row names the seeds that it was measured with: ``1-3``."""
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]}-{seeds[-1]}"


@dataclass(frozen=True, slots=True)
class Known:
    """What a note says already: the lines and commands of rows, to be kept where they are not measured anew."""

    lines: Mapping[tuple[str, str, str], str]
    commands: frozenset[str]

    @classmethod
    def of(cls, note: str) -> Known:
        """What stands between the marks of a note."""
        begin, end = MARKS
        lines, name, title = {}, "", ""
        text = note.partition(begin)[2].partition(end)[0]
        for line in text.splitlines():
            if line.partition(".")[0] in LAWS:
                name = line.partition(".")[0]
            elif line.startswith("| "):
                first, variant = (cell.strip() for cell in line.split("|")[1:3])
                title = first.strip("`") or title
                lines[name, title, variant] = line
        return cls(lines, frozenset(line for line in text.splitlines() if line.startswith("    ")))

    def row(self, name: str, row: Row, variant: str) -> tuple[str, str | None] | None:
        """(line of the table, command where a law is broken); None if the note lacks the row, or has one of other laws
        or settings."""
        line = self.lines.get((name, row.title, variant))
        if line is None or line.count("|") != len(head(name)) + 1:
            return None
        without_seed = f"    {row.command(variant, 0)}".rpartition(" ")[0]
        command = next((line for line in self.commands if line.rpartition(" ")[0] == without_seed), None)
        return (line, command) if ("**broken**" in line) == (command is not None) else None


def page(name: str) -> str:
    """The file of a table: ``guarantees-qos-1.md``."""
    return f"guarantees-{name.lower().replace(' ', '-')}.md"


def head(name: str) -> tuple[str, ...]:
    """The columns of a table."""
    return ("fault", "variant", "seeds", *LAWS[name])


def measured(row: Row, variant: str, seeds: Sequence[int], folder: Path, name: str) -> tuple[str, str | None]:
    """(line of the table, command) of a row and variant; the command where a law is broken."""
    laws = LAWS[name]
    told = [run(settings_of(variant, row, folder), seed) for seed in seeds]
    cells = [
        drain_cell(told) if law == "drain" else cell([(each.seed, each.verdicts[law]) for each in told]) for law in laws
    ]
    bad = [each.seed for each in told if any(each.verdicts[law].outcome is Outcome.VIOLATED for law in laws)]
    title = f"`{row.title}`" if variant == VARIANTS[0] else ""
    line = f"| {title} | {variant} | {told_seeds(seeds)} | {' | '.join(cells)} |"
    return line, f"    {row.command(variant, bad[0])}" if bad else None


def table(
    seeds: Sequence[int],
    folder: Path,
    name: str,
    show: Callable[[str], object] | None = None,
    only: Sequence[str] = (),
    known: Known | None = None,
) -> str:
    """A table, and below it a command for each broken cell's row. ``only``: patterns of the rows to measure; the
    others, where they are ``known``, stay as they are, with the seeds that they were measured with."""
    lines = [f"| {' | '.join(head(name))} |", "|---" * len(head(name)) + "|"]
    commands = []
    for row in rows(name):
        for variant in VARIANTS:
            is_asked_for = any(fnmatchcase(row.title, pattern) for pattern in only or ("*",))
            stands = known.row(name, row, variant) if known is not None and not is_asked_for else None
            if stands is None and show is not None:
                show(f"{name}, {row.title}, {variant}")
            line, command = stands or measured(row, variant, seeds, folder, name)
            lines.append(line)
            commands += [] if command is None else [command]
    return (
        f"{name}. `drain`: within {DRAIN_BOUND_MS} ms of the last heal.\n\n" + "\n".join(lines)
        + "\n\nWhat reproduces each row that is broken:\n\n" + "\n".join(commands) + "\n"
    )  # fmt: skip


def put(note: str, text: str) -> str:
    """The note with ``text`` between its marks. Raises InputError if they are not there."""
    begin, end = MARKS
    if begin not in note or end not in note:
        raise InputError(f"the note has no marks; it needs the lines {begin} and {end}")
    return f"{note.partition(begin)[0]}{begin}\n\n{text}\n{end}{note.partition(end)[2]}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory.guarantees", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 1 on")
    parser.add_argument(
        "--rows",
        nargs="*",
        default=[],
        metavar="ROW",
        help="measure these rows alone (* and ?), and those that the note lacks",
    )
    parser.add_argument("--notes", type=Path, default=NOTES, metavar="FOLDER", help="where the pages are")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        raise InputError(f"--seeds {given.seeds}: at least 1 run a row")
    for pattern in given.rows:
        if not any(fnmatchcase(row.title, pattern) for name in LAWS for row in rows(name)):
            raise InputError(
                f"--rows {pattern}: no row of the table is called so; its first column names them, * and ? stand for "
                "any letters"
            )
    pages = {name: given.notes / page(name) for name in LAWS}
    for file in pages.values():
        put(file.read_text(), "")
    seeds = range(1, given.seeds + 1)
    for name, file in pages.items():
        note = file.read_text()
        written = table(seeds, SETTINGS, name, lambda what: print(what, file=sys.stderr), given.rows, Known.of(note))
        write_whole(file, put(note, written).encode())


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "guarantees")
