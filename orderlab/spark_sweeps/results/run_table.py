"""The runs of a sweep as one flat table: a column for each parameter, metric and law, filtered, sorted, written out.

A folder holds the rows of one sweep, or those of a question, which keeps a folder for each of its rounds. Both are read
from committed files alone, so that a sweep that still runs, here or on a cluster, can be looked at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.files import WholeFile, checked_place, scratch_folder
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, PREFIX, columns_beside, schema_of
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
BATCH = 1 << 11
"""Rows that are held at a time where all are asked for."""
PARTS_MAX = 500
"""Files among which rows are dealt to be put in order."""
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

    @cached_property
    def schema(self) -> pa.Schema:
        """Of all rows: a parameter that is a number in one round and text in another is text."""
        of_rounds = [self._flat(each, schema_of(each.plan).empty_table()).schema for each in self.rounds]
        return pa.schema(
            [(name, _type_for([schema.field(name).type for schema in of_rounds])) for name in self.columns]
        )

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
                flat = self._flat(each, table).cast(self.schema)
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
        order = self._order(sort, descending)
        for part in self.parts(conditions):
            met += part.num_rows
            kept.append(part)
            if most is not None and sum(table.num_rows for table in kept) > 100_000 + 2 * most:
                kept = [joined(self.schema, kept).sort_by(order).slice(0, most)]
        return joined(self.schema, kept).sort_by(order).slice(0, most), met

    def _order(self, sort: str | None, descending: bool) -> list[tuple[str, str]]:
        keys = [ROUND, "run"] if self.rounds[0].name and sort is None else [sort or "run"]
        return [(self.checked(name, "--sort"), "descending" if descending else "ascending") for name in keys]

    def in_order(
        self, conditions: Sequence[RowCondition], sort: str | None, descending: bool, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """These columns of all rows that meet the conditions, sorted as `rows` are, `BATCH` rows at a time or a
        `PARTS_MAX`-th of all: what is in memory beside is the column that they are sorted by, and their places."""
        order = self._order(sort, descending)
        with self.spooled(conditions) as spool, pa.OSFile(str(spool)) as source:
            keys = pa.ipc.open_file(
                source, options=pa.ipc.IpcReadOptions(included_fields=[self.columns.index(name) for name, _ in order])
            ).read_all()
            ranks = np.empty(keys.num_rows, np.int64)
            ranks[pc.sort_indices(keys, sort_keys=order).to_numpy()] = np.arange(len(ranks))
            size = max(BATCH, len(ranks) // PARTS_MAX + 1)
            schema = subschema(self.schema, columns).append(pa.field(RANK, pa.int64()))
            parts = [spool.with_name(f"{part}") for part in range(-(-len(ranks) // size))]
            rows = pa.ipc.open_file(source)
            begun = 0
            with contextlib.ExitStack() as stack:
                dealt = [stack.enter_context(_spool(part, schema)) for part in parts]
                for number in range(rows.num_record_batches):
                    batch = rows.get_batch(number).select(list(columns))
                    places = ranks[begun : begun + batch.num_rows]
                    begun += batch.num_rows
                    batch = batch.append_column(RANK, pa.array(places))
                    for part in np.unique(places // size):
                        dealt[part].write_batch(batch.filter(pa.array(places // size == part)))
            for part in parts:
                with pa.OSFile(str(part)) as file:
                    yield pa.ipc.open_file(file).read_all().sort_by(RANK).drop_columns([RANK])

    @contextlib.contextmanager
    def spooled(self, conditions: Sequence[RowCondition] = ()) -> Iterator[Path]:
        """A file of Arrow with all rows that meet the conditions. Raises InputError."""
        with scratch_folder() as folder:
            try:
                with _spool(folder / "runs.arrow", self.schema) as file:
                    for part in self.parts(conditions):
                        file.write_table(part, max_chunksize=BATCH)
                yield folder / "runs.arrow"
            except OSError as error:
                raise InputError(
                    f"{folder}: no room for rows there ({error}); set TMPDIR to a folder with more"
                ) from None


def _spool(path: Path, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def _type_for(types: Sequence[pa.DataType]) -> pa.DataType:
    """That of a column which has each of these in one round."""
    try:
        schemas = [pa.schema([("", each)]) for each in types]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.string()


def subschema(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Some columns of a schema."""
    return pa.schema([schema.field(name) for name in columns])


def joined(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """Tables of one schema as one."""
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


RANK = ""
"""A column beside those of rows: their places in the order."""
FORMS = (".parquet", ".csv")


def export_place(path: Path) -> Path:
    """The file, if rows can be written there. Raises InputError."""
    if path.suffix not in FORMS:
        raise InputError(f"--export {path}: no form of rows; name a file that ends in {' or '.join(FORMS)}")
    return checked_place(f"--export {path}", path)


def export(tables: Iterable[pa.Table], schema: pa.Schema, path: Path) -> int:
    """Write rows as the ending of the file says; how many. Raises InputError."""
    out, rows = WholeFile(path), 0
    try:
        make = pa_csv.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter
        options = {} if path.suffix == ".csv" else {"compression": "zstd"}
        with make(out.file, schema, **options) as writer:
            for table in tables:
                writer.write_table(table)
                rows += table.num_rows
        out.keep()
    except BaseException:
        out.drop()
        raise
    return rows


@contextlib.contextmanager
def queried(
    table: RunTable, conditions: Sequence[RowCondition], sql: str
) -> Iterator[tuple[pa.Schema, Iterator[pa.Table]]]:
    """What DuckDB answers of the rows of ``table``, which the query calls ``runs``. Files, extensions and settings are
    out of its reach. Raises InputError."""
    import duckdb
    import pyarrow.dataset as ds

    with table.spooled(conditions) as spool, duckdb.connect(":memory:") as connection:
        connection.register("runs", ds.dataset(spool, format="ipc"))
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InputError("--sql: not one query; write SELECT ... FROM runs")
            reader = connection.sql(sql).to_arrow_reader(BATCH)
            yield reader.schema, (pa.Table.from_batches([batch]) for batch in reader)
        except (duckdb.Error, pa.ArrowException) as error:
            raise InputError(f"--sql: {' '.join(str(error).split())[:300]}") from None
