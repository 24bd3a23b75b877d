"""Histories judged on Spark by the checkers of one process: without a shuffle where the files are keyed, with one else.

A keyed history is a folder whose ``history.json`` says that each logical FIFO lies whole in one part, rows without one
(subscribe, connect, clear, heal, ...) lie in every part, and ``subscribers_whole`` tells whether each subscriber's rows
lie in one part, too. Partial results are merged in the driver; no row reaches it but those that the witnesses show.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import or_
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from orderlab.model.checkers.delivery import checker as delivery
from orderlab.model.checkers.delivery.checker import DeliveryChecker, delivery_verdicts
from orderlab.model.checkers.findings import VACUOUS, Finding, Partial, are_of_faults, first_publish, is_about, tell
from orderlab.model.checkers.judge import PASSES, PIPELINE_LAWS, WHOLE_LAWS, Question, judge, judge_again, passes_for
from orderlab.model.checkers.untested import RowsSeen, with_reasons
from orderlab.model.checkers.witness_rows import ROWS_WHOLE, complete, joined, last, rows_around
from orderlab.model.errors import InputError
from orderlab.model.files import read_json, write_whole
from orderlab.model.history.decoding import ArrowDecoder
from orderlab.model.history.disk import HistoryFile, HistoryWriter, open_history, to_arrow
from orderlab.model.history.events import STORE_KINDS, EventBatch, EventKind, History, IntArray, Names
from orderlab.model.history.footer import row_groups_of
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict, overall, to_plain
from orderlab.spark_sweeps.spark.session import explained
from orderlab.spark_sweeps.spark.tasks import marked_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MANIFEST = "history.json"
ANSWERS = (EventKind.RECEIVE, EventKind.RELEASE, EventKind.ACKNOWLEDGE)
"""Rows that belong to a subscriber's packet identifier and name no logical FIFO."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class HistoryParts:
    """The Parquet files of one history, and how they are keyed. ``rows``: of the history, each counted once."""

    files: tuple[Path, ...]
    rows: int
    keyed: bool
    subscribers_whole: bool
    end_us: int | None
    """The time of the last row, if the files' statistics tell."""
    has_packet_ids: bool


def history_parts(folder: Path) -> HistoryParts:
    """What a folder holds, or one file. Raises InputError."""
    files = (folder,) if folder.is_file() else tuple(sorted(folder.glob("*.parquet")))
    if not files:
        raise InputError(f"{folder}: no Parquet files; name a folder with the parts of a history")
    manifest = {}
    if (folder / MANIFEST).is_file():
        manifest = read_json(folder / MANIFEST, "write the history again")
        if not isinstance(manifest, dict):
            raise InputError(f"{folder}/{MANIFEST}: not the manifest of a history; write the history again")
        if manifest.get("keyed_by") != "logical-fifo" or len(files) != manifest.get("parts"):
            raise InputError(
                f"{folder}: {MANIFEST} names {manifest.get('parts')} parts, {len(files)} are here; write it again"
            )
    rows, ends, has_packet_ids, filled = 0, [], False, []
    for file in files:
        try:
            groups = row_groups_of(file, pq.ParquetFile(file).schema)
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: truncated or not Parquet ({' '.join(str(error).split())[:100]})") from None
        if not any(group.rows for group in groups):
            continue
        filled.append(file)
        for group in groups:
            rows += group.rows
            has_packet_ids |= "packet_id" in group.chunks
            end = group.chunks["time_us"].greatest if "time_us" in group.chunks else None
            ends.append(None if end is None else int.from_bytes(end, "little", signed=True))
    known = [end for end in ends if end is not None]
    end_us = max(known) if known and len(known) == len(ends) else None
    if rows == 0:
        raise InputError(f"{folder}: no events; a history has at least one row")
    return HistoryParts(
        tuple(filled),
        manifest.get("rows", rows),
        bool(manifest),
        bool(manifest.get("subscribers_whole")),
        end_us,
        has_packet_ids,
    )


