"""One run of a sweep in this process, without limits and without catching anything: to see what happens in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.job import load
from orderlab.spark_sweeps.subject import subject_of


def single_run(path: Path, number: int, seed: int | None = None) -> dict[str, Any]:
    """What run ``number`` shows. Raises InputError, and whatever the run raises."""
    sweep, plan = load(path, seed)
    if number >= len(plan):
        raise InputError(f"--only {number}: {path} has {len(plan)} runs, numbered from 0")
    run = plan.run(number)
    observed = subject_of(sweep.system).run(run.parameters, run.seed, None, "none")
    return {
        "run": number, "seed": run.seed, "parameters": run.parameters,
        "outcome": observed.outcome if observed.verdicts else None, "vacuous": observed.vacuous, "verdicts": dict(observed.verdicts),
        "witnesses": observed.witnesses, "metrics": dict(observed.metrics), "history_digest": observed.history_digest,
    }  # fmt: skip
