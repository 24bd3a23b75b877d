"""One run of a sweep once more, held against its row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.results.rows import storable
from orderlab.spark_sweeps.results.run_table import Round
from orderlab.spark_sweeps.runs.digests import code_digest, scripts_digest, subject_digest
from orderlab.spark_sweeps.runs.job import single_run
from orderlab.spark_sweeps.sweep_file.specification import MANIFEST


@dataclass(frozen=True)
class Again:
    """What a run showed (`single_run`), and in which columns that is not what its row says."""

    row: dict[str, Any]
    differing: list[str]
    is_same_code: bool
    wall_s: float


def run_again(of: Round, number: int) -> Again:
    """Do a run in this process, without limits. Raises InputError where it has no row, or ends by an error."""
    recorded = next(
        (
            row
            for table in of.folder.tables(len(of.plan))
            for row in table.to_pylist()
            if row["run"] == number
        ),
        None,
    )  # fmt: skip
    if recorded is None:
        raise InputError(f"--replay {number}: {of.folder.path} has no row of that run; runs are numbered from 0")
    begun = time.perf_counter()
    row = single_run(of.folder.path / MANIFEST, number, option="--replay")
    wall_s = time.perf_counter() - begun
    shown = {storable(name): value for name, value in row["metrics"].items()}
    differing = [
        f"{name} {value!r} there, {shown.get(name)!r} here"
        for name, value in recorded["metrics"] or ()
        if shown.get(name) != value and not (value != value and shown.get(name) != shown.get(name))
    ]
    if recorded["status"] != "ok":
        differing.append(f"{recorded['status']} there ({recorded['error']}), its end here")
    for name in ("outcome", "history_digest"):
        if recorded[name] != row[name] and not (name == "history_digest" and recorded[name] is None):
            differing.append(f"{name} {recorded[name]!r} there, {row[name]!r} here")
    now = {"code_digest": code_digest(), "scripts_digest": scripts_digest(), "subject_digest": subject_digest(of.sweep)}
    return Again(row, differing, all(recorded[name] == value for name, value in now.items()), wall_s)