class KeyedHistoryWriter:
    """Writes batches to FOLDER in ``parts`` files. The folder appears whole, when the block is left without an
    error."""

    def __init__(self, folder: Path, names: Names, parts: int) -> None:
        if folder.exists():
            raise InputError(f"{folder}: exists; name a new folder")
        self.folder, self.parts = folder, parts
        self.rows = 0
        self._temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        self._temporary.mkdir(parents=True)
        self._stack = ExitStack()
        self._writers = [
            self._stack.enter_context(HistoryWriter(self._temporary / f"part-{part:05d}.parquet", names))
            for part in range(parts)
        ]
        self._part_of_subscriber = np.full(1, -1, np.int64)
        self._subscribers_whole = True

    def write(self, batch: EventBatch) -> None:
        """Append the rows of a batch, each to its part."""
        self.rows += len(batch)
        part = self._part_of_rows(batch)
        for number, writer in enumerate(self._writers):
            mine = (part == number) | (part == -1)
            if mine.any():
                writer.write(batch.select(mine))

    def _part_of_rows(self, batch: EventBatch) -> IntArray:
        """The part of each row; -1: every part."""
        has_fifo = batch.publisher >= 0
        part = np.where(has_fifo, fifo_part(batch.publisher, batch.topic, batch.qos, self.parts), -1)
        most = int(batch.subscriber.max(initial=-1)) + 1
        if most > len(self._part_of_subscriber):
            grown = np.full(2 * most, -1, np.int64)
            grown[: len(self._part_of_subscriber)] = self._part_of_subscriber
            self._part_of_subscriber = grown
        delivered = np.flatnonzero(has_fifo & (batch.subscriber >= 0))
        known = self._part_of_subscriber
        before = known[batch.subscriber[delivered]]
        self._subscribers_whole &= bool(((before == -1) | (before == part[delivered])).all())
        known[batch.subscriber[delivered]] = part[delivered]
        self._subscribers_whole &= bool((known[batch.subscriber[delivered]] == part[delivered]).all())
        answers = np.flatnonzero(np.isin(batch.kind, ANSWERS))
        part[answers] = np.maximum(known[batch.subscriber[answers]], 0)
        return part

    def __enter__(self) -> KeyedHistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
            if kind is None:
                told = {
                    "keyed_by": "logical-fifo", "parts": self.parts, "rows": self.rows,
                    "subscribers_whole": self._subscribers_whole,
                }  # fmt: skip
                write_whole(self._temporary / MANIFEST, json.dumps(told).encode())
                os.rename(self._temporary, self.folder)
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)


def fifo_part(publisher: IntArray, topic: IntArray, qos: IntArray, parts: int) -> IntArray:
    """A part for each logical FIFO, by its codes."""
    with np.errstate(over="ignore"):
        mixed = (publisher.astype(np.uint64) << np.uint64(32)) ^ (topic.astype(np.uint64) << np.uint64(2))
        mixed = (mixed ^ (qos.astype(np.uint64) & np.uint64(3))) * _MIX
        part: IntArray = ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.int64)
        return part


BY_FIFO, BY_SUBSCRIBER, BY_BOTH = "by fifo", "by subscriber", "by both"
BY_SESSION_LAWS = (*(law for one in PASSES.values() if one.by_session for law in one.laws), "exactly-once")
"""Laws that need a subscriber's rows together where deliveries carry packet identifiers."""


@dataclass(frozen=True)
class Task:
    """What to judge of a part. ``role``: by what its rows are whole."""

    laws: tuple[str, ...]
    question: Question
    end_us: int | None
    role: str

    @classmethod
    def of(cls, question: Question, laws: tuple[str, ...], end_us: int | None, role: str) -> Task:
        """The task of a role: its share of the laws."""
        if role == BY_FIFO:
            laws = tuple(law for law in laws if law not in BY_SESSION_LAWS)
        elif role == BY_SUBSCRIBER:
            laws = tuple(law for law in laws if law in BY_SESSION_LAWS)
        return cls(laws, question, end_us, role)


