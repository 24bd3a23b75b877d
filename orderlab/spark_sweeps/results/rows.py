"""The rows of a sweep: one per run and attempt, under one Arrow schema that depends only on the varied parameters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.runs.isolation import Ended
from orderlab.spark_sweeps.runs.subject import Observed
from orderlab.spark_sweeps.sweep_file.plan import Plan, Run

MEASURED = ("wall_s", "cpu_s", "peak_memory_mib")
"""Columns that differ from machine to machine and run to run; every other column is a function of file, code and seed."""
PREFIX = "parameter."
DERIVED_LOOKED_AT = 100
"""So many values of a derived parameter decide on the type of its column."""

SCHEMA_HEAD = [
    pa.field("run", pa.int64(), nullable=False),
    pa.field("point", pa.int64(), nullable=False),
    pa.field("replication", pa.int32(), nullable=False),
    pa.field("attempt", pa.int32(), nullable=False),
    pa.field("seed", pa.int64(), nullable=False),
]
SCHEMA_TAIL = [
    pa.field("status", pa.string(), nullable=False),  # ok, error, timeout, memory, killed
    pa.field("error", pa.string()),
    pa.field("outcome", pa.string()),  # holds, violated, unknown; null where nothing was judged
    pa.field("vacuous", pa.bool_()),  # no law was put to the test, and nothing else is unknown
    pa.field("verdicts", pa.map_(pa.string(), pa.string())),
    pa.field("witnesses", pa.string()),  # JSON by law
    pa.field("metrics", pa.map_(pa.string(), pa.float64())),
    pa.field("history_digest", pa.string()),
    pa.field("history_rows", pa.int64()),
    pa.field("history_file", pa.string()),
    pa.field("code_digest", pa.string(), nullable=False),
    pa.field("scripts_digest", pa.string(), nullable=False),
    pa.field("subject_digest", pa.string(), nullable=False),  # of the user's module or cost model
    pa.field("sweep_digest", pa.string(), nullable=False),  # of the manifest: to which sweep the row belongs
    pa.field("replay", pa.string(), nullable=False),
    pa.field("row_digest", pa.string(), nullable=False),  # of all columns above but the attempt
    pa.field("wall_s", pa.float64()),
    pa.field("cpu_s", pa.float64()),
    pa.field("peak_memory_mib", pa.float64()),
]


def schema_of(plan: Plan) -> pa.Schema:
    """The schema of a sweep: a column for each varied parameter, of the type that all its values have in common."""
    varied = []
    rows = plan.sweep.design.rows
    for name in plan.parameter_names:
        if rows is not None and name not in plan.sweep.derived:
            values: Iterable[Any] = [row[name] for row in rows if name in row]
        elif name in plan.sweep.axes:
            axis = plan.sweep.axes[name]
            values = axis.listed() if axis.has_list else (axis.at(0.5),)
            if name in plan.sweep.base:
                values = (*values, plan.sweep.base[name])
        else:
            values = _some_derived(plan, name)
        varied.append(pa.field(PREFIX + name, _common_type(values)))
    return pa.schema([*SCHEMA_HEAD, *varied, *SCHEMA_TAIL])


def _some_derived(plan: Plan, name: str) -> Iterator[Any]:
    for number in range(0, len(plan), max(1, len(plan) // DERIVED_LOOKED_AT)):
        with contextlib.suppress(InputError):  # such a run becomes a row with its error
            yield plan.run(number).parameters[name]


def _common_type(values: Iterable[Any]) -> pa.DataType:
    """bool, int64 or float64; text where there is any."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def row_of(
    plan: Plan, run: Run, ended: Ended[Observed], attempt: int, digests: Mapping[str, str], replay: str
) -> dict[str, Any]:
    """The row of a run, by column."""
    observed = ended.result or Observed({})
    metrics = {
        storable(name): value
        for name, value in sorted(observed.metrics.items())
        if any(fnmatchcase(name, pattern) for pattern in plan.sweep.record.metrics)
    }
    row = {
        "run": run.number, "point": run.point, "replication": run.replication, "attempt": attempt, "seed": run.seed,
        "status": ended.status, "error": None if ended.error is None else storable(ended.error),
        "outcome": observed.outcome if observed.verdicts else None,
        "vacuous": observed.vacuous if ended.status == "ok" else None,
        "verdicts": sorted((storable(law), verdict) for law, verdict in observed.verdicts.items()), "metrics": list(metrics.items()),
        "witnesses": json.dumps(observed.witnesses, sort_keys=True) if observed.witnesses else None,
        "history_digest": observed.history_digest, "history_rows": observed.history_rows,
        "history_file": observed.history_file, **digests, "replay": storable(replay), **{name: getattr(ended.usage, name) for name in MEASURED},
    }  # fmt: skip
    for name in plan.parameter_names:
        row[PREFIX + name] = run.parameters.get(name)
    return {**row, "row_digest": _digest_of_row(row)}


def storable(text: str) -> str:
    """Text of a run's, as UTF-8 can hold it: Python has strings that no file takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table under the schema; values take the type of their column."""
    columns = []
    for column in schema:
        values = [row[column.name] for row in rows]
        if pa.types.is_string(column.type):
            values = [None if value is None else str(value) for value in values]
        try:
            columns.append(pa.array(values, column.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InputError(f"{column.name}: not {column.type} in every run ({error}); give it one type") from None
    return pa.Table.from_arrays(columns, schema=schema)


def _digest_of_row(row: Mapping[str, Any]) -> str:
    """Of all columns but the measured ones and the attempt."""
    told = {name: value for name, value in row.items() if name not in MEASURED and name != "attempt"}
    content = json.dumps(told, sort_keys=True, separators=(",", ":"), default=list)
    return blake2b(content.encode(), digest_size=16).hexdigest()


def combined(digests: Iterable[str], so_far: int = 0) -> int:
    """The digest of a set of rows, whatever their order: the sum of theirs modulo 2^128."""
    return sum((int(digest, 16) for digest in digests), so_far) % 2**128


PARAMETER, METRIC = "parameter", "metric"
"""What a column is of that cannot be called as its parameter or metric is."""


def columns_beside(taken: Collection[str], names: Iterable[str], kind: str) -> dict[str, str]:
    """Name -> its column in a table that has the columns ``taken``: the name itself, or ``parameter.NAME`` where another
    column is called so. Users name parameters and metrics as they like, and no column may hide another.
    """
    names = list(dict.fromkeys(names))
    used = {*taken, *names}
    found = {}
    for name in names:
        column = name
        while column in taken or (column != name and column in used):
            column = f"{kind}.{column}"
        used.add(column)
        found[name] = column
    return found
