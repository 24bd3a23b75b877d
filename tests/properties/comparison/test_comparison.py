"""Old against new: what is equivalent is called so, and what differs has a short witness."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orderlab.application import make
from orderlab.model.contracts.session.traces import Acknowledge, Churn, Fetch, Interleave, Publication, Save, Trace
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.base_revision import base_of, old_store
from orderlab.properties.comparison.differences import KINDS, Comparison, Difference, has_same_code, has_same_text
from orderlab.properties.contracts.session.comparison import comparison
from orderlab.properties.contracts.session.comparison.comparison import Search, compare
from orderlab.properties.contracts.session.product import ComparedSubject
from orderlab.properties.contracts.session.subject import Prepared, Reruns, Subject
from orderlab.properties.contracts.session.validation.machine import near_the_wrap, run_machine
from orderlab.properties.contracts.session.witness.plainer import PlainerSessions
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.report.report import Change, Report
from orderlab.report.subjects import subject_of_comparison
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BudgetExceeded

ROOT = Path(__file__).parents[3]
SESSION = ROOT / "lua" / "session"
LITTLE = 0.1


SPECIMENS = [
    one.name
    for one in sorted((ROOT / "lua" / "specimens").iterdir())
    if one.is_dir() and not one.name.startswith(("lock", "limiter"))
]


def edited(folder: Path, script: str, old: str, new: str) -> Binding:
    """The bundled store with one piece of a script replaced."""
    shutil.copytree(SESSION, folder)
    text = (folder / script).read_text()
    assert old in text, f"{script} has no {old!r} any more"
    (folder / script).write_text(text.replace(old, new))
    return load_binding(folder)


def differences(old: Binding, new: Binding, effort: float = LITTLE) -> tuple[Difference, ...]:
    return Search(old, new, WorkOrder(effort)).differences()


@pytest.fixture
def before_the_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """No way round all identifiers, half of a search's time: what differs there alone has a test of its own."""
    monkeypatch.setattr(comparison, "run_machine", partial(run_machine, crosses_the_wrap=False))


REFACTORINGS = {
    "a local is renamed": ("acknowledge.lua", "record", "stored_record"),
    "an upper bound of pages": ("fetch.lua", "9999999999999, 1000", "9999999999999, 700"),
    "reads in another order": (
        "acknowledge.lua",
        "local stored = call('HMGET', body, 'm', id)\nlocal meta, record = stored[1], stored[2]\nlocal score = "
        "call('ZSCORE', index, id)",
        "local score = call('ZSCORE', index, id)\nlocal stored = call('HMGET', body, 'm', id)\nlocal meta, record = "
        "stored[1], stored[2]",
    ),
    "another loop": ("open.lua", "for i = 1, #fields do", "for i = 1, #fields, 1 do"),
    "a condition turned round": ("acknowledge.lua", "return live and 1 or 0", "return (not live) and 0 or 1"),
}
MORE_REFACTORINGS = {
    **REFACTORINGS,
    "another name for the index": ("save.lua", "index", "positions"),
    "another name in release": ("release.lua", "record", "stored_record"),
    "another name in fetch": ("fetch.lua", "index", "positions"),
    "another name in clear": ("clear.lua", "meta", "head"),
    "another name in open": ("open.lua", "meta", "head"),
    "another name for the body": ("save.lua", "body", "contents"),
    "another name for what has to go": ("save.lua", "dropped", "removed"),
    "comments": ("save.lua", "local call = redis.call", "-- a comment\nlocal call = redis.call"),
    "smaller chunks": ("save.lua", "6000, 512", "3000, 512"),
    "a larger sweep of what has expired": ("save.lua", "local reply = {}", "local reply, unused = {}, nil"),
    "an explicit step": ("save.lua", "for i = 1, count do", "for i = 1, count, 1 do"),
    "a sum the other way round": ("save.lua", "size - 1 + kept - limit", "kept + size - limit - 1"),
    "a comparison the other way round": ("save.lua", "if excess > 0 then", "if 0 < excess then"),
    "parentheses": ("save.lua", "if size == 1 then", "if (size == 1) then"),
    "a condition named": ("save.lua", "if sweeps then", "local due_now = sweeps\nif due_now then"),
}
CHANGES = {
    "the reply tells less": ("clear.lua", "return meta and 1 or 0", "return 1", "reply"),
    "a key is left": ("acknowledge.lua", "call('ZREM', index, id, '-' .. id)", "call('ZREM', index, id)", "values"),
    "a key of another type is not looked at any more": ("clear.lua", "call('ZCARD', index)\n", "", "reply"),
    "an error in place of a reply": (
        "release.lua",
        "return 0\nend\nlocal time",
        "return redis.error_reply('GONE')\nend\nlocal time",
        "reply",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param("an upper bound of pages", marks=pytest.mark.exhaustive), "reads in another order"]
)
@pytest.mark.usefixtures("before_the_wrap")
def test_what_changes_nothing_is_equivalent(name: str, tmp_path: Path) -> None:
    assert differences(load_binding(SESSION), edited(tmp_path / "new", *REFACTORINGS[name])) == ()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MORE_REFACTORINGS)