@dataclass(frozen=True)
class PartResult:
    """What one part came to, by checker. ``delivery_if``: the same if other parts have publish rows and this one has
    none; ``file``: the part, if it is one, which then has all rows that show its findings.
    """

    file: str | None
    laws: tuple[str, ...]
    delivery: Partial | None
    delivery_if: Partial | None
    published: int
    passes: dict[str, Partial]
    """By the names of PASSES."""
    seen: RowsSeen

    def found(self, finding: Finding) -> bool:
        """Whether this part gave the finding."""
        partials = (self.delivery, self.delivery_if, *self.passes.values())
        return any(finding in partial.findings.values() for partial in partials if partial is not None)


def judge_part(task: Task, names: Names, batches: Iterable[EventBatch], file: str | None = None) -> PartResult:
    """One pass. Raises InputError for store operations, which no part can judge."""
    deliveries = DeliveryChecker(names, task.question.drain_bound_us) if set(task.laws) & set(delivery.LAWS) else None
    passes = passes_for(task.laws, names, task.question)
    seen = RowsSeen()
    for batch in batches:
        seen.observe(batch)
        if ((batch.kind >= STORE_KINDS[0]) & (batch.kind <= STORE_KINDS[-1])).any():
            cure = "name its files one by one, without --master"
            raise InputError(f"the history has store operations, which one process judges; {cure}")
        if deliveries is not None:
            deliveries.observe(batch)
        for checker in passes.values():
            checker.observe(batch)
    partial = None if deliveries is None else deliveries.partial(task.end_us)
    published = 0 if partial is None else partial.counts.get("published", 0)
    other = deliveries.partial(task.end_us, published_elsewhere=True) if deliveries and not published else None
    return PartResult(
        file, task.laws, partial, other, published, {name: checker.partial() for name, checker in passes.items()}, seen
    )


def judge_file(task: Task, path: str) -> PartResult:
    """A part that is a file."""
    with marked_errors():
        reader = open_history(path)
        return judge_part(task, reader.names, reader, path)


def judge_rows(task: Task, place: str, packed: Iterable[bytes], is_repeated: bool) -> PartResult:
    """A part that came through a shuffle: the rows that each file has for it. ``is_repeated``: rows without a logical
    FIFO lie in every file."""
    tables = [pa.ipc.open_stream(rows).read_all() for rows in packed]
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries().combine_chunks()
    del tables
    if is_repeated:
        table = _once_each(table)
    else:
        table = table.take(pa.array(np.argsort(table.column("event_id").to_numpy(), kind="stable")))
    decoder = ArrowDecoder(place, table.schema)
    with marked_errors():
        batches = (decoder.decode(batch) for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE))
        return judge_part(task, decoder.names, batches)


ROWS_AT_ONCE = 1 << 16
ROWS_PER_PART, ROWS_PACKED = 2_000_000, 1_000_000
"""Of a shuffled history: about as many rows are held by a task that judges, and by one that deals."""


