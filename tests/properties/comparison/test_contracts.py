"""Stores with a contract of their owner's: old against new, and both on the same data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orderlab.application import make
from orderlab.model.contracts.client_steps import Begin
from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.differences import Comparison, Difference, RollingUpgrade
from orderlab.properties.engine.comparison import ProductSearch, compare_contracts
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import contract_of
from orderlab.properties.engine.witness import ContractReruns, explain
from orderlab.properties.harness.recording import LuaLine
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.witness import Explanation
from orderlab.report.subjects import subject_of_comparison, where_the_change_is
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_other_styles import store as style

ROOT = Path(__file__).parents[3]
LITTLE = 0.15
SPECIMENS = {
    "lock-release-any": "lock",
    "lock-renew-revives": "lock",
    "lock-token-expires": "lock",
    "lock-two-calls": "lock",
    "limiter-fixed-window": "limiter",
    "limiter-member-is-time": "limiter",
    "limiter-refused-counted": "limiter",
    "limiter-client-clock": "limiter",
}


def store(name: str) -> Binding:
    return load_binding(ROOT / "lua" / name, trust_adapter=True)


def edited(folder: Path, name: str, *edits: tuple[str, str, str]) -> Binding:
    """A bundled store with pieces of its files replaced."""
    shutil.copytree(ROOT / "lua" / name, folder)
    for file, old, new in edits:
        text = (folder / file).read_text()
        assert old in text, f"{file} has no {old!r} any more"
        (folder / file).write_text(text.replace(old, new))
    return load_binding(folder, trust_adapter=True)


def differences(old: Binding, new: Binding, effort: float = LITTLE) -> tuple[Difference, ...]:
    return ProductSearch(old, new, WorkOrder(effort)).differences()


def rolled(old: Binding, new: Binding, effort: float = LITTLE) -> RollingUpgrade:
    laws = ("mutual-exclusion", "fencing", "own-release", "recovery", "specification", "all-or-nothing")
    return ProductSearch(old, new, WorkOrder(effort)).rolling_upgrade(laws)


def test_both_versions_go_on_one_operation_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is many operations away is found without any other search: by itself, and with both on the same data."""
    for name in ("explore", "walk", "crowd"):
        monkeypatch.setattr(f"orderlab.properties.engine.comparison.{name}", lambda *_: None)

    def changed(find: str, replace: str) -> Binding:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        return style(folder, "fair_lock", "", (find, replace))

    old = changed("", "")
    refused = changed("\nif redis.call('ZADD'", "\nif not holder then return -1 end\nif redis.call('ZADD'")
    elsewhere = changed("{fair}:patience", "{fair}:until")
    apart = ProductSearch(old, refused, WorkOrder(LITTLE)).differences()
    assert [(each.kind, len(each.trace.steps)) for each in apart] == [("reply", 4)]
    assert ProductSearch(old, elsewhere, WorkOrder(LITTLE)).rolling_upgrade(["specification"]).broken
    assert not ProductSearch(old, old, WorkOrder(LITTLE)).rolling_upgrade(["specification"]).broken