def test_refactorings_are_equivalent_at_more_effort(name: str, tmp_path: Path) -> None:
    assert differences(load_binding(SESSION), edited(tmp_path / "new", *MORE_REFACTORINGS[name]), 1.0) == ()


@pytest.mark.parametrize("name", [*list(CHANGES)[:3], pytest.param(list(CHANGES)[3], marks=pytest.mark.exhaustive)])
@pytest.mark.usefixtures("before_the_wrap")
def test_each_difference_has_a_short_witness_that_shows_it(name: str, tmp_path: Path) -> None:
    *change, kind = CHANGES[name]
    found = differences(load_binding(SESSION), edited(tmp_path / "new", *change))
    assert kind in {one.kind for one in found}, [one.text for one in found]
    first = next(one for one in found if one.kind == kind)
    assert len(first.trace.steps) <= 6
    assert not first.small_scope
    if kind == "reply":
        assert first.new.told[-1] != first.old.told[-1] or "afterwards" in first.text
    else:
        assert first.new.after != first.old.after


@pytest.mark.exhaustive
@pytest.mark.parametrize(("reply", "differs"), [("live and (1) or 0", False), ("live and 2 or 0", True)])
def test_a_long_run_compares_queues_of_thousands(reply: str, differs: bool, tmp_path: Path) -> None:
    new = edited(tmp_path / "new", "acknowledge.lua", "live and 1 or 0", reply)
    search = Search(load_binding(SESSION), new, WorkOrder(LITTLE))
    search.take_long_run()
    assert (len(search.gaps), len(search.scope)) == ((1, 0) if differs else (0, 1))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A change after which an acknowledgement comes too late: what a fetch returned is gone."""
    removed = "until not more for i = 1, #page, 5 do call('ZREM', index, page[i]) end\n"
    new = edited(tmp_path_factory.mktemp("late") / "new", "fetch.lua", "until not more\n", removed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "run_machine", partial(run_machine, crosses_the_wrap=False))
        return compare(load_binding(SESSION), new, WorkOrder(LITTLE, laws=("no-loss",)))


def test_a_law_newly_broken_is_told_and_judged(late: Comparison) -> None:
    assert {one.law for one in late.newly_broken} >= {"no-loss"}
    assert late.outcome() is Outcome.VIOLATED
    assert not late.fixed
    subject = subject_of_comparison(late, "main")
    assert "newly broken" in subject.answer
    (file,) = subject.changed
    assert any(row.old is not None and row.new is not None and row.old != row.new for row in file.rows)
    assert {one.change for one in subject.findings} >= {Change.NEW}


@pytest.mark.exhaustive
def test_the_way_back_fixes_it(late: Comparison) -> None:
    back = compare(late.new, late.old, WorkOrder(LITTLE, laws=("no-loss",)))
    assert {one.law for one in back.fixed} >= {"no-loss"}
    assert back.outcome() is Outcome.HOLDS
    assert not back.newly_broken


def test_scripts_that_compile_to_the_same_are_not_compared_step_by_step() -> None:
    old = load_binding(Path(__file__).parents[3] / "lua" / "pending")
    texts = {one.name: one.source for one in old.scripts}
    changed = next(name for name, text in texts.items() if b"0" in text)

    def edited(first_line: bytes) -> Binding:
        return old.with_sources({changed: first_line + texts[changed]})

    remark = compare(old, edited(b"-- a remark\n"), WorkOrder(0.01, laws=("one-slot",)))
    assert remark.is_same_code
    assert remark.is_equivalent
    assert "compiled, the scripts are the same" in subject_of_comparison(remark, "main").verdict
    assert not has_same_code(old, edited(b"local more = 1\n"))


def test_what_was_broken_before_fails_only_when_asked_to(late: Comparison) -> None:
    same = compare(late.new, late.new, WorkOrder(LITTLE, laws=("no-loss",)))
    assert same.is_same_text
    assert same.is_equivalent
    assert (same.outcome(), same.outcome(is_strict=True)) == (Outcome.HOLDS, Outcome.VIOLATED)
    assert "no-loss" in subject_of_comparison(same, "main", is_strict=True).named(Outcome.VIOLATED)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a store that was changed since its first commit, and once more in the work tree."""
    folder = tmp_path / "project"
    shutil.copytree(SESSION, folder / "stores" / "session")
    git(folder.parent, "init", "-q", str(folder))
    for text in ("-- first\n", "-- second\n"):
        (folder / "stores" / "session" / "clear.lua").open("a").write(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "a change")
    (folder / "stores" / "session" / "clear.lua").open("a").write("-- not committed\n")
    return folder / "stores" / "session"


