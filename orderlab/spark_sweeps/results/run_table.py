"""The runs of a sweep as one flat table: a column for each parameter, metric and law, filtered, sorted, written out.

A folder holds the rows of one sweep, or those of a question, which keeps a folder for each of its rounds. Both are read
from committed files alone, so that a sweep that still runs, here or on a cluster, can be looked at.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.files import checked_place, write_whole
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, PREFIX, columns_beside
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import MANIFEST, SweepFile, read_sweep

HEAD = ("run", "point", "replication", "attempt", "seed", "status", "outcome")
TAIL = ("settled", "error", "wall_s", "cpu_s", "peak_memory_mib", "history_file", "replay")
ROUND, LAW = "round", "law"
_CONDITION = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|<|>|~)\s*(.*?)\s*")
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal, "!=": pc.not_equal, "<=": pc.less_equal, ">=": pc.greater_equal, "<": pc.less, ">": pc.greater,
    "~": lambda column, text: pc.match_substring(column, text.as_py(), ignore_case=True),
}  # fmt: skip
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Round:
    """The rows of one sweep, or of one round of a question; ``name`` is empty where there are no rounds."""

    name: str
    folder: ResultFolder

    @cached_property
    def sweep(self) -> SweepFile:
        """What its manifest says. Raises InputError."""
        return read_sweep(self.folder.path / MANIFEST)

    @cached_property
    def plan(self) -> Plan:
        """Its runs."""
        return Plan(self.sweep, str(self.folder.path / MANIFEST))


def rounds_of(path: Path) -> list[Round]:
    """The sweep in a folder, or the rounds of a question in the order in which they were begun. Raises InputError where
    there is neither."""
    if (path / MANIFEST).is_file():
        return [Round("", ResultFolder(path))]
    manifests = list(path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if not manifests:
        raise InputError(f"{path}: no results of a sweep here; name the output folder of one")
    manifests.sort(key=lambda manifest: (manifest.stat().st_mtime_ns, manifest.parent.name))
    return [Round(manifest.parent.name, ResultFolder(manifest.parent)) for manifest in manifests]


@dataclass(frozen=True)
class RowCondition:
    """A comparison of one column with a value: the rows for which it is true, and not those without a value."""

    column: str
    relation: str
    value: str

    def mask(self, table: pa.Table, place: str) -> pa.ChunkedArray:
        """Which rows meet it. Raises InputError for a value that the column cannot have."""
        column = table.column(self.column)
        is_text = pa.types.is_string(column.type) or pa.types.is_null(column.type)
        if self.relation in ("<", "<=", ">", ">=") and (is_text or pa.types.is_boolean(column.type)):
            raise InputError(f"{place}: {self.column} has no order; compare it by == or !=")
        if self.relation == "~" and not is_text:
            raise InputError(f"{place}: {self.column} is no text; compare it by ==, !=, <, <=, > or >=")
        return _RELATIONS[self.relation](column, self._scalar(column.type, place))

    def _scalar(self, kind: pa.DataType, place: str) -> pa.Scalar:
        text = self.value[1:-1] if re.fullmatch(r"'.*'|\".*\"", self.value) else self.value
        if pa.types.is_string(kind) or pa.types.is_null(kind):
            return pa.scalar(text, pa.string())
        if pa.types.is_boolean(kind):
            if text.lower() in _TRUTHS:
                return pa.scalar(_TRUTHS[text.lower()])
            raise InputError(f"{place}: {self.column} is true or false, not {text!r}")
        try:
            return pa.scalar(int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text))
        except (ValueError, OverflowError):
            raise InputError(f"{place}: {self.column} is a number, not {text!r}") from None


def condition_of(text: str) -> RowCondition:
    """The condition that ``--where`` says. Raises InputError."""
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise InputError(f'--where "{text}": no condition; write COLUMN == VALUE, with ==, !=, <, <=, >, >= or ~')
    return RowCondition(matched[1], matched[2], matched[3])


@dataclass
class RunTable:
    """The runs below a folder. Columns: round (of a question), HEAD, parameters, metrics, laws, TAIL; a parameter,
    metric or law that is called as another column is has its kind in front."""

    path: Path
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rounds = self.rounds or rounds_of(self.path)
        metrics: set[str] = set()
        laws: set[str] = set()
        for each in self.rounds:
            for table in each.folder.tables(len(each.plan), ["metrics", "verdicts"]):
                for column, names in (("metrics", metrics), ("verdicts", laws)):
                    for chunk in table.column(column).chunks:
                        names.update(chunk.keys.unique().to_pylist())
        parameters = dict.fromkeys(name for each in self.rounds for name in each.plan.parameter_names)
        fixed = ([ROUND] if self.rounds[0].name else []) + [*HEAD, *TAIL]
        self.parameters = columns_beside(fixed, parameters, PARAMETER)
        self.metrics = columns_beside([*fixed, *self.parameters.values()], sorted(metrics), METRIC)
        taken = [*fixed, *self.parameters.values(), *self.metrics.values()]
        self.laws = columns_beside(taken, sorted(laws), LAW)

    @property
    def columns(self) -> list[str]:
        """All, in their order."""
        varied = [*self.parameters.values(), *self.metrics.values(), *self.laws.values()]
        return [*([ROUND] if self.rounds[0].name else []), *HEAD, *varied, *TAIL]

    def checked(self, name: str, option: str) -> str:
        """The name of a column. Raises InputError for one that is none."""
        if name not in self.columns:
            raise InputError(f'{option}: no column "{name}"; {did_you_mean(name, self.columns)}')
        return name

    def parts(self, conditions: Sequence[RowCondition] = ()) -> Iterator[pa.Table]:
        """The rows that meet all conditions, file by file. Raises InputError."""
        for condition in conditions:
            self.checked(condition.column, "--where")
        for each in self.rounds:
            for table in each.folder.tables(len(each.plan)):
                flat = self._flat(each, table)
                for condition in conditions:
                    place = f'--where "{condition.column} {condition.relation} {condition.value}"'
                    flat = flat.filter(condition.mask(flat, place))
                if flat.num_rows:
                    yield flat

    def _flat(self, each: Round, table: pa.Table) -> pa.Table:
        there = set(table.column_names)
        columns: dict[str, Any] = {}
        if each.name:
            columns[ROUND] = pa.array([each.name] * table.num_rows, pa.string())
        columns |= {name: table.column(name) for name in HEAD}
        for name, column in self.parameters.items():
            known = PREFIX + name in there
            columns[column] = table.column(PREFIX + name) if known else pa.nulls(table.num_rows, pa.null())
        for source, names in (("metrics", self.metrics), ("verdicts", self.laws)):
            values = table.column(source)
            columns |= {column: pc.map_lookup(values, name, "first") for name, column in names.items()}
        return pa.table({**columns, **{name: table.column(name) for name in TAIL}})

    def rows(
        self,
        conditions: Sequence[RowCondition] = (),
        sort: str | None = None,
        descending: bool = False,
        most: int | None = None,
    ) -> tuple[pa.Table, int]:
        """The first ``most`` rows that meet the conditions, sorted by a column (by round and run where none is named;
        what has no value comes last), and how many meet them. Raises InputError.
        """
        kept: list[pa.Table] = []
        met = 0
        keys = [ROUND, "run"] if self.rounds[0].name and sort is None else [sort or "run"]
        order = [(self.checked(name, "--sort"), "descending" if descending else "ascending") for name in keys]
        for part in self.parts(conditions):
            met += part.num_rows
            kept.append(part)
            if most is not None and sum(table.num_rows for table in kept) > 100_000 + 2 * most:
                kept = [_joined(kept).sort_by(order).slice(0, most)]
        if not kept:
            return pa.table({name: pa.nulls(0) for name in self.columns}), 0
        return _joined(kept).sort_by(order).slice(0, most), met


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


FORMS = (".parquet", ".csv")


def export_place(path: Path) -> Path:
    """The file, if rows can be written there. Raises InputError."""
    if path.suffix not in FORMS:
        raise InputError(f"--export {path}: no form of rows; name a file that ends in {' or '.join(FORMS)}")
    return checked_place(f"--export {path}", path)


def export(table: pa.Table, path: Path) -> None:
    """Write rows as the ending of the file says. Raises InputError."""
    packed = io.BytesIO()
    if path.suffix == ".csv":
        pa_csv.write_csv(table, packed)
    else:
        pq.write_table(table, packed, compression="zstd")
    write_whole(path, packed.getvalue())


def queried(table: pa.Table, sql: str) -> pa.Table:
    """What DuckDB answers of ``table``, which the query calls ``runs``. Files, extensions and settings are out of its
    reach. Raises InputError."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.register("runs", table)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InputError("--sql: not one query; write SELECT ... FROM runs")
            answered = connection.sql(sql)
        except duckdb.Error as error:
            raise InputError(f"--sql: {' '.join(str(error).split())[:300]}") from None
        return answered.to_arrow_table()