GET, SET = "redis.call('GET', KEYS[1])", "redis.call('SET', KEYS[1], token, 'PX', ARGV[1])"
BOTH = "string.gsub(tostring(redis.call('GET', KEYS[1])), '^T', '')"
TOKEN = "redis.call('INCR', KEYS[2])"
HASHED = "redis.call('HINCRBY', KEYS[2], 'n', 1)"
EITHER = f"redis.call('TYPE', KEYS[2]).ok == 'string' and {TOKEN} or {HASHED}"
MIXES = {
    "a renamed key": (("store.toml", "{lock}:lease", "{lock}:held"),),
    "another layout": (
        ("acquire.lua", SET, "redis.call('HSET', KEYS[1], 't', token)\nredis.call('PEXPIRE', KEYS[1], ARGV[1])"),
        ("release.lua", GET, "redis.call('HGET', KEYS[1], 't')"),
        ("renew.lua", GET, "redis.call('HGET', KEYS[1], 't')"),
    ),
    "another encoding of a field": (
        ("acquire.lua", SET, "redis.call('SET', KEYS[1], 'T' .. token, 'PX', ARGV[1])"),
        ("release.lua", f"{GET} ~= ", f"{GET} ~= 'T' .. "),
        ("renew.lua", f"{GET} ~= ", f"{GET} ~= 'T' .. "),
    ),
    "the deadline in the value": (
        (
            "acquire.lua",
            "redis.call('EXISTS', KEYS[1]) == 1",
            "tonumber(redis.call('HGET', KEYS[2] .. 'd', 'd') or 0) > tonumber(redis.call('TIME')[1])",
        ),
        (
            "acquire.lua",
            SET,
            f"{SET}\nredis.call('HSET', KEYS[2] .. 'd', 'd', redis.call('TIME')[1] + 1 + math.floor(ARGV[1] / 1000))",
        ),
        (
            "release.lua",
            "return redis.call('DEL', KEYS[1])",
            "redis.call('DEL', '{lock}:tokend')\nreturn redis.call('DEL', KEYS[1])",
        ),
    ),
    "only the rollback misreads": (("acquire.lua", TOKEN, EITHER),),
}
SAFE = {
    "both encodings are read, the old one is written": (
        ("release.lua", f"{GET} ~= ", f"{BOTH} ~= "),
        ("renew.lua", f"{GET} ~= ", f"{BOTH} ~= "),
    ),
    "the same in other calls": (
        ("acquire.lua", SET, "redis.call('SET', KEYS[1], token)\nredis.call('PEXPIRE', KEYS[1], ARGV[1])"),
    ),
    "both layouts are read, the old one is written": (
        ("acquire.lua", TOKEN, f"redis.call('TYPE', KEYS[2]).ok == 'hash' and {HASHED} or {TOKEN}"),
    ),
}


@pytest.mark.parametrize("name", MIXES)
def test_what_only_the_mix_breaks_is_told_with_who_served(name: str, tmp_path: Path) -> None:
    old, new = store("lock"), edited(tmp_path / "new", "lock", *MIXES[name])
    found = rolled(old, new).broken
    assert found
    shortest = min((one.witness.finding for one in found if one.witness), key=lambda one: one.size)
    assert len(shortest.trace.steps) <= 6
    assert {one.served_by for one in shortest.trace.steps if isinstance(one, Begin)} == {"old", "new"}
    run = ContractRun(replace(new, base=old), contract_of(new), KernelBackend(), shortest.trace.clients)
    *_, last = run.replayed(shortest.trace.steps)
    assert last.violation is not None
    assert shortest.law in last.violation.laws


@pytest.mark.parametrize("name", SAFE)
def test_a_reader_of_both_formats_is_safe_in_the_mix(name: str, tmp_path: Path) -> None:
    assert rolled(store("lock"), edited(tmp_path / "new", "lock", *SAFE[name])).broken == ()


def test_the_witness_of_a_rollback_begins_with_the_new_scripts(tmp_path: Path) -> None:
    found = rolled(store("lock"), edited(tmp_path / "new", "lock", *MIXES["only the rollback misreads"])).broken
    assert all(
        next(one.served_by for one in change.witness.finding.trace.steps if isinstance(one, Begin)) == "new"
        for change in found
    )