def test_a_revision_is_the_whole_folder_as_of_then(repository: Path, tmp_path: Path) -> None:
    before = (repository / "clear.lua").read_bytes()
    for revision, ends in (("HEAD", b"-- second\n"), ("HEAD~1", b"-- first\n")):
        scratch = tmp_path / revision.replace("~", "-")
        scratch.mkdir()
        old = base_of(repository, revision, scratch)
        assert (old / "clear.lua").read_bytes().endswith(ends)
        assert not has_same_text(load_binding(old), load_binding(repository))
    assert (repository / "clear.lua").read_bytes() == before


def test_hostile_names_are_names(tmp_path: Path) -> None:
    folder = tmp_path / "-a store's “folder” with ünicode"
    shutil.copytree(SESSION, folder / "-x y")
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    git(folder, "branch", "feature/ü")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert has_same_text(load_binding(base_of(folder / "-x y", "feature/ü", scratch)), load_binding(folder / "-x y"))


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("no-such-revision", "neither a path nor a revision"),
        ("-x", "neither a path nor"),
        ("other.lua", "no script of that name"),
    ],
)
def test_a_base_that_is_none_is_refused(base: str, told: str, repository: Path, tmp_path: Path) -> None:
    if base.endswith(".lua"):
        (tmp_path / base).write_text("return 0")
        base = str(tmp_path / base)
    with pytest.raises(InputError, match=told), old_store(repository, base):
        pass


def test_outside_of_any_repository_a_folder_is_asked_for(tmp_path: Path) -> None:
    shutil.copytree(SESSION, tmp_path / "a store")
    with pytest.raises(InputError, match="lies in no git work tree"):
        base_of(tmp_path / "a store", "HEAD", tmp_path)


def test_what_is_wrong_with_the_old_store_is_said_of_it(tmp_path: Path) -> None:
    shutil.copytree(SESSION, tmp_path / "old")
    (tmp_path / "old" / "clear.lua").unlink()
    with pytest.raises(InputError, match=r"--base .*, the old store: .*clear\.lua"):
        CliRunner().invoke(make(), ["validate", str(SESSION), "--base", str(tmp_path / "old")], catch_exceptions=False)


def test_a_store_that_was_not_there_then_is_told(repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository, repository.parent / "later")
    with pytest.raises(InputError, match="there was no"):
        base_of(repository.parent / "later", "HEAD", tmp_path)


