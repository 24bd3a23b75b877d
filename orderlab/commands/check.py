"""`orderlab check`: judge a recorded history, or a linearizability test log, by every law that it can be judged by."""

from __future__ import annotations

import json
import re
import stat
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from model.checkers.judge import LAWS, Question, decide_log, judge
from model.checkers.linearizability.decide import LAW as LINEARIZABILITY
from model.checkers.linearizability.objects import MODELS
from model.errors import InputError
from model.history_io import HistoryFile
from model.linearizability_logs import read_edn_operations, read_log_lines
from model.verdict import Verdict, worst
from orderlab.exit_codes import EXIT
from orderlab.render.verdicts import print_verdicts

_LOG_LINE = re.compile(r"(?m)^\s*(?:(?:\d.*\s)?\[?[A-Z]{4,5}\b.*\s)?:?[\w-]+\s+:(?:invoke|ok|fail|info)\s+:")


def check(
    file: Annotated[
        Path,
        typer.Argument(help="History (.parquet, .jsonl, .csv), folder of its parts, or linearizability log (.edn, .log)."),
    ],
    model: Annotated[str | None, typer.Option(help=f"The object of store operations: {', '.join(MODELS)}.")] = None,
    law: Annotated[list[str] | None, typer.Option(help=f"Judge this law only: {', '.join(LAWS)}.")] = None,
    drain_bound_ms: Annotated[float | None, typer.Option(min=0, help="A backlog must be gone within this.")] = None,
    expiry_tolerance_ms: Annotated[float, typer.Option(min=0, help="By how much recorded times may be off.")] = 0.0,
    receive_maximum: Annotated[
        int, typer.Option(min=1, max=65_535, help="Of connections whose rows do not say; for the law of that name.")
    ] = 65_535,
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds to spend.")] = None,
    master: Annotated[str | None, typer.Option(help="Judge a folder on this Spark, such as local[*].")] = None,
    seed: Annotated[int, typer.Option(help="Printed; checking draws nothing at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge a history: order, loss, duplicates, phantoms, retransmission, expiry, packets in flight, agreement,
    linearizability.

    Exit code 0: every law holds; 1: one is violated; 2: the input is unusable; 3: the budget did not suffice.
    """
    question = Question(
        laws=tuple(law or ()),
        model=model,
        drain_bound_us=None if drain_bound_ms is None else round(drain_bound_ms * 1000),
        expiry_tolerance_us=round(expiry_tolerance_ms * 1000),
        receive_maximum=receive_maximum,
        budget_s=budget,
    )
    if model is not None and model not in MODELS:
        raise InputError(f"--model {model}: unknown object; it is one of {', '.join(MODELS)}")
    form = "parts" if master is not None or file.is_dir() else form_of(file)
    if form == "parts":
        verdicts, rows = _judge_parts(file, question, master or "local[*]")
    elif form == "history":
        verdicts, rows = judge(HistoryFile(file), question)
    else:
        verdicts, rows = _judge_log(file, form, question)
    if not verdicts:
        raise InputError(f"{file}: no law applies to these events; name one with --law")
    outcome = worst(verdict.outcome for verdict in verdicts)
    if as_json:
        found = {"file": str(file), "rows": rows, "outcome": str(outcome), "seed": seed}
        typer.echo(json.dumps({**found, "verdicts": [verdict.to_json() for verdict in verdicts]}))
    else:
        print_verdicts(Console(), f"{file}: {rows:,} rows", verdicts)
        typer.echo(f"seed: {seed}")
    raise typer.Exit(EXIT[outcome])


def _judge_parts(folder: Path, question: Question, master: str) -> tuple[list[Verdict], int]:
    from spark_sweeps.history_check import check_each, check_folder
    from spark_sweeps.spark_session import start_session

    if question.budget_s is not None:
        raise InputError("--budget: not kept on Spark; leave it out, or check one file without --master")
    if not folder.exists():
        raise InputError(f"{folder}: No such file or directory")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "spark.log"
        session = start_session(master, log)
        try:
            is_of_sweep = folder.name == "histories" and (folder.parent / "sweep.json").is_file()
            return (check_each if is_of_sweep else check_folder)(folder, question, session, log)
        finally:
            session.stop()


def _judge_log(file: Path, form: str, question: Question) -> tuple[list[Verdict], int]:
    other = [law for law in question.laws if law != LINEARIZABILITY]
    if other:
        raise InputError(f"--law {other[0]}: {file} holds store operations, which are judged by {LINEARIZABILITY}")
    log = read_edn_operations(file) if form == "edn" else read_log_lines(file)
    return [decide_log(str(file), log, question)], len(log)


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
    if head.startswith(b"\x1f\x8b"):
        raise InputError(f"{file}: compressed with gzip; decompress it first")
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
