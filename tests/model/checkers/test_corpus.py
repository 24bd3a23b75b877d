"""The public corpus: it is what its maker makes, this suite is right on all of it, and whoever is not hears so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orderlab.model.checkers.corpus import INDEX, own_verdicts, read_corpus, scored
from tests.in_process import ROOT, orderlab
from tests.laboratory import corpus

FOLDER = ROOT / "histories"
LARGEST = 1 << 20


def said_by(verdicts: dict[tuple[str, str], str], file: Path) -> Path:
    file.write_text(
        "".join(
            json.dumps({"file": name, "verdicts": [{"law": law, "outcome": outcome}]}) + "\n"
            for (name, law), outcome in verdicts.items()
        )
    )
    return file


def test_the_corpus_is_what_its_maker_makes(tmp_path: Path) -> None:
    corpus.write(tmp_path)
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (FOLDER / made.name).read_bytes(), f"{made.name}: {corpus.REMAKE}"
    kept = {row.file for row in corpus.RECORDED}
    assert {file.name for file in FOLDER.iterdir()} == {file.name for file in tmp_path.iterdir()} | kept
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < LARGEST


def test_this_suite_is_right_on_all_of_it() -> None:
    ended = orderlab("check", "--corpus", FOLDER, "--json")
    score = json.loads(ended.stdout)
    assert (ended.returncode, score["right"]) == (0, score["total"]), score
    assert score["total"] >= 40


def test_a_checker_that_is_wrong_is_told_in_which_way(tmp_path: Path) -> None:
    entries = read_corpus(FOLDER)
    right = {(entry.file.name, law): verdict for entry in entries for law, verdict in entry.verdicts.items()}
    ended = orderlab("check", "--corpus", FOLDER, "--verdicts", said_by(right, tmp_path / "right"))
    assert (ended.returncode, "missed" in ended.stdout) == (0, False)
    loss, sound = ("loss.parquet", "at-least-once"), ("fifo-repeat.parquet", "fifo")
    for changed, given, code, told in (
        (loss, "holds", 1, "missed: loss.parquet"),
        (sound, "violated", 1, "false alarm: fifo-repeat.parquet"),
        (sound, "unknown", 3, "undecided: fifo-repeat.parquet"),
    ):
        ended = orderlab(
            "check", "--corpus", FOLDER, "--verdicts", said_by(right | {changed: given}, tmp_path / "wrong")
        )
        assert (ended.returncode, told in ended.stdout) == (code, True), ended.stdout
    del right[loss]
    assert [row[0] for row in scored(entries, right).undecided] == ["loss.parquet"]


def test_a_corpus_or_verdicts_nested_without_end_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("[" * 100_000)
    (tmp_path / "said").write_text('{"file": ' * 100_000)
    for words in (["--corpus", tmp_path], ["--corpus", FOLDER, "--verdicts", tmp_path / "said"]):
        ended = orderlab("check", *words)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr


def test_a_corpus_that_lies_is_noticed(tmp_path: Path) -> None:
    """Known bad: the turned history told as sound."""
    row = {"file": "fifo-turned.parquet", "verdicts": {"fifo": "holds"}, "reason": "none"}
    (tmp_path / "fifo-turned.parquet").write_bytes((FOLDER / "fifo-turned.parquet").read_bytes())
    (tmp_path / INDEX).write_text(json.dumps([row]))
    entries = read_corpus(tmp_path)
    assert len(scored(entries, own_verdicts(entries)).false_alarms) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--corpus nowhere", "a corpus is a folder with index.json"),
        ("--corpus . h.jsonl", "leave FILE and --report out"),
        ("--verdicts x", "no FILE"),
        ("h.jsonl --verdicts x", "of a corpus only"),
        ("", "no FILE"),
    ],
)
def test_what_cannot_be_scored_is_said_in_a_line(words: str, line: str, tmp_path: Path) -> None:
    ended = orderlab("check", *words.split(), cwd=tmp_path)
    assert ended.returncode == 2
    assert line in ended.stderr
    assert ended.stderr.count("\n") == 1
