"""The folder of results: whole files or none, a run counted once, and one line for what cannot be."""

import errno
import io
import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.results.committed import MERGED_FILES, SOURCES, CommittedName, Counts, Listing
from orderlab.spark_sweeps.results.folder import QuestionFolder, ResultFolder, identity_of
from orderlab.spark_sweeps.sweep_file.specification import digest_of

MANIFEST = {"sweep": {"axes": {"a": [1]}}, "code": "c"}


def rows(runs, attempt=1, status="ok", outcome="holds", manifest=MANIFEST):
    return pa.table(
        {
            "run": pa.array(runs, pa.int64()),
            "attempt": pa.array([attempt] * len(runs), pa.int32()),
            "status": [status] * len(runs),
            "outcome": pa.array([outcome] * len(runs), pa.string()),
            "sweep_digest": [identity_of(manifest)] * len(runs),
        }
    )


def forged(place, table):
    """A file of rows that no worker committed, under a name as if one had."""
    packed = io.BytesIO()
    pq.write_table(table, packed)
    digest = digest_of(packed.getvalue())[:16]
    (place / f"1-{'0' * 32}.{len(table)}-0-0.{digest}.parquet").write_bytes(packed.getvalue())


@pytest.fixture
def folder(tmp_path):
    folder = ResultFolder(tmp_path / "out")
    folder.open(MANIFEST)
    yield folder
    folder.close()


def test_counts_come_from_names_and_agree_with_the_rows(folder):
    folder.commit(rows([0, 1, 2]))
    folder.commit(rows([3], status="timeout", outcome=None))
    folder.commit(rows([4], outcome="violated"))
    assert folder.counts() == folder.standing(9).counts == Counts(5, 1, 1)
    assert np.flatnonzero(folder.standing(9).attempt == 0).tolist() == [5, 6, 7, 8]


def test_the_last_attempt_counts_and_a_run_that_was_committed_twice_counts_once(folder):
    folder.commit(rows([0, 1], status="error", outcome=None))
    folder.commit(rows([1, 2]))  # by a worker that outlived its driver
    folder.commit(rows([0], attempt=2))
    found = pa.concat_tables(folder.tables(3)).sort_by("run")
    assert found.column("run").to_pylist() == [0, 1, 2]
    assert found.column("attempt").to_pylist() == [2, 1, 1]
    assert folder.standing(3).counts.rows == 3


def test_the_same_sweep_opens_the_folder_again_and_another_does_not(folder):
    folder.commit(rows([0]))
    folder.close()
    again = ResultFolder(folder.path)
    again.open({"sweep": {"axes": {"a": [1]}}, "code": "c"})
    assert again.counts().rows == 1
    with pytest.raises(InputError, match="another sweep writes here now"):
        ResultFolder(folder.path).open({"sweep": {"axes": {"a": [1]}}, "code": "c"})
    again.close()
    for manifest, told in (
        ({"sweep": {"axes": {"a": [2]}}, "code": "c"}, r"different sweep \(sweep.axes.a: there \[1\], here \[2\]\)"),
        ({"sweep": {"axes": {"a": [1]}}, "code": "d"}, r"the code has changed since"),
    ):
        with pytest.raises(InputError, match=told):
            ResultFolder(folder.path).open(manifest)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match=r"not empty, and without the sweep\.json of a sweep"):
        ResultFolder(tmp_path).open({})
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_full_disk_leaves_no_half_file(folder, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("orderlab.model.files.os.replace", full)
    with pytest.raises(InputError, match=r"No space left on device.*; free some space, .*: run the same command again"):
        folder.commit(rows([0]))
    assert os.listdir(folder.rows_path) == []


def test_a_worker_that_died_while_writing_leaves_nothing_that_counts(folder):
    folder.commit(rows([0]))
    (whole,) = folder.files()
    whole.rename(folder.rows_path / f".{whole.name}.abc")
    assert folder.counts().rows == 0
    folder.close()
    folder.open({"sweep": {"axes": {"a": [1]}}, "code": "c"})
    assert os.listdir(folder.rows_path) == []


def test_a_damaged_file_is_named(folder):
    folder.commit(rows([0]))
    (path,) = folder.files()
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"unreadable .* remove it: its runs are then done again"):
        folder.standing(1)


def test_no_bit_of_a_file_can_change_without_being_told(folder):
    folder.commit(rows([0, 1, 2, 3]))
    (path,) = folder.files()
    content, random_bits = path.read_bytes(), random.Random(5)
    for bit in random_bits.sample(range(8 * len(content)), 200):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"edited or damaged since\); remove it: its runs are then done again"):
            folder.standing(4)
    path.write_bytes(content)
    assert folder.standing(4).counts.rows == 4


