"""`orderlab check`: judge recorded histories, or linearizability test logs, by every law that they can be judged by."""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orderlab.commands.options import AllowVacuous, EveryLaw, TrustAdapter
from orderlab.exit_codes import EXIT, ExitCode, tell
from orderlab.model.errors import InputError
from orderlab.model.files import refuse_compressed
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX
from orderlab.model.verdict import Verdict, overall, worst
from orderlab.report.forms import REPORT_HELP

if TYPE_CHECKING:
    from orderlab.model.checkers.judge import Question
    from orderlab.report.output import Wanted
    from orderlab.report.report import Subject

OBJECTS = ("register", "cas-register", "queue", "set", "kv", "kafka", "total-queue")
"""``MODEL_NAMES`` of `orderlab.model.checkers.judge`, which takes long to import, for the help; a test keeps them the
same."""
_LOG_LINE = re.compile(r"(?m)^\s*(?:(?:\d.*\s)?\[?[A-Z]{4,5}\b.*\s)?:?[\w-]+\s+:(?:invoke|ok|fail|info)\s+:")
_WORST_FIRST = (ExitCode.VIOLATED, ExitCode.UNUSABLE, ExitCode.UNKNOWN, ExitCode.HOLDS)


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Histories (.parquet, .jsonl, .csv), folders of parts of one, or logs of operations (.edn, .log).",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help=f"The object of store operations: {', '.join(OBJECTS)}.")] = None,
    contract: Annotated[
        Path | None,
        typer.Option(metavar="STORE", help="Judge what `record redis` wrote by this store's contract and binding."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TEXT", help="With --contract: how clients spell a key; * names one of several stores."
        ),
    ] = None,
    trust_adapter: TrustAdapter = False,
    law: Annotated[list[str] | None, typer.Option(help="Judge this law only; --law '?' names them all.")] = None,
    drain_bound_ms: Annotated[float | None, typer.Option(min=0, help="A backlog must be gone within this.")] = None,
    expiry_tolerance_ms: Annotated[float, typer.Option(min=0, help="By how much recorded times may be off.")] = 0.0,
    receive_maximum: Annotated[
        int,
        typer.Option(min=1, max=TWO_BYTES_MAX, help="Of connections whose rows do not say; for the law of that name."),
    ] = TWO_BYTES_MAX,
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds to spend on each file.")] = None,
    master: Annotated[str | None, typer.Option(help="Judge a folder on this Spark, such as local[*].")] = None,
    allow_vacuous: AllowVacuous = False,
    seed: Annotated[int, typer.Option(min=0, help="Printed; checking draws nothing at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a file, each on a line.")] = False,
    verbose: EveryLaw = False,
    report: Annotated[list[str] | None, typer.Option(metavar="FORM=FILE", help=REPORT_HELP)] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Score a checker by the histories of a corpus, this folder.")
    ] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help="With --corpus: what another checker says, a JSON object a line, as --json.")
    ] = None,
) -> None:
    """Judge histories: order, loss, duplicates, phantoms, retransmission, expiry, packets in flight, agreement,
    linearizability, and the anomalies of queues and of logs with offsets and transactions.

    Exit code 0: every law that was tested holds; 1: one is violated; 2: the input is unusable; 3: the budget
    did not suffice, or vacuous: no law was tested, or not one that --law names. Of several files the worst: 1,
    2, 3, 0.
    """
    from orderlab.model.checkers.judge import Question
    from orderlab.report.output import wanted_reports

    files = _files_of(files, report, corpus, verdicts)
    if corpus is not None:
        raise typer.Exit(_score(corpus, verdicts, as_json))
    wanted, by_contract = wanted_reports(report), _by_contract(contract, key, bool(model or law), budget, trust_adapter)
    question = Question(
        laws=tuple(law or ()),
        model=model,
        drain_bound_us=None if drain_bound_ms is None else _microseconds("--drain-bound-ms", drain_bound_ms),
        expiry_tolerance_us=_microseconds("--expiry-tolerance-ms", expiry_tolerance_ms),
        receive_maximum=receive_maximum,
        budget_s=budget,
    )
    asked = _Asked(question, master, allow_vacuous, seed, as_json, verbose, by_contract)
    code = asked.check_all(files)
    if wanted:
        _report(wanted, asked.subjects, seed, budget, code)
    raise typer.Exit(code)


