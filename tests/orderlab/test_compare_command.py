"""`orderlab compare`: the table of the notes is the committed one, wrong flags are one line, and what is known to
differ does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orderlab.commands.compare import STORES, SYSTEMS, TABLES
from orderlab.properties.contracts.session.side_by_side import faults, measured
from orderlab.properties.side_by_side import Table
from orderlab.report.side_by_side import MARKS, markdown, page, put
from orderlab.sim.stores.binding.loader import WITHOUT_SCRIPTS, load_binding
from orderlab.sim.systems.catalogue import SYSTEMS as CATALOGUE
from tests.in_process import ROOT, orderlab

COMMITTED = ROOT / "notes" / "side_by_side.json"


def committed() -> Table:
    return Table.from_json(json.loads(COMMITTED.read_text()))


def test_the_table_of_the_notes_is_made_of_the_committed_figures() -> None:
    assert (ROOT / "notes" / "side_by_side.md").read_text() == markdown(committed()) + "\n", "run `make compare`"


def test_a_note_has_the_table_between_its_marks() -> None:
    note = f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n"
    assert "| lua/session |" in put(note, committed())
    assert put(put(note, committed()), committed()) == put(note, committed())


def test_the_committed_figures_are_of_every_default_store_and_system() -> None:
    table = committed()
    assert [row.name for row in table.stores] == list(STORES)
    assert [row.name for row in table.systems] == list(SYSTEMS) == list(CATALOGUE)
    assert WITHOUT_SCRIPTS == TABLES
    assert table.to_json() == json.loads(COMMITTED.read_text())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--systems", "tbmq-p2"), "--systems tbmq-p2: no such system"),
        (("--stores", "none", "--systems", "none"), "nothing to compare"),
        (("--stores", "lua/pending,,postgres"), "an empty name"),
        (("--stores", "lua/pending,lua/pending"), "stands there twice"),
        (("--stores", "lua/nothing"), "lua/nothing"),
        (("--stores", "lua/lock", "--systems", "none"), "--trust-adapter"),
        (("--effort", "much"), "--effort much"),
        (("--report", "pdf=x"), "--report pdf=x"),
        (("--note", "notes/store.md"), "it has no marks"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_wrong_flag_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = orderlab("compare", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_note_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_bytes(b"\xff")
    done = orderlab("compare", "--stores", "lua/pending", "--systems", "none", "--note", tmp_path / "note.md")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not UTF-8 at byte 0" in done.stderr


def test_the_tables_are_compared_and_the_seed_decides(tmp_path: Path) -> None:
    def told(name: str, stores: str) -> Table:
        done = orderlab(
            "compare",
            "--stores",
            stores,
            "--systems",
            "none",
            "--effort",
            "0.02",
            "--report",
            f"json={tmp_path / name}",
        )
        assert done.returncode == 0, done.stderr
        return Table.from_json(json.loads((tmp_path / name).read_text()))

    waits, does_not = told("a.json", "postgres,postgres-async").stores
    assert told("b.json", "postgres-async").stores == (does_not,)
    assert waits.faults["crashed"] == "kept"
    assert does_not.faults["crashed"] == "no-loss"
    assert waits.faults["lost-reply"] == "all-or-nothing"


def test_a_store_of_ones_own_is_accepted_wherever_it_lies(tmp_path: Path) -> None:
    binding = load_binding(ROOT / "lua" / "session")
    (tmp_path / "mine").symlink_to(ROOT / "lua" / "session")
    mine = load_binding(tmp_path / "mine")
    assert measured(mine) == measured(binding)


def test_the_published_store_costs_and_breaks_what_it_is_known_to() -> None:
    session, published = (load_binding(ROOT / "lua" / name) for name in ("session", "specimens/published"))
    ours, theirs = measured(session), measured(published)
    assert ours.memory_bytes is not None
    assert theirs.memory_bytes is not None
    assert ours.memory_bytes < theirs.memory_bytes
    assert set(faults(session, 0).values()) == {"kept"}
    assert "all-or-nothing" in faults(published, 0)["lost-reply"]


def test_a_page_says_what_the_numbers_are() -> None:
    made = page(committed())
    assert "sim/costs/redis.toml" in made
    assert "lua/session" in made