def test_rows_that_were_edited_are_named(folder):
    folder.commit(rows([0, 1], outcome="violated"))
    (path,) = folder.files()
    pq.write_table(rows([0, 1]), path)
    with pytest.raises(InputError, match="edited or damaged since"):
        list(folder.tables(2))


def test_runs_that_two_workers_committed_are_counted_once_by_name(folder):
    folder.commit(rows([0, 1]))
    folder.commit(rows([0, 1], status="error", outcome=None))  # a task that was tried again
    assert len(folder.files()) == 2
    assert folder.counts().rows == folder.standing(2).counts.rows == 2


def test_a_start_that_was_killed_before_its_manifest_was_whole_is_gone_on_with(tmp_path):
    folder = ResultFolder(tmp_path / "out")
    folder.rows_path.mkdir(parents=True)
    folder.histories.mkdir()
    for name in (".lock", "sweep.jsonx1y2z3", ".sweep.json.x1y2z3.orderlab-part"):
        (folder.path / name).touch()
    folder.open({"sweep": {}})
    folder.close()
    (folder.path / "sweep.json").unlink()
    folder.commit(rows([0]))
    with pytest.raises(InputError, match=r"not empty, and without the sweep.json of a sweep"):
        folder.open({"sweep": {}})
    assert folder.counts().rows == 1


def test_a_folder_of_rounds_belongs_to_one_question_and_to_one_start_at_a_time(tmp_path):
    asked, place = {"question": {"kind": "capacity"}}, tmp_path / "out"
    with QuestionFolder(place).held(asked):
        with pytest.raises(InputError, match="another sweep writes here now"):
            QuestionFolder(place).open(asked)
        with pytest.raises(InputError, match=r'question.kind: there "capacity", here "best"'):
            QuestionFolder(place).open({"question": {"kind": "best"}})
        with pytest.raises(InputError, match=r"without the sweep.json of a sweep"):
            ResultFolder(place).open(MANIFEST)
    with QuestionFolder(place).held(asked):
        assert (place / "question.json").is_file()


def test_a_question_is_not_put_into_the_folder_of_a_sweep(folder):
    with pytest.raises(InputError, match=r"without the question.json of a question"):
        QuestionFolder(folder.path).open({"question": {"kind": "capacity"}})


@pytest.mark.parametrize("manifest", ["", "{", "[]", "3", '{"sweep": {'])
def test_a_manifest_that_says_nothing_is_named(manifest, folder):
    folder.close()
    (folder.path / "sweep.json").write_text(manifest)
    with pytest.raises(InputError, match=r"sweep.json: (not JSON|unreadable)|made by a different sweep"):
        folder.open({"sweep": {"axes": {"a": [1]}}, "code": "c"})


def test_a_manifest_that_was_damaged_or_is_of_another_version_never_passes_for_this_one(folder):
    folder.commit(rows([0]))
    folder.close()
    place, draw = folder.path / "sweep.json", random.Random(26)
    good = place.read_bytes()
    said = json.loads(good)
    more = {**said, "sweep": {**said["sweep"], "b": 1}}
    others = [more, {**said, "schema": 2}, {}, {"sweep": said["sweep"]}, {"code": "c"}]
    changed = [json.dumps(other).encode() for other in others]
    for _ in range(150):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] = draw.randrange(256)
        changed += [bytes(bad), good[: draw.randrange(len(good))]]
    refused = 0
    for content in changed:
        place.write_bytes(content)
        again = ResultFolder(folder.path)
        try:
            again.open(MANIFEST)
        except InputError:
            refused += 1
        else:
            assert json.loads(content) == said, content
            again.close()
    assert refused > 200
    place.write_bytes(good)
    folder.open(MANIFEST)
    assert folder.counts().rows == 1


@pytest.mark.parametrize("table", [pa.table({"run": [7]}), rows([9]), rows([-1])], ids=["columns", "above", "below"])
def test_rows_of_another_sweep_are_named(table, folder):
    forged(folder.rows_path, table)
    with pytest.raises(InputError, match="not rows of this sweep; remove it"):
        folder.standing(9)


def test_progress_is_counted_on_and_counted_afresh_where_files_are_gone(folder, monkeypatch):
    parsed = []
    of = CommittedName.of
    monkeypatch.setattr(CommittedName, "of", lambda name: parsed.append(name) or of(name))
    for number in range(5):
        folder.commit(rows([number], outcome="violated" if number == 3 else "holds"))
        assert folder.counts() == Counts(number + 1, 0, int(number >= 3))
    assert len([name for name in parsed if name.endswith(".parquet")]) == 5  # each name once
    folder.files()[0].unlink()
    assert folder.counts().rows == 4


