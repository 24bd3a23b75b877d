"""Crowds end past the pages that scripts name themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.base import Crowd
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.properties.engine.crowd_sizes import crowding, pages_of, sizes_of
from orderlab.properties.engine.validation import contract_of
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_feed_and_job_queue import LUA, at_length, feed_with, only
from tests.properties.contracts.sequential.test_other_styles import store

BEHIND = "messages before the last that have lapsed"
AGAIN = "messages posted again after their claims lapsed"
OFF_THE_LEASES = "  redis.call('ZREM', KEYS[5], unpack(names))\n  redis.call('HDEL', KEYS[6], unpack(names))\n"
ONE_PAGE = ("list.lua", "for _ = 1, 10 do", "for _ = 1, 1 do")
MOVING_ON = ("list.lua", "    marker = line[2 * index]\n", "")
SAME_NUMBER = "what is posted again keeps its number"
PAGE = "local page, is_end = {}, 0\n"
OVER_LIVE = ("list.lua", "entry[3] }\n", "entry[3] }\n      marker = line[2 * index]\n")


@pytest.mark.parametrize(
    ("script", "pages"),
    [
        (b"redis.call('ZRANGE', KEYS[1], 0, '99', 'LIMIT', 0, 100)", {99, 100}),
        (b"for first = 1, #all, 500 do end -- 300", {500}),
        (b"return math.floor(ms / 1000) + 1000 * s + 60 % 61", set()),
        (b"return 9 + 2001", set()),
    ],
)
def test_what_scripts_name_is_a_page(script: bytes, pages: set[int]) -> None:
    feed = load_binding(LUA / "feed")
    plain = feed.with_sources({one.name: b"" for one in feed.scripts})
    assert pages_of(plain.with_sources({"get.lua": script})) - pages_of(plain) == pages - pages_of(plain)


def test_a_crowd_ends_past_the_largest_page_that_is_not_too_long() -> None:
    by_one = Crowd("things", (15, 40), lambda size: range(size))
    assert sizes_of(by_one, [20, 100, 1000]) == (15, 40, 151)
    assert sizes_of(by_one, [20]) == (15, 40)
    assert sizes_of(by_one._replace(steps=lambda size: [1]), [20, 100, 1000]) == (15, 40, 1501)


def test_calls_of_crowds_past_the_pages_of_what_a_store_is_compared_with_are_taken() -> None:
    contract = contract_of(load_binding(LUA / "job_queue"))
    assert crowding(contract, [100]) < crowding(contract, [100, 400])


@pytest.mark.parametrize(
    ("edits", "crowd", "law"),
    [
        ([("post.lua", OFF_THE_LEASES, "")], AGAIN, "exclusive-claim"),
        ([MOVING_ON, OVER_LIVE, ONE_PAGE], BEHIND, "progress"),
    ],
)
def test_what_shows_past_a_page(
    edits: list[tuple[str, str, str]], crowd: str, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, crowd)
    assert set(at_length(feed_with(*edits), grown=False).by_law) == {law}


def test_the_lawful_neighbours_break_nothing_past_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, AGAIN, BEHIND)
    in_turn = OFF_THE_LEASES.splitlines(keepends=True)
    edits = (
        ("post.lua", OFF_THE_LEASES, "".join(reversed(in_turn))),
        ("list.lua", "for _ = 1, 10 do", "for _ = 1, 4 do"),
    )
    assert at_length(feed_with(*edits), grown=False).by_law == {}


@pytest.mark.parametrize(("until", "laws"), [("-1", {"bounded"}), ("99", set())])
def test_what_lua_does_with_each_of_many_is_counted(
    until: str, laws: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Redis call more, but a loop over all that there is; its neighbour goes through a page."""
    only(monkeypatch, "messages")
    counted = f"local n = 0\nfor _, each in ipairs(redis.call('ZRANGE', KEYS[2], 0, {until})) do n = n + #each end\n"
    found = at_length(feed_with(("list.lua", PAGE, counted + PAGE)), grown=False, counts_lua=True).by_law
    assert set(found) == laws
    assert all("Lua instructions with 8,100 messages" in each.text for law in found.values() for each in law)


@pytest.mark.parametrize(("limit", "laws"), [("", {"bounded"}), (", 'LIMIT', 0, 1000", set())])
def test_one_call_for_all_that_is_due_fails_where_more_is_due_than_unpack_takes(
    tmp_path: Path, limit: str, laws: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue without a call for many jobs: more of them than a contract can follow are added, judged by nobody."""
    queue = store(tmp_path, "laravel_queue")
    source = next(one.source for one in queue.scripts if one.name == "pop.lua").decode()
    edited = queue.with_sources({"pop.lua": source.replace(", 'LIMIT', 0, 100", limit).encode()})
    crowds = JobQueue.crowds
    monkeypatch.setattr(JobQueue, "crowds", lambda contract: [one for one in crowds(contract) if "delay" in one.name])
    found = at_length(edited, grown=False).by_law
    assert set(found) == laws
    assert all("take fails with 8,100 jobs whose delay is over" in each.text for law in found.values() for each in law)


def test_a_reader_that_was_told_a_marker_asks_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that was told is another call than one that nobody gave: 300 messages have lapsed that a reader knows,
    and those that come again lie behind what it was told."""
    only(monkeypatch, BEHIND)
    assert "cursor-safe" in at_length(store(tmp_path, "feed_of_keys", SAME_NUMBER), grown=False).by_law
    assert at_length(store(tmp_path, "feed_of_keys"), grown=False).by_law == {}
