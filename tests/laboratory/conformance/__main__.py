"""``python -m tests.laboratory.conformance``: hold the kernel, or fakeredis, against a real server, and print the
counts.

Exit code 0 when the kernel agreed everywhere and every command came up, 1 when not, 2 when there is no server.
"""

from __future__ import annotations

import argparse
import os

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.versions import DEFAULT, version_named
from tests.laboratory.conformance import contention, notified, waits
from tests.laboratory.conformance.judge import render
from tests.laboratory.conformance.run import NOT_GENERATED, Report, gaps, run_in_processes


def print_report(report: Report) -> None:
    """Counts by command, then disagreements with an example each."""
    tally = report.tally
    print(f"{report.subject} against {report.server}")
    print(
        f"{report.compared:,} commands in {tally.sequences:,} sequences compared in {report.seconds:.1f} s; "
        f"disagreements: {sum(report.disagreements.values())}"
    )
    columns = [f"{name.decode():<18}{count:>9,}" for name, count in sorted(tally.commands.items())]
    for start in range(0, len(columns), 4):
        print("  ".join(columns[start : start + 4]))
    print(f"left out: {', '.join(sorted(name.decode() for name in NOT_GENERATED))}")
    for what, count in tally.unsupported.items():
        print(f"not in the kernel, {count} times: {what}")
    for what, count in tally.by_version.most_common():
        print(f"the server is of another version than Redis 7.0, {count} times: {what}")
    for name, count in report.disagreements.most_common():
        print(f"\n{count} disagreements on {name}, for example:\n{render(report.examples[name])}")


def print_table(report: Report) -> None:
    """Disagreements as the rows of a Markdown table: how often, where, the shortest example, what each side said."""
    print("| times | command: difference | example | what each says |\n|---:|---|---|---|")
    for name, count in report.disagreements.most_common():
        found = report.examples[name]
        lines = render(found).splitlines()[:-1]
        example, said = ("<br>".join(f"`{line[:120]}`" for line in lines), f"`{found.what[:200]}`")
        print(f"| {count:,} | {name} | {example.replace('|', chr(92) + '|')} | {said.replace('|', chr(92) + '|')} |")


def compare_waits(count: int, seed: int) -> int:
    """Stories of clients that wait."""
    with ServerProcess() as server:
        compared, served, partings = waits.run(server.host, server.port, count, seed)
    print(f"{compared:,} commands compared, {served:,} waits served; disagreements: {len(partings)}")
    for found in partings:
        print(f"\n{waits.shown(found)}")
    return 1 if partings else 0


def compare_notified(count: int, seed: int) -> int:
    """Keyspace notifications."""
    with ServerProcess() as server:
        compared, events, partings = notified.run(server.host, server.port, count, seed)
    print(f"{compared:,} commands compared, {events:,} events; disagreements: {len(partings)}")
    for found in partings[:20]:
        print(f"\n{found.shown()}")
    return 1 if partings else 0


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory.conformance", description=__doc__)
    parser.add_argument("--commands", type=int, default=5_000_000, help="how many commands to compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--subject", choices=("kernel", "fakeredis"), default="kernel")
    parser.add_argument("--length", type=int, default=50, help="commands in a sequence")
    parser.add_argument("--table", action="store_true", help="print the disagreements as a Markdown table")
    parser.add_argument(
        "--waits",
        type=int,
        default=0,
        help="compare so many commands of clients that wait for each other, and nothing else",
    )
    parser.add_argument(
        "--contention",
        type=int,
        default=0,
        help="compare the contention of feeds, so many requests of each producer, and nothing else",
    )
    parser.add_argument(
        "--notified",
        type=int,
        default=0,
        help="compare the keyspace notifications of so many commands, and nothing else",
    )
    parser.add_argument("--server", default=DEFAULT.name, help="the version that the kernel is to be")
    parser.add_argument("--binary", default="", help="the server of that version, where it is not on PATH")
    options = parser.parse_args()
    if options.notified:
        return compare_notified(options.notified, options.seed)
    if options.contention:
        return contention.compare(options.contention)
    if options.waits:
        return compare_waits(options.waits, options.seed)
    print(f"seed {options.seed}, {options.processes} processes", flush=True)
    version = version_named(options.server)
    report = run_in_processes(
        options.subject, options.commands, options.seed, options.processes, options.length, version, options.binary
    )
    (print_table if options.table else print_report)(report)
    if options.subject != "kernel":
        return 0
    if version is not DEFAULT:
        return 1 if report.disagreements else 0
    missing = list(gaps(report.tally, max(1, options.commands // 20_000)))
    for line in missing:
        print(f"gap: {line}")
    return 1 if report.disagreements or missing else 0


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "conformance")