@dataclass
class _Asked:
    """What is asked of every file, and how it is told."""

    question: Question
    master: str | None
    allow_vacuous: bool
    seed: int
    as_json: bool
    verbose: bool
    by_contract: Callable[[Path], tuple[list[Verdict], int]] | None = None
    """Judges a recording of a Redis server."""
    subjects: list[Subject] = field(default_factory=list)
    """Of the files so far."""

    def check_all(self, files: list[Path]) -> ExitCode:
        """Judge each file; the worst of their exit codes."""
        codes = []
        for number, file in enumerate(files):
            if number and not self.as_json:
                typer.echo("")
            try:
                codes.append(self.check(file))
            except InputError as error:
                if len(files) == 1:
                    raise
                codes.append(ExitCode.UNUSABLE)
                if self.as_json:
                    shown = {"file": str(file), "outcome": "unusable", "error": str(error), "seed": self.seed}
                    typer.echo(json.dumps(shown))
                sys.stdout.flush()  # so that both streams tell the files in their order
                tell("orderlab", str(error))
        return min(codes, key=_WORST_FIRST.index)

    def check(self, file: Path) -> ExitCode:
        """Judge one file, print what was found, and add it to ``subjects``."""
        from orderlab.model.checkers.judge import judge, judge_operations
        from orderlab.model.history.disk import HistoryFile
        from orderlab.model.history.jepsen import read_edn_operations, read_log_lines
        from orderlab.report.progress import ProgressLine
        from orderlab.report.subjects import subject_of_history
        from orderlab.report.verdicts import print_verdicts, why_vacuous

        line = ProgressLine(str(file), cap_s=self.question.budget_s)
        try:
            form = "parts" if self.master is not None or file.is_dir() else form_of(file)
            if self.by_contract is not None:
                line.show("judging by the contract")
                verdicts, rows = self.by_contract(file)
            elif form == "parts":
                verdicts, rows = _judge_parts(file, self.question, self.master or "local[*]")
            elif form == "history":
                _insist_on_text(file)
                line.show("judging by every law that applies")
                with line.telling_compilation():
                    verdicts, rows = judge(HistoryFile(file), self.question)
            else:
                log = read_edn_operations(file) if form == "edn" else read_log_lines(file)
                line.show(f"judging {len(log):,} operations")
                with line.telling_compilation():
                    verdicts, rows = judge_operations(str(file), log, self.question), len(log)
        finally:
            line.clear()
        if not verdicts:
            raise InputError(f"{file}: no law applies to these events; name one with --law")
        outcome = overall(verdicts, self.question.named, self.allow_vacuous)
        reason = why_vacuous(verdicts, outcome, self.question.named)
        self.subjects.append(subject_of_history(str(file), rows, verdicts, outcome, str(file)))
        if self.as_json:
            found = {"file": str(file), "rows": rows, "outcome": str(outcome), "vacuous": reason is not None}
            found["seed"] = self.seed
            typer.echo(json.dumps({**found, "verdicts": [verdict.to_json() for verdict in verdicts]}))
        else:
            print_verdicts(Console(), f"{file}: {rows:,} rows", self.subjects[-1], verdicts, self.verbose)
            if reason is not None:
                typer.echo(reason)
            typer.echo(f"seed: {self.seed}")
        return EXIT[outcome]


def _by_contract(
    store: Path | None, keys: list[str] | None, is_law_named: bool, budget_s: float | None, trusts_adapter: bool
) -> Callable[[Path], tuple[list[Verdict], int]] | None:
    """What judges recordings by the contract of a store. Raises InputError."""
    if store is None:
        if keys:
            raise InputError(f"--key {keys[0]}: of --contract STORE, which is not given")
        return None
    if is_law_named:
        raise InputError("--contract: judges by every law of the contract; leave --model and --law out")
    from orderlab.model.history.disk import HistoryFile
    from orderlab.properties.recordings import RecordingJudge
    from orderlab.sim.stores.binding.loader import load_binding

    spelled = dict(each.partition("=")[::2] for each in keys or ())
    if "" in spelled.values():
        raise InputError("--key: write NAME=TEXT, such as lease=lock:*")
    binding = load_binding(store, trust_adapter=trusts_adapter)
    return lambda file: RecordingJudge(binding, spelled, budget_s).judge(HistoryFile(file))