def committed_one_by_one(folder, runs):
    for number in runs:
        failed = number % 5 == 0
        outcome = None if failed else "violated" if number % 7 == 0 else "holds"
        folder.commit(rows([number], status="error" if failed else "ok", outcome=outcome))


def test_files_are_merged_and_say_the_same_as_before(folder):
    committed_one_by_one(folder, range(2 * MERGED_FILES + 1))
    before = pa.concat_tables(folder.tables(200)).sort_by("run")
    counts = folder.counts()
    assert [folder.merge_files() for _ in range(3)] == [True, True, False]
    assert len(folder.files()) == 3
    assert pa.concat_tables(folder.tables(200)).sort_by("run").equals(before)
    assert folder.counts() == folder.standing(200).counts == counts


def test_what_two_workers_committed_is_merged_once(folder):
    committed_one_by_one(folder, range(MERGED_FILES - 1))
    folder.commit(rows([0], outcome="holds"))
    folder.counts()
    assert folder.merge_files()
    assert folder.counts().rows == MERGED_FILES - 1
    assert folder.standing(64).counts.rows == MERGED_FILES - 1


def test_attempts_are_not_merged_with_each_other(folder):
    committed_one_by_one(folder, range(MERGED_FILES - 1))
    folder.commit(rows([0], attempt=2))
    folder.counts()
    assert not folder.merge_files()


def test_a_driver_that_was_killed_between_merging_and_removing_counts_nothing_twice(folder, monkeypatch):
    committed_one_by_one(folder, range(MERGED_FILES))
    counts = folder.counts()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folder.merge_files()
    assert len(folder.files()) == MERGED_FILES + 1
    assert folder.standing(64).counts == counts
    assert sum(table.num_rows for table in folder.tables(64)) == MERGED_FILES
    folder.close()
    folder.open(MANIFEST)
    assert len(folder.files()) == 1
    assert folder.counts() == folder.standing(64).counts == counts


def test_a_file_that_was_merged_itself_is_left_behind_without_harm(folder, monkeypatch):
    committed_one_by_one(folder, range(MERGED_FILES))
    folder.counts()
    assert folder.merge_files()
    monkeypatch.setattr("orderlab.spark_sweeps.results.committed.MERGED_FILES", 2)
    folder._listing = Listing(folder.rows_path)  # which is of other sizes now
    folder.commit(rows(list(range(64, 128))))
    counts = folder.counts()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        assert folder.merge_files()
    assert len(folder.files()) == 3
    folder.close()
    folder.open(MANIFEST)
    assert len(folder.files()) == 1
    assert folder.counts() == folder.standing(128).counts == counts


def test_a_merged_file_names_no_file_elsewhere(folder, tmp_path):
    kept = tmp_path / "kept.parquet"
    kept.write_text("mine")
    table = rows([0]).replace_schema_metadata({SOURCES: json.dumps([str(kept), "../../kept.parquet"])})
    folder._commit(table, is_merged=True)
    folder.close()
    folder.open(MANIFEST)
    assert kept.read_text() == "mine"


def test_who_reads_while_files_are_merged_reads_each_run(folder):
    committed_one_by_one(folder, range(MERGED_FILES))
    folder.counts()
    reading = folder.tables(64)
    first = next(reading)
    assert folder.merge_files()
    assert sorted(pa.concat_tables([first, *reading]).column("run").to_pylist()) == list(range(MERGED_FILES))


def test_a_damaged_file_is_not_merged(folder):
    committed_one_by_one(folder, range(MERGED_FILES))
    folder.counts()
    folder.files()[5].write_bytes(b"PAR1")
    with pytest.raises(InputError, match="remove it: its runs are then done again"):
        folder.merge_files()
    assert len(folder.files()) == MERGED_FILES


def test_who_asks_all_the_time_is_told_what_was_seen_a_moment_ago(folder, monkeypatch):
    now = [0.0]
    listing = folder._listing
    monkeypatch.setattr("orderlab.spark_sweeps.results.committed.time.perf_counter", lambda: now[0])
    folder.commit(rows([0]))
    assert folder.counts_lately().rows == 1
    listing._took_s = 0.1  # a folder of very many files
    folder.commit(rows([1]))
    now[0] = 4.9
    assert folder.counts_lately().rows == 1
    now[0] = 5.1
    assert folder.counts_lately().rows == 2