@dataclass(frozen=True)
class Dealer:
    """Which rows of a history go to which of ``count`` parts of each role."""

    roles: tuple[str, ...]
    count: int

    def pack(self, path: str) -> Iterator[tuple[int, bytes]]:
        """The rows of a file by part, packed. Raises InputError."""
        with marked_errors():
            reader = open_history(path)
            waiting: list[EventBatch] = []
            for batch in reader:
                waiting.append(batch)
                if sum(map(len, waiting)) >= ROWS_PACKED:
                    yield from self._packed(waiting, reader.names)
                    waiting = []
            yield from self._packed(waiting, reader.names)

    def _packed(self, batches: list[EventBatch], names: Names) -> Iterator[tuple[int, bytes]]:
        if not batches:
            return
        batch = History(tuple(batches), names).joined()
        rows = to_arrow(batch, names)
        rows = rows.select([name for name in rows.schema.names if rows.column(name).null_count < len(batch)])
        for number, role in enumerate(self.roles):
            places = self.places(batch, names, role)
            for place in range(self.count):
                mine = np.flatnonzero((places == place) | (places == EVERYWHERE))
                if len(mine):
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, rows.schema, options=PACKED) as stream:
                        stream.write_batch(rows.take(pa.array(mine)))
                    yield number * self.count + place, sink.getvalue().to_pybytes()

    def places(self, batch: EventBatch, names: Names, role: str) -> IntArray:
        """The part of each row; EVERYWHERE, or NOWHERE."""
        has_fifo = batch.publisher >= 0
        is_answer = np.isin(batch.kind, ANSWERS)
        if role == BY_SUBSCRIBER:
            places = hashed_names(names, "subscriber", batch.subscriber) % np.uint64(self.count)
            concerned = is_answer | (has_fifo & (batch.subscriber >= 0))
        else:
            mixed = hashed_names(names, "publisher", batch.publisher) * _MIX
            mixed = (mixed ^ hashed_names(names, "topic", batch.topic)) * _MIX
            places = ((mixed ^ batch.qos.astype(np.uint64)) * _MIX >> np.uint64(33)) % np.uint64(self.count)
            concerned = has_fifo if role == BY_FIFO else has_fifo | is_answer
        part: IntArray = np.where(concerned, places.astype(np.int64), NOWHERE)
        part[~has_fifo & ~is_answer] = EVERYWHERE
        if role == BY_SUBSCRIBER:  # whoever may have a copy
            part[(batch.kind == EventKind.PUBLISH) & (batch.dup > 0)] = EVERYWHERE
        return part


EVERYWHERE, NOWHERE = -1, -2
PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