CHANGES = {
    "only the TTL": (("acquire.lua", "'PX', ARGV[1])", "'PX', ARGV[1] + 1)"), "ttl"),
    "only the type of a key": (
        ("acquire.lua", SET, "redis.call('HSET', KEYS[1], 't', token)\nredis.call('PEXPIRE', KEYS[1], ARGV[1])"),
        "values",
    ),
    "a value that reads as the same number": (
        ("acquire.lua", SET, "redis.call('SET', KEYS[1], '0' .. token, 'PX', ARGV[1])"),
        "values",
    ),
    "only the code of an error": (("release.lua", "return 0", "return redis.error_reply('GONE')"), "reply"),
    "only the second client": (("release.lua", "return 0", "return redis.call('GET', KEYS[1]) and -1 or 0"), "reply"),
    "only after expiry": (
        (
            "acquire.lua",
            "local token = ",
            "if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('INCR', KEYS[2]) end\nlocal token = ",
        ),
        "reply",
    ),
    "one key more": (("acquire.lua", "return token", "redis.call('SET', '{lock}:who', 'x')\nreturn token"), "keys"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_difference_has_a_short_witness(name: str, tmp_path: Path) -> None:
    change, kind = CHANGES[name]
    # A scope finds what is short; a walk made short keeps its tokens.
    effort = 1.0 if name == "only the second client" else LITTLE
    found = [
        one for one in differences(store("lock"), edited(tmp_path / "new", "lock", change), effort) if one.kind == kind
    ]
    assert found
    assert len(found[0].trace.steps) <= 6


REFACTORINGS = {
    "a local is renamed": (("acquire.lua", "token", "number"),),
    "comments": (("release.lua", "return 0", "return 0 -- another's"),),
    "a condition turned round": (
        ("acquire.lua", "redis.call('EXISTS', KEYS[1]) == 1", "not (redis.call('EXISTS', KEYS[1]) ~= 1)"),
    ),
    "another command that reads the same": (
        ("acquire.lua", "redis.call('EXISTS', KEYS[1]) == 1", "redis.call('PTTL', KEYS[1]) ~= -2"),
    ),
    "other words of an error": (
        (
            "release.lua",
            "return redis.call('DEL', KEYS[1])",
            "if #KEYS == 0 then return redis.error_reply('X') end\nreturn redis.call('DEL', KEYS[1])",
        ),
    ),
}


@pytest.mark.parametrize("name", REFACTORINGS)
def test_what_changes_nothing_is_equivalent(name: str, tmp_path: Path) -> None:
    assert differences(store("lock"), edited(tmp_path / "new", "lock", *REFACTORINGS[name])) == ()


def test_work_alone_is_told_as_work(tmp_path: Path) -> None:
    new = edited(
        tmp_path / "new",
        "lock",
        ("release.lua", "return redis.call('DEL'", "redis.call('GET', KEYS[1])\nreturn redis.call('DEL'"),
    )
    search = ProductSearch(store("lock"), new, WorkOrder(LITTLE))
    assert search.differences() == ()
    assert [text.split(":")[:2] for text in search.costs()] == [["dearer", " release"]]


@pytest.fixture(scope="module")
def released() -> Comparison:
    return compare_contracts(store("lock"), store("specimens/lock-release-any"), WorkOrder(LITTLE))


def test_a_law_newly_broken_is_told_and_judged(released: Comparison) -> None:
    assert [one.law for one in released.newly_broken] == ["own-release"]
    assert released.outcome() is Outcome.VIOLATED
    assert not released.fixed


def test_the_way_back_fixes_it(released: Comparison) -> None:
    back = compare_contracts(released.new, released.old, WorkOrder(LITTLE))
    assert [one.law for one in back.fixed] == ["own-release"]
    assert (back.newly_broken, back.rolling.broken) == ((), ())
    assert back.outcome() is Outcome.HOLDS


def test_what_was_broken_before_fails_only_when_asked_to(released: Comparison) -> None:
    same = compare_contracts(released.new, released.new, WorkOrder(LITTLE))
    assert same.is_same_text
    assert (same.outcome(), same.outcome(is_strict=True)) == (Outcome.HOLDS, Outcome.VIOLATED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("specimen", SPECIMENS)
def test_each_specimen_differs_from_its_neighbour(specimen: str) -> None:
    found = differences(store(SPECIMENS[specimen]), store(f"specimens/{specimen}"), 1.0)
    assert found
    assert min(len(one.trace.steps) for one in found) <= 6


def test_what_was_fixed_replays_on_the_old_scripts(tmp_path: Path) -> None:
    file, new, old = (
        tmp_path / "report.json",
        str(ROOT / "lua" / "lock"),
        str(ROOT / "lua" / "specimens" / "lock-release-any"),
    )
    asked = [
        "validate",
        new,
        "--base",
        old,
        "--trust-adapter",
        "--backend",
        "kernel",
        "--effort",
        str(LITTLE),
        "--law",
        "own-release",
    ]
    done = CliRunner().invoke(make(), [*asked, f"--report=json={file}"])
    assert done.exit_code == 0, done.output
    assert "1 law fixed" in done.output
    again = CliRunner().invoke(make(), ["replay", str(file), "--finding", "1", "--trust-adapter"])
    assert again.exit_code == 1, again.output
    assert "own-release is violated" in again.output


def of_suite(folder: Path, name: str, *edits: tuple[str, str, str]) -> tuple[Difference, ...]:
    """What an edited feed or job queue does differently."""
    return differences(store(name), edited(folder / name, name, *edits), 0.02)


NOW = "local now = redis.call('TIME')\nlocal now_ms = now[1] * 1000 + math.floor(now[2] / 1000)"


@pytest.mark.parametrize(
    ("name", "edits", "kinds"),
    [
        pytest.param(
            "feed",
            [
                (
                    "claim.lua",
                    NOW,
                    "local function clock()\n  local t = redis.call('TIME')\n  return "
                    "t[1] * 1000 + math.floor(t[2] / 1000)\nend\nlocal now_ms = clock()",
                )
            ],
            set(),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "feed",
            [
                (
                    "settle.lua",
                    "redis.call('ZCARD', KEYS[3])\nredis.call('ZCARD', KEYS[4])",
                    "for at = 4, 3, -1 do redis.call('ZCARD', KEYS[at]) end",
                )
            ],
            set(),
            marks=pytest.mark.exhaustive,
        ),
        ("feed", [("list.lua", "if #line < 200 then", "if #line <= 200 then")], {"reply"}),
        ("feed", [("settle.lua", "    redis.call('HDEL', KEYS[6], name)\n", "")], {"keys", "values"}),
        (
            "job_queue",
            [
                ("settle.lua", "redis.call(", "call("),
                ("settle.lua", "local what,", "local call = redis.call\nlocal what,"),
            ],
            set(),
        ),
        pytest.param(
            "job_queue",
            [("take.lua", "best", "front"), ("take.lua", "jobs[", "found["), ("take.lua", "local jobs", "local found")],
            set(),
            marks=pytest.mark.exhaustive,
        ),
        (
            "job_queue",
            [
                (
                    "take.lua",
                    "redis.call('ZADD', KEYS[5], now_ms, name)",
                    "redis.call('ZADD', KEYS[5], now_ms + 1, name)",
                )
            ],
            {"values"},
        ),
        pytest.param(
            "job_queue", [("settle.lua", "2 ^ (job[3] - 1)", "2 ^ job[3]")], {"values"}, marks=pytest.mark.exhaustive
        ),
    ],
    ids=[
        "a function",
        "reads in another order",
        "the end of a page",
        "a holder that stays",
        "an alias",
        "names",
        "when it died",
        "back-off",
    ],
)
def test_feeds_and_job_queues_old_against_new(
    name: str,
    edits: list[tuple[str, str, str]],
    kinds: set[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of the crowds, four fifths of the time, the one in which it shows; of the scopes the smallest.
    if not request.node.get_closest_marker("exhaustive"):
        request.getfixturevalue("smallest_scopes")
        crowds, needed = (
            FeedStore.crowds,
            "messages that are read" if request.node.callspec.id == "the end of a page" else "",
        )
        monkeypatch.setattr(
            FeedStore, "crowds", lambda contract: [one for one in crowds(contract) if one.name == needed]
        )
        monkeypatch.setattr(JobQueue, "crowds", lambda contract: ())
    found = of_suite(tmp_path, name, *edits)
    assert {one.kind for one in found} == kinds, [one.text for one in found]
    assert all(len(one.trace.steps) <= 7 for one in found)


def test_what_trouble_leaves_of_a_broken_operation_is_told_once() -> None:
    old = store("limiter")
    new = old.with_sources({"hit.lua": b""})
    assert [one.text for one in differences(old, new, 0.02) if "lost" in one.text] == [
        "hit (reply-lost) leaves no {limiter}:hits; the old one does"
    ]
    found = compare_contracts(old, new, WorkOrder(0.02))
    assert [change.law for change in found.newly_broken] == ["specification"]
    assert [one.text for one in found.differences] == ["hit replies None; the old one 1"]


def test_an_operation_that_one_of_them_lacks_is_judged_alone(tmp_path: Path) -> None:
    new = edited(tmp_path / "lock", "lock", ("renew.lua", "~= ARGV[1]", "== nil"))
    old = store("lock").with_operations(["acquire", "release"])
    found = compare_contracts(old, new, WorkOrder(0.02))
    assert {change.law for change in found.newly_broken} == {"mutual-exclusion"}
    assert found.not_in_both == ("only the new one has renew: judged there, and held against nothing",)
    assert (found.outcome(), found.differences, found.rolling.broken) == (Outcome.VIOLATED, (), ())
    assert compare_contracts(new, old, WorkOrder(0.02)).outcome() is Outcome.HOLDS


def test_a_finding_is_told_where_the_change_is(released: Comparison) -> None:
    finding = next(one for one in subject_of_comparison(released, "old").findings if one.change == "newly broken")
    assert finding.line is not None
    assert (finding.line.role, finding.line.path.rpartition("/")[2]) == ("changed here", "release.lua")
    assert "GET" not in finding.line.source, "the lines that are gone stood above it"
    assert [step.scripts for step in finding.steps if step.action.count("acquire")][:1] == [("acquire.lua",)]


def test_where_harm_is_noticed_is_a_related_line(tmp_path: Path) -> None:
    """The witness acquires by the line that was changed, and what comes of it shows when another lock is released."""
    old = store("lock")
    new = edited(tmp_path / "new", "lock", ("acquire.lua", "redis.call('EXISTS', KEYS[1]) == 1", "false"))
    scripts = {one.path.name: one for one in new.scripts}
    at = next(
        number
        for number, line in enumerate(scripts["acquire.lua"].source.decode().splitlines(), 1)
        if line.startswith("if false")
    )
    acquire, release = scripts["acquire.lua"].path, scripts["release.lua"].path
    noticed = LuaLine(release, 2, "DEL {lock}", "return redis.call('DEL', KEYS[1])")
    explained = Explanation(
        ("", ""), ("", ""), {}, {}, noticed, ran=(((acquire, at), (acquire, at + 3)), ((release, 2),))
    )
    witness: Any = SimpleNamespace(explanation=explained)
    told = where_the_change_is(witness, Comparison(old, new, False, None, None))  # type: ignore[arg-type]
    assert (told["line"].path, told["line"].line) == (str(acquire), at)
    assert [(one.path, one.line, one.role) for one in told["related"]] == [
        (str(release), 2, "noticed here, by DEL {lock}")
    ]


def test_of_a_long_witness_states_are_noted_at_its_ends() -> None:
    """Hundreds of steps with the whole state after each are megabytes that nobody reads."""
    lock = store("lock")
    contract = contract_of(lock)
    reruns = ContractReruns(lambda: ContractRun(lock, contract, KernelBackend(), contract.clients))
    acquire = next(iter(contract.calls(0, ())))
    explained = explain(reruns, reruns.trace([Begin(0, acquire)] * 200))
    assert len(explained.told) == len(explained.keyspaces) == len(explained.states) == 200
    assert [at for at, keys in enumerate(explained.keyspaces) if keys is None] == list(range(30, 170))


def test_other_tokens_make_no_new_finding_of_an_old_one(tmp_path: Path) -> None:
    """The old store's tokens are not those of the new one, so that no witness of either replays on the other."""
    old = store("specimens/lock-release-any")
    acquire = next(one for one in old.scripts if one.name == "acquire.lua")
    by_two = acquire.source.replace(b"redis.call('INCR', KEYS[2])", b"redis.call('INCRBY', KEYS[2], 2)")
    assert by_two != acquire.source
    found = compare_contracts(old, old.with_sources({"acquire.lua": by_two}), WorkOrder(LITTLE, laws=["own-release"]))
    assert (found.newly_broken, found.fixed, found.rolling.broken) == ((), (), ())
    assert {one.law for one in found.still_broken} == {"own-release"}