def test_the_command_line_compares_with_a_revision(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", ".")
    file = tmp_path / "report.json"
    asked = [
        "validate",
        str(repository),
        "--base",
        "HEAD",
        "--effort",
        str(LITTLE),
        "--backend",
        "kernel",
        "--law",
        "counter",
        f"--report=json={file}",
    ]
    done = CliRunner().invoke(make(), asked)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("session against HEAD: equivalent")
    assert Report.model_validate_json(file.read_bytes()).subjects[0].kind == "change"


def test_an_operation_within_another_is_of_all_its_clients() -> None:
    one = Publication(1, b"x")
    within = Interleave(Save((one,), client=1), Save((Publication(2, b"y"),), client=1, producer=1))
    for plainer in PlainerSessions((1,)).whole(Trace((within,), (b"c1", b"c2"))):
        assert all(part.client == 0 for step in plainer.steps for part in (step.step, step.during))


RECORD = "string.format('P%013d', deadline)"


@pytest.mark.parametrize(("later", "kinds"), [(1000, {"values", "reply"}), (0, set())])
def test_what_differs_beyond_the_wrap_alone_is_found_on_the_scripts_as_they_are(later: int, kinds: set[str]) -> None:
    old = load_binding(SESSION)
    source = next(one.source for one in old.scripts if one.name == "save.lua").decode()
    assert source.count(RECORD) == 1
    # no literal that a small world would scale
    beyond = f"string.format('P%013d', deadline + (sequence > 2^16 and {later} or 0))"
    new = old.with_sources({"save.lua": source.replace(RECORD, beyond).encode()})
    findings = Findings(frozenset(KINDS))
    run_machine(ComparedSubject(new, 0, remembers=True, old=old), findings, 1)
    assert {kind for kind, found in findings.by_law.items() if found} == kinds
    assert findings.gaps == []


def test_keys_that_grow_with_what_has_passed_do_not_make_a_comparison_long(tmp_path: Path) -> None:
    """A round of all identifiers on such a store copies all that has stayed with each of its operations."""
    new = edited(tmp_path / "new", "save.lua", "send('ZREM', index, members)\n", "")
    search = Search(load_binding(SESSION), new, WorkOrder(LITTLE))
    store = search.large.store
    store.carried_left = store.other.carried_left = 20_000
    with pytest.raises(BudgetExceeded):
        Prepared(search.large, near_the_wrap(search.large))
    assert store.carried_left < 0 <= store.other.carried_left
    Prepared(search.large, (Save((Publication(1, b"x"),)), Fetch()))  # what is small is carried out all the same


def test_what_shows_after_a_round_of_identifiers_is_told_as_it_was_found_once_the_steps_are_used_up(
    tmp_path: Path,
) -> None:
    new = edited(tmp_path / "new", "clear.lua", "return meta and 1 or 0", "return 1")
    search = Search(load_binding(SESSION), new, WorkOrder(LITTLE))
    one = Publication(1, b"x")
    trace = search.large.trace((Save((one,)), Churn(65_000, by_expiry=True), Fetch()))
    finding = Finding("reply", "fetch replies otherwise", trace, "the state machine")
    search.of_many.allow(0)
    assert search.with_fewer(finding, Reruns(search.large)) == (trace, finding.text)
    assert [gap for gap in search.gaps if finding.text in gap]


@pytest.mark.parametrize("remembers", [True, False])
def test_a_place_is_what_it_was_whatever_remembers_it(remembers: bool) -> None:
    subject = Subject(load_binding(SESSION), 0, remembers=remembers)
    saves = tuple(Save((Publication(label, b"<%d>" % label),)) for label in (1, 2, 3))
    place = Prepared(subject, saves)
    place.run().perform(Acknowledge(2))
    run = place.run()
    assert [
        run.perform(step).discrepancies for step in (Fetch(), Save((Publication(4, b"<4>"),)), Acknowledge(2), Fetch())
    ] == [[]] * 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPECIMENS)
def test_each_specimen_differs_from_its_neighbour(name: str) -> None:
    flawed = load_binding(ROOT / "lua" / "specimens" / name)
    assert flawed.specimen is not None
    found = differences(load_binding(flawed.specimen.neighbour), flawed, 0.3)
    assert found
    assert min(len(one.trace.steps) for one in found) <= 6
