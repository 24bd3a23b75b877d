"""Five sets of scripts that were written before anybody looked at how init guesses: what stood in their way."""

from __future__ import annotations

from pathlib import Path

from tests.in_process import orderlab
from tests.properties.draft.test_sets import binding_of, drafted, spoil, verdict


def test_a_java_lock_that_counts_is_drafted_without_a_gap(tmp_path: Path) -> None:
    store = drafted("reentrant", tmp_path)
    assert binding_of(store)["promises"]["reentrant"] == "counts"
    assert set(verdict(store, "mutual-exclusion").values()) == {"holds"}
    free = "(not holder) or"
    spoil(store / "ReentrantRedisLock.java", free, f"{free} redis.call('pttl', KEYS[1]) < 9000 or")
    assert verdict(store, "mutual-exclusion")["mutual-exclusion"] == "violated"


def test_a_php_limiter_whose_clock_is_made_milliseconds(tmp_path: Path) -> None:
    store = drafted("sliding", tmp_path, gaps=1)  # reset, which no contract has
    assert binding_of(store)["operations"]["hit"]["args"] == ["<now_ms>", "<window_ms>", "<limit>", "<request>"]
    spoil(store / "SlidingLimiter.php", "used < limit", "used <= limit")
    assert verdict(store, "at-most-n")["at-most-n"] == "violated"


def test_a_queue_of_delayed_jobs_whose_recovery_is_given_a_count(tmp_path: Path) -> None:
    store = drafted("delayed", tmp_path)
    assert binding_of(store)["operations"]["recover"]["args"] == ["<now_ms>", "100"]
    assert binding_of(store)["promises"]["tells"] == ["job", "payload"]
    assert set(verdict(store, "no-loss").values()) == {"holds"}


def test_pieces_of_scripts_are_none_and_a_feed_that_keeps_offsets_is_no_job_queue(tmp_path: Path) -> None:
    store = drafted("offsets", tmp_path, gaps=4)  # what a class of one's own leaves to be written
    assert binding_of(store)["specification"] == "contract.py:Store"
    assert list(binding_of(store)["operations"]) == ["publish", "fetch", "commit"]


def test_files_whose_keys_a_method_lists_and_replies_that_runs_show(tmp_path: Path) -> None:
    store = drafted("away", tmp_path, gaps=2)  # keys that lapse together, messages without an interval
    assert binding_of(store)["keys"]["q"] == "s:{<client>}:q"
    operations = binding_of(store)["operations"]
    assert operations["save"]["reply"] == {"shape": "integer", "is": "last"}
    assert operations["fetch"]["reply"] == {"shape": "records", "nested": True, "columns": ["packet_id", "payload"]}


def test_what_takes_another_program_is_told_with_what_settles_it(tmp_path: Path) -> None:
    store = drafted("delayed", tmp_path)
    asked = ("validate", str(store), "--effort", "0.02", "--backend", "kernel", "--law", "all-or-nothing")
    cure = '[[accept]] law = "all-or-nothing", operation = "add", trouble = "wrong-type", why = "..."'
    assert cure in orderlab(*asked).stdout
    file = store / "store.toml"
    file.write_text(file.read_text() + cure.replace("]] ", "]]\n").replace(", ", "\n") + "\n")
    settled = orderlab(*asked).stdout
    assert cure not in settled
    assert "all-or-nothing is violated" not in settled
