"""What a CONNECT is told, and CONNECTs that come late or twice: each flaw is named, the nearest right script is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Clear, Fetch, Open, Publication, Save, Step
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore

LUA = Path(__file__).parents[4] / "lua"
CLEAN, GO_ON, AGAIN = Open(clean_start=True), Open(), Open(again=True)
LATE, LATE_AND_CLEAN = Open(stale=True), Open(clean_start=True, stale=True)


def save(label: int) -> Save:
    return Save((Publication(label, b"<%d>" % label),))


STORY: tuple[Step, ...] = (
    *(save(1), GO_ON, AGAIN, Fetch(), CLEAN, AGAIN, save(2), AGAIN, LATE, LATE_AND_CLEAN, Fetch(), GO_ON, AGAIN),
)


def told(store: str, find: bytes = b"", replace: bytes = b"") -> list[tuple[str, str]]:
    """What is said of STORY on a store with one edit of its open."""
    binding = load_binding(LUA / store)
    (source,) = (one.source for one in binding.scripts if one.name == "open.lua")
    assert not find or source.count(find) == 1
    run = SessionRun(
        BoundStore(binding.with_sources({"open.lua": source.replace(find, replace)}), KernelBackend()), (b"c",)
    )
    reports = [run.perform(step) for step in STORY]
    assert find or all(report.result is not None for report in reports)
    return [(one.law, one.text) for report in reports for one in report.discrepancies]


@pytest.mark.parametrize("store", ["session", "pending"])
def test_a_correct_store_is_not_accused(store: str) -> None:
    assert told(store) == []


@pytest.mark.parametrize(
    ("find", "replace", "law", "said"),
    [
        (b"return {0, epoch}", b"", "no-residue", "does not tell whether a session waited"),
        (
            b"{epoch > begun and 1 or 0, begun}",
            b"{epoch > begun and 2 or 0, begun}",
            "no-loss",
            "cannot be gone on with",
        ),
        (b"{epoch > begun and 1 or 0, begun}", b"{1, begun}", "all-or-nothing", "another answer than the first"),
        (b"return {0, epoch}", b"return {0, epoch + 1}", "no-phantom", "is told that its session is that of"),
        (b"if epoch < begun then", b"if epoch < 0 then", "no-phantom", "from before the session began"),
        (b"epoch == begun or ", b"", "all-or-nothing", "m2 gone"),
    ],
)
def test_a_flaw_is_named(find: bytes, replace: bytes, law: str, said: str) -> None:
    found = told("session", find, replace)
    assert any(one == law and said in text for one, text in found), found


def test_a_connect_that_began_the_session_is_not_taken_for_an_earlier_one() -> None:
    """Its reply tells no epoch; the session goes on under a later CONNECT, and the one that began it is not late."""
    binding = load_binding(Path(__file__).parents[3] / "properties" / "stores" / "two-lists")
    run = SessionRun(BoundStore(binding, KernelBackend()), (b"c",))
    reports = [run.perform(step) for step in (GO_ON, LATE_AND_CLEAN, CLEAN, save(1), LATE, LATE_AND_CLEAN, Fetch())]
    assert [one.text for report in reports for one in report.discrepancies] == []
    assert [report.result is None for report in reports[1:2]] == [True]


def test_a_store_that_has_no_word_to_refuse_a_connect_is_not_asked() -> None:
    binding = load_binding(LUA / "specimens" / "published")
    run = SessionRun(BoundStore(binding, KernelBackend()), (b"c",))
    assert [run.perform(step).result for step in (AGAIN, LATE)] == [None, None]


def after_a_late_end(store: str, find: str = "", replace: str = "") -> tuple[bool, list[str]]:
    """Whether the store is asked, and the laws that it breaks when the end of an earlier session comes late."""
    binding = load_binding(LUA / store)
    (source,) = (one.source.decode() for one in binding.scripts if one.name == "clear.lua")
    assert find in source
    edited = binding.with_sources({"clear.lua": source.replace(find, replace).encode()})
    run = SessionRun(BoundStore(edited, KernelBackend()), (b"c",))
    for step in (save(1), Clear(), CLEAN):
        assert run.perform(step).discrepancies == []
    reports = [run.perform(step) for step in (Clear(stale=True), save(2), Clear(stale=True), Fetch(), save(3))]
    return reports[0].result is not None, [one.law for report in reports for one in report.discrepancies]


@pytest.mark.parametrize("store", ["session", "pending"])
def test_the_end_of_an_earlier_session_ends_nothing(store: str) -> None:
    assert after_a_late_end(store) == (True, [])


def test_a_store_that_ends_whatever_session_there_is_loses_messages() -> None:
    asked, laws = after_a_late_end("session", "epoch < tonumber(string.match(meta, '^%d+'))", "false")
    assert asked
    assert laws[0] == "no-loss"


def test_nothing_comes_late_before_an_earlier_session_was_ended() -> None:
    run = SessionRun(BoundStore(load_binding(LUA / "session"), KernelBackend()), (b"c",))
    assert run.perform(Clear(stale=True)).result is None
    assert run.perform(Clear()).result is not None
    assert run.perform(Clear(stale=True)).result is None, "no session has begun since"


def test_a_store_whose_clear_tells_nothing_is_not_asked() -> None:
    assert not BoundStore(load_binding(LUA / "specimens" / "published"), KernelBackend()).capabilities.tells_ends
