"""The table of guarantees: what its cells say, that its commands reproduce a run, and where it is put."""

import shlex

import pytest

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome, Verdict
from tests.laboratory.guarantees import (
    FAULTS_HERE,
    LAWS,
    MARKS,
    NOTES,
    SETTINGS,
    Known,
    Row,
    Told,
    cell,
    drain_cell,
    main,
    page,
    put,
    rows,
    settings_of,
    table,
)


def verdict(outcome, antecedents=5, violations=0):
    witness = {"message": 1} if outcome is Outcome.VIOLATED else None
    return Verdict("fifo", outcome, witness, {"antecedents": antecedents, "violations": violations})


def test_one_broken_run_breaks_the_cell_and_names_its_seed():
    holds, broken = verdict(Outcome.HOLDS), verdict(Outcome.VIOLATED, violations=4)
    assert (
        cell([(1, holds), (2, broken), (3, verdict(Outcome.VIOLATED, violations=2))])
        == "**broken** 2/3, seed 2, up to 4"
    )
    assert cell([(1, holds), (2, holds)]) == "kept"
    assert cell([(1, holds), (2, verdict(Outcome.UNKNOWN))]) == "unknown"
    assert cell([(1, verdict(Outcome.HOLDS, antecedents=0))]) == "–"


def test_a_queue_that_empties_late_is_told_from_one_that_never_does():
    holds, broken = {"drain": verdict(Outcome.HOLDS)}, {"drain": verdict(Outcome.VIOLATED, violations=4)}
    assert drain_cell([Told(1, holds), Told(2, holds)]) == "kept"
    said = "**broken** 2/3, seed 2, up to 4"
    assert drain_cell([Told(1, holds), Told(2, broken, 750), Told(3, broken, 1500)]) == f"{said}, all by 1500 ms"
    assert drain_cell([Told(1, holds), Told(2, broken, 750), Told(3, broken)]) == f"{said}, some never"


def test_every_fault_has_a_row_whose_settings_make_sense():
    titles = [row.title for row in rows("QoS 1")]
    assert set(FAULTS_HERE) <= set(titles)
    for row in (row for name in LAWS for row in rows(name)):
        assert settings_of("published", row, SETTINGS).scripts == "published"
        assert settings_of("repaired", row, SETTINGS).acks == "all"


def test_the_command_of_a_row_says_what_was_run():
    row = Row("x", (("faults", "redis-stall@0.5:0"),))
    words = shlex.split(row.command("repaired", 7))
    assert words[:2] == ["orderlab", "simulate"]
    assert words[words.index("--set") + 1] == "faults=redis-stall@0.5:0"
    assert words[-2:] == ["--seed", "7"]


def test_the_table_goes_between_its_marks_and_nowhere_else():
    note = f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n"
    assert put(note, "new") == f"before\n{MARKS[0]}\n\nnew\n{MARKS[1]}\nafter\n"
    assert put(put(note, "new"), "new") == put(note, "new")
    assert all(mark in (NOTES / page(name)).read_text() for name in LAWS for mark in MARKS)
    with pytest.raises(InputError, match="marks"):
        put("no marks", "new")


def test_rows_that_are_not_asked_for_stay_as_the_note_has_them(monkeypatch):
    ran = []

    def run(settings, seed):
        ran.append((settings.faults, seed))
        broken = settings.faults == "redis-stall@0.5:0" and settings.scripts == "published"
        said = verdict(Outcome.VIOLATED, violations=seed) if broken else verdict(Outcome.HOLDS)
        return Told(seed, dict.fromkeys(LAWS["QoS 1"], said))

    folder, some = SETTINGS, [Row("none", ()), Row("redis-stall", (("faults", "redis-stall@0.5:0"),))]
    monkeypatch.setattr("tests.laboratory.guarantees.run", run)
    monkeypatch.setattr("tests.laboratory.guarantees.rows", lambda name: some)
    whole = table([1], folder, "QoS 1")
    assert "| `none` | published | 1 | kept" in whole
    known = Known.of(put(f"{MARKS[0]}\n{MARKS[1]}", whole))
    assert table([1], folder, "QoS 1", only=["no such row"], known=known) == whole
    assert len(ran) == 4
    some.append(Row("redis-oom", (("faults", "redis-oom@0.5:0"),)))
    ran.clear()
    again = table([2], folder, "QoS 1", only=["redis-s*"], known=known)
    assert {faults for faults, _ in ran} == {"redis-stall@0.5:0", "redis-oom@0.5:0"}, "and those that the note lacks"
    of_rows = {
        line.split("|")[1].strip(): line.split("|")[3].strip()
        for line in again.splitlines()
        if "published" in line and "|" in line
    }
    assert of_rows == {"`none`": "1", "`redis-stall`": "2", "`redis-oom`": "2"}, (
        "each row with the seeds that it was measured with"
    )
    assert "seeds 2" not in again
    assert "seed 2, up to 2" in again
    assert "--seed 2" in again
    assert "--seed 1" not in again


def test_a_row_of_the_note_that_was_measured_with_other_settings_is_measured_anew(monkeypatch):
    ran = []

    def run(settings, seed):
        ran.append(settings.faults)
        return Told(seed, dict.fromkeys(LAWS["QoS 1"], verdict(Outcome.VIOLATED, violations=1)))

    monkeypatch.setattr("tests.laboratory.guarantees.run", run)
    folder = SETTINGS
    monkeypatch.setattr("tests.laboratory.guarantees.rows", lambda name: [Row("x", (("faults", "redis-stall@0.5:0"),))])
    known = Known.of(put(f"{MARKS[0]}\n{MARKS[1]}", table([1, 2], folder, "QoS 1")))
    monkeypatch.setattr("tests.laboratory.guarantees.rows", lambda name: [Row("x", (("faults", "redis-stall@0.6:0"),))])
    ran.clear()
    assert "| 3 |" in table([3], folder, "QoS 1", only=["y"], known=known)
    assert ran == ["redis-stall@0.6:0"] * 2


@pytest.mark.parametrize(("given", "cure"), [(["--seeds", "0"], "at least 1"), (["--rows", "redis-stal"], "no row")])
def test_what_would_measure_nothing_is_refused(given, cure, tmp_path):
    with pytest.raises(InputError, match=cure):
        main([*given, "--notes", str(tmp_path)])


def test_every_table_is_looked_for_before_any_is_measured(tmp_path):
    for name in LAWS:
        (tmp_path / page(name)).write_text("no marks")
    with pytest.raises(InputError, match="no marks"):
        main(["--notes", str(tmp_path)])