def _report(wanted: list[Wanted], subjects: list[Subject], seed: int, budget: float | None, code: ExitCode) -> None:
    from orderlab.report.output import made_report, replayable, write_reports

    cap = f"capped at {budget:g} s a file" if budget is not None else ""
    outcome = worst(subject.outcome for subject in subjects)
    made = made_report("check", outcome, subjects, seed, budget=cap, exit_code=code)
    write_reports(replayable(made, wanted), wanted)


def _files_of(
    files: list[Path] | None, report: list[str] | None, corpus: Path | None, verdicts: Path | None
) -> list[Path]:
    """The files to judge; none where a corpus names them. Raises InputError for what does not go together."""
    if corpus is not None:
        if files or report:
            raise InputError("--corpus: it names its files itself, and writes no report; leave FILE and --report out")
        return []
    if not files:
        raise InputError("check: no FILE; name histories, or a corpus by --corpus FOLDER (orderlab check --help)")
    if verdicts is not None:
        raise InputError("--verdicts: of a corpus only; name it by --corpus FOLDER")
    return files


def _score(folder: Path, verdicts: Path | None, as_json: bool) -> ExitCode:
    """Print how a checker does on a corpus."""
    from orderlab.model.checkers.corpus import own_verdicts, read_corpus, read_verdicts, scored

    entries = read_corpus(folder)
    score = scored(entries, own_verdicts(entries) if verdicts is None else read_verdicts(verdicts))
    wrong = {"missed": score.missed, "false alarm": score.false_alarms, "undecided": score.undecided}
    if as_json:
        shown = {name.replace(" ", "_"): [list(row) for row in rows] for name, rows in wrong.items()}
        typer.echo(json.dumps({"corpus": str(folder), "right": score.right, "total": score.total, **shown}))
    else:
        typer.echo(f"{folder}: {score.right} of {score.total} verdicts on {len(entries)} histories are right")
        for name, rows in wrong.items():
            for file, law, reason in rows:
                typer.echo(f"  {name}: {file}: {law} ({reason})")
    if score.missed or score.false_alarms:
        return ExitCode.VIOLATED
    return ExitCode.UNKNOWN if score.undecided else ExitCode.HOLDS


def _microseconds(option: str, milliseconds: float) -> int:
    if not milliseconds <= 1e15:
        raise InputError(f"{option} {milliseconds:g}: beyond any history; give a number of milliseconds")
    return round(milliseconds * 1000)


def _insist_on_text(file: Path) -> None:
    """Raise InputError for a name that Arrow does not open."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        shown = str(file).encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{shown}: its name holds bytes that are no UTF-8; rename it") from None


def _judge_parts(folder: Path, question: Question, master: str) -> tuple[list[Verdict], int]:
    from orderlab.model.files import scratch_folder
    from orderlab.spark_sweeps.histories import check_each, check_folder
    from orderlab.spark_sweeps.spark.session import start_session

    if question.budget_s is not None:
        raise InputError("--budget: not kept on Spark; leave it out, or check one file without --master")
    if not folder.exists():
        raise InputError(f"{folder}: No such file or directory")
    with scratch_folder() as scratch:
        log = scratch / "spark.log"
        session = start_session(master, log)
        try:
            is_of_sweep = folder.name == "histories" and (folder.parent / "sweep.json").is_file()
            return (check_each if is_of_sweep else check_folder)(folder, question, session, log)
        finally:
            session.stop()


def form_of(file: Path) -> str:
    """ "history", "edn" or "log", by suffix, else by content. Raises InputError for a file that cannot be read."""
    try:
        mode = file.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{file}: a pipe or device, and a history is read more than once; save it to a file first")
        with file.open("rb") as opened:
            head = opened.read(1 << 16)
    except IsADirectoryError as error:
        raise InputError(f"{file}: a folder; name one history file") from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    if not head:
        raise InputError(f"{file}: the file is empty; a history has at least one row")
    refuse_compressed(head, str(file))
    if file.suffix in (".parquet", ".jsonl", ".ndjson", ".csv") or head.startswith(b"PAR1"):
        return "history"
    if file.suffix == ".edn":
        return "edn"
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if re.match(r"[\[(]?\s*(?:#[\w.]+)?\s*\{\s*:", text) or text.startswith(";"):
        return "edn"
    if _LOG_LINE.search(text):
        return "log"
    if text.startswith("{") or "event_id" in text.partition("\n")[0]:
        return "history"
    if file.suffix in (".log", ".txt"):
        return "log"
    raise InputError(f"{file}: neither a history (.parquet, .jsonl, .csv) nor a linearizability log (.edn, .log)")