def hashed_names(names: Names, column: str, codes: IntArray) -> npt.NDArray[np.uint64]:
    """A number for each code of a column that depends on the name alone: files number their names each for
    themselves."""
    table = names.table(column)
    assert table is not None
    if table.numeric:
        return codes.astype(np.uint64)
    digests = [int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") for name in table.names]
    hashed: npt.NDArray[np.uint64] = np.array([*digests, 0], np.uint64)[codes]
    return hashed


def rows_about(findings: list[Finding], path: str) -> list[pa.RecordBatch]:
    """The rows of a file that a witness shows: none after the last event that breaks a law."""
    ends = [finding.event_id for finding in findings]
    found: list[pa.RecordBatch] = []
    with marked_errors():
        reader = open_history(path)
        for batch in reader:
            about = are_of_faults(batch) | (sum(is_about(finding, batch, reader.names) for finding in findings) > 0)
            if not found:
                about[first_publish(batch)] = True
            if about.any():
                found.append(to_arrow(batch.select(about), reader.names))
            if all(end is not None and end < batch.event_id[-1] for end in ends):
                break
    return found


TASKS_PER_CORE = 4
"""A task costs 0.1 s of processor time whatever it does; with several a core, the last ones end together."""


def check_folder(folder: Path, question: Question, session: SparkSession, log: Path) -> tuple[list[Verdict], int]:
    """The verdicts on the one history whose parts lie in FOLDER, and its rows. Raises InputError."""
    started = time.perf_counter()
    laws = tuple(law for law in PIPELINE_LAWS if question.asks(law))
    for law in question.laws:
        if law not in PIPELINE_LAWS:
            cure = "check one file without --master" if law in WHOLE_LAWS else "one process judges store operations"
            raise InputError(f"--law {law}: not judged in parts; {cure}")
    parts = history_parts(folder)
    try:
        results = _judged(parts, question, laws, session)
        verdicts = _verdicts(results, laws, {"rows": parts.rows, "seconds": round(time.perf_counter() - started, 6)})
        return _told(verdicts, question, parts, results, session), parts.rows
    except InputError:
        raise
    except Exception as error:
        raise InputError(explained(error, session.sparkContext.master, log)) from None


def _judged(parts: HistoryParts, question: Question, laws: tuple[str, ...], session: SparkSession) -> list[PartResult]:
    needs_sessions = parts.has_packet_ids and bool(set(laws) & set(BY_SESSION_LAWS)) and not parts.subscribers_whole
    role = BY_FIFO if needs_sessions else BY_BOTH
    results: list[PartResult] = []
    if parts.keyed:
        task = Task.of(question, laws, parts.end_us, role)
        files = [str(file.absolute()) for file in parts.files]
        results += _spread(session, files).map(lambda path: judge_file(task, path)).collect()
        if needs_sessions:
            results += _shuffled(parts, question, laws, session, (BY_SUBSCRIBER,))
    else:
        results += _shuffled(parts, question, laws, session, (role, BY_SUBSCRIBER) if needs_sessions else (role,))
    return results


def _spread(session: SparkSession, work: Sequence[Any]) -> Any:
    """An RDD of little more than file names: a task reads its files itself, so that no row goes through the JVM."""
    context = session.sparkContext
    return context.parallelize(work, min(len(work), TASKS_PER_CORE * context.defaultParallelism))


def _shuffled(
    parts: HistoryParts, question: Question, laws: tuple[str, ...], session: SparkSession, roles: tuple[str, ...]
) -> list[PartResult]:
    """Each row to the parts that need it: one exchange for all roles, of packed columns, which the JVM leaves as they
    are."""
    files = [str(file.absolute()) for file in parts.files]
    spread = _spread(session, files)
    end_us = parts.end_us if parts.end_us is not None else max(spread.map(_end_us).collect())
    least = spread.context.defaultParallelism * 2
    dealer = Dealer(roles, max(2, least, parts.rows // ROWS_PER_PART))
    tasks = [Task.of(question, laws, end_us, role) for role in roles]

    def judged(dealt: Iterable[tuple[int, bytes]]) -> Iterator[PartResult]:
        by_part: dict[int, list[bytes]] = {}
        for number, rows in dealt:
            by_part.setdefault(number, []).append(rows)
        for number, packed in by_part.items():
            yield judge_rows(tasks[number // dealer.count], f"part {number}", packed, parts.keyed)

    dealt = spread.flatMap(dealer.pack).partitionBy(dealer.count * len(roles), lambda part: part)
    results: list[PartResult] = dealt.mapPartitions(judged).collect()
    return results


def _end_us(path: str) -> int:
    """The time of the last row of a file whose statistics do not tell it."""
    return int(pq.read_table(path, columns=["time_us"]).column(0).to_numpy().max(initial=0))


def _verdicts(results: list[PartResult], laws: tuple[str, ...], work: dict[str, float]) -> list[Verdict]:
    publishes = any(result.published for result in results)
    verdicts: list[Verdict] = []
    for law in (law for law in delivery.LAWS if law in laws):
        judges = [result for result in results if law in result.laws]
        mine = _merged(one.delivery_if if publishes and one.delivery_if else one.delivery for one in judges)
        if mine is not None:
            verdicts += delivery_verdicts(mine, [law], work)
    for name, one in PASSES.items():
        merged = _merged(result.passes.get(name) for result in results)
        if merged is not None:
            verdicts += one.verdicts(merged, laws, work)
    return with_reasons(verdicts, reduce(or_, (result.seen for result in results), RowsSeen()))


def check_each(folder: Path, question: Question, session: SparkSession, log: Path) -> tuple[list[Verdict], int]:
    """The verdicts on many histories, one a file, as a sweep keeps them: by law the worst, and whose witness it is."""
    files = sorted(str(file.absolute()) for file in folder.glob("*.parquet"))
    if not files:
        raise InputError(f'{folder}: no histories; say [record] histories = "all" in the sweep file')

    def judged(path: str) -> tuple[str, list[Verdict], int]:
        with marked_errors():
            return Path(path).name, *judge(HistoryFile(path), question)

    try:
        found = _spread(session, files).map(judged).collect()
    except Exception as error:
        raise InputError(explained(error, session.sparkContext.master, log)) from None
    laws = dict.fromkeys(verdict.law for _, verdicts, _ in found for verdict in verdicts)
    return [_over_all(law, found) for law in laws], sum(rows for _, _, rows in found)


def _over_all(law: str, found: list[tuple[str, list[Verdict], int]]) -> Verdict:
    mine = [(name, verdict) for name, verdicts, _ in found for verdict in verdicts if verdict.law == law]
    outcome = overall(verdict for _, verdict in mine)
    violated = [(name, verdict) for name, verdict in mine if verdict.outcome is Outcome.VIOLATED]
    work = {
        "histories": len(mine), "histories_violated": len(violated),
        "antecedents": sum(verdict.work.get("antecedents", 0) for _, verdict in mine),
        "violations": sum(verdict.work.get("violations", 0) for _, verdict in mine),
    }  # fmt: skip
    if any(verdict.work.get(UNFINISHED) for _, verdict in mine):
        work[UNFINISHED] = 1
    notes = dict.fromkeys(n for _, one in mine for n in one.not_covered if not n.startswith(VACUOUS))
    if untested := sum(verdict.vacuous for _, verdict in mine):
        all_of_them = untested == len(mine)
        notes[VACUOUS if all_of_them else f"{untested} of {len(mine)} histories do not test the law"] = None
    witness = {"history": violated[0][0], **to_plain(violated[0][1].witness)} if violated else None
    return Verdict(law, outcome, witness, work, tuple(notes))


def _merged(partials: Iterable[Partial | None]) -> Partial | None:
    found = [partial for partial in partials if partial is not None]
    return reduce(Partial.merge, found) if found else None


def _told(
    verdicts: list[Verdict],
    question: Question,
    parts: HistoryParts,
    results: list[PartResult],
    session: SparkSession,
) -> list[Verdict]:
    """The verdicts with the rows that show their witnesses: one more pass, over the files that have them."""
    findings = [verdict.witness for verdict in verdicts if isinstance(verdict.witness, Finding)]
    if not findings:
        return verdicts
    asked: dict[str, list[Finding]] = {}
    for finding in findings:
        holder = next(result.file for result in results if result.found(finding))
        for file in [holder] if holder is not None else [str(file.absolute()) for file in parts.files]:
            asked.setdefault(file, []).append(finding)
    found = _spread(session, list(asked.items())).flatMap(lambda asked: rows_about(asked[1], asked[0])).collect()
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in found], promote_options="permissive")
    table = _once_each(table)
    decoder = ArrowDecoder("the rows of the witnesses", table.schema)
    batches = [decoder.decode(batch) for batch in table.combine_chunks().to_batches()]
    told = tell(verdicts, batches, decoder.names)
    return complete(told, lambda findings: _surroundings(findings, parts, session), judge_again(question))


def rows_of_file(findings: Mapping[int, Finding], path: str) -> list[tuple[int, pa.RecordBatch]]:
    """Of a file the rows among which findings are sought again."""
    with marked_errors():
        reader = open_history(path)
        found = rows_around(findings, reader, reader.names)
        return [(at, to_arrow(rows, names)) for at, (rows, names) in found.items()]


def _surroundings(
    findings: Mapping[int, Finding], parts: HistoryParts, session: SparkSession
) -> Mapping[int, tuple[EventBatch, Names]]:
    """The same of all files: all rows if the history is short."""
    files = [str(file.absolute()) for file in parts.files]
    found = _spread(session, files).flatMap(lambda path: rows_of_file(findings, path)).collect()
    around = {}
    for at, finding in findings.items():
        mine = [pa.Table.from_batches([batch]) for number, batch in found if number == at]
        table = _once_each(pa.concat_tables(mine, promote_options="permissive"))
        decoder = ArrowDecoder("the rows around a witness", table.schema)
        rows = joined(decoder.decode(batch) for batch in table.combine_chunks().to_batches())
        around[at] = rows if len(rows) <= ROWS_WHOLE else last(rows, finding), decoder.names
    return around


def _once_each(table: pa.Table) -> pa.Table:
    """Sorted by event; rows that lie in every part kept once."""
    import numpy as np

    _, first = np.unique(table.column("event_id").to_numpy(), return_index=True)
    return table.take(pa.array(first))
