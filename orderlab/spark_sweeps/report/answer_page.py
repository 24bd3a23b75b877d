"""The report of a question: ``report/index.html`` in its folder, self-contained: the answer, a drawing, what was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orderlab.model.files import write_whole
from orderlab.spark_sweeps.digests import code_digest, scripts_digest
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.tables import COMMANDS
from orderlab.spark_sweeps.report.answer_drawings import drawn
from orderlab.spark_sweeps.report.templates import held_fixed, template
from orderlab.spark_sweeps.specification import SweepFile

ADAPTIVE = ("capacity", "risk", "rare-event")
"""Questions that decide themselves how often, and under which seeds, points are run."""
DECIDED = ("replications", "common random numbers")


def write_answer_page(answer: Answer, sweep: SweepFile) -> Path:
    """Write the report of an answer; its file. Raises InputError where it cannot be written."""
    rows = [dict(row) for row in answer.rows]
    commands = [(name.replace("_", " "), row.pop(name)) for row in rows for name in COMMANDS if name in row]
    if len(rows) == 1:
        rows = [{"": name, "value": value} for name, value in rows[0].items()]
    page = template("answer.html.j2").render(
        title=f"{answer.kind}: {sweep.system}", description=sweep.description, outcome=str(answer.outcome), rows=rows,
        notes=answer.notes, commands=[(name, command) for name, command in commands if command],
        drawing=drawn(answer, sweep), asked=[{"": f"question.{name}", "value": _plain(value)} for name, value in
                                             (sweep.question or {}).items()],
        axes=[{"axis": name, "values": _plain(axis.model_dump(mode="json", by_alias=True, exclude_defaults=True))}
              for name, axis in sweep.axes.items()],
        fixed=[row for row in held_fixed(sweep, list(sweep.axes)) if answer.kind not in ADAPTIVE or row["parameter"] not in DECIDED],
        digests=[{"": "code", "digest": code_digest()}, {"": "scripts", "digest": scripts_digest()}],
    )  # fmt: skip
    folder = Path(answer.folder) / "report"
    folder.mkdir(exist_ok=True)
    write_whole(folder / "index.html", page.encode())
    return folder / "index.html"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return _plain(value["values"]) if "values" in value else ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)
