"""Ten sets of scripts in the style of other projects: from init to a verdict, and to another with a flaw put in."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.in_process import orderlab

SETS = Path(__file__).with_name("sets")
INBOX = """from orderlab.contract import Call, Contract


class Store(Contract):
    operations = {"post": ("body",), "page": ("cursor", "limit"), "ack": ("id",)}

    def initial(self):
        return 0, ()  # the last identifier that was given; identifier and body of what is there

    def outcomes(self, state, call, now_ms):
        last, entries = state
        if call.name == "post":
            yield last + 1, (last + 1, (*entries, (last + 1, call["body"])))
        elif call.name == "page":
            yield tuple(entry for entry in entries if entry[0] > call["cursor"])[: call["limit"]], state
        else:
            left = tuple(entry for entry in entries if entry[0] > call["id"])
            yield len(entries) - len(left), (last, left)

    def calls(self, client, seen):
        yield Call.of("post", body=f"b{client}.{len(seen)}")
        posted = [each.reply for each in seen if each.call.name == "post"]
        for cursor in (0, *posted[-1:]):
            yield Call.of("page", cursor=cursor, limit=2)
        if posted:
            yield Call.of("ack", id=posted[-1])

    def size(self, state):
        return len(state[1])
"""


def drafted(name: str, folder: Path, *options: str, gaps: int = 0) -> Path:
    """A set with the binding that init drafts for it."""
    store = folder / name
    shutil.copytree(SETS / name, store)
    told = json.loads(orderlab("init", str(store), "--json", *options).stdout)
    assert told["gaps"] == gaps, (store / "store.toml").read_text()
    return store


def verdict(store: Path, *laws: str) -> dict[str, str]:
    """Law -> outcome, of a short run."""
    asked = [part for law in laws for part in ("--law", law)]
    done = orderlab(
        "validate", str(store), "--effort", "0.02", "--backend", "kernel", "--trust-adapter", "--json", *asked
    )  # fmt: skip
    found = json.loads(done.stdout)
    return {law["law"]: law["outcome"] for law in found["laws"]}


def spoil(file: Path, old: str, new: str) -> None:
    """Put a flaw in."""
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def filled(store: Path, *pairs: tuple[str, str]) -> None:
    """Write what a user writes into the gaps."""
    for gap, said in pairs:
        spoil(store / "store.toml", gap, said)


def binding_of(store: Path) -> dict[str, dict[str, dict[str, object]]]:
    return tomllib.loads((store / "store.toml").read_text())


def test_a_php_class_whose_functions_return_the_scripts(tmp_path: Path) -> None:
    store = drafted("job_queue", tmp_path, gaps=1)
    operations = binding_of(store)["operations"]
    assert operations["take"]["args"] == ["<now_ms|add:lease_ms|seconds|floor>"]
    assert operations["recover"]["keys"] == ["reserved", "queues"]
    assert operations["promote"]["keys"] == ["delayed", "queues"]
    assert set(verdict(store, "no-loss").values()) == {"holds"}
    spoil(
        store / "src/LuaScripts.php", "redis.call('zadd', KEYS[2], ARGV[1], job)", "redis.call('zscore', KEYS[2], job)"
    )
    assert "violated" in verdict(store, "no-loss").values()


def test_go_constants(tmp_path: Path) -> None:
    store = drafted("lock", tmp_path)
    assert binding_of(store)["keys"] == {"lease": "lease:{store}", "token": "lease:{store}:token"}
    assert set(verdict(store, "mutual-exclusion", "own-release", "fencing").values()) == {"holds"}
    flaw = ('redis.call("set", KEYS[1], token, "px", ARGV[1])', 'redis.call("set", KEYS[1], token, "px", ARGV[1])\n')
    spoil(store / "lease/lease.go", flaw[0], flaw[1] + 'redis.call("pexpire", KEYS[2], ARGV[1])')
    assert verdict(store, "fencing") == {"fencing": "violated"}


def test_a_python_module(tmp_path: Path) -> None:
    store = drafted("limiter", tmp_path, gaps=1)
    assert binding_of(store)["operations"]["hit"]["args"] == ["<now_ms>", "<window_ms>", "<limit>", "<request>"]
    assert set(verdict(store, "at-most-n", "refusal-when-full").values()) == {"holds"}
    spoil(
        store / "app/throttle.py", "redis.call('ZADD', KEYS[1], now, ARGV[4])", "redis.call('ZADD', KEYS[1], now, now)"
    )
    assert verdict(store, "at-most-n") == {"at-most-n": "violated"}


def test_lua_files_with_includes_and_a_caller_in_typescript(tmp_path: Path) -> None:
    assert "feed" in (drafted("inbox", tmp_path / "guessed", gaps=5) / "store.toml").read_text()
    store = drafted("inbox", tmp_path, "--specification", "own", gaps=4)
    assert binding_of(store)["operations"]["post"]["args"] == ["<body>", "1000"]
    (store / "contract.py").write_text(INBOX)
    assert verdict(store, "specification") == {"specification": "holds"}
    spoil(store / "lua/page-2.lua", '"(" .. ARGV[1]', "ARGV[1]")
    assert verdict(store, "specification") == {"specification": "violated"}


def test_a_java_class(tmp_path: Path) -> None:
    store = drafted("sessions", tmp_path, gaps=3)
    told = orderlab("validate", str(store), "--effort", "0.01", "--backend", "kernel").stdout
    assert "message.fields.payload: unknown field" in told
    filled(store, ('"<TODO payload>"', '"<payload|base64>"'), ("payload|TODO", "payload|base64"))
    assert binding_of(store)["keys"]["bodies"] == "{<client>}:bodies"
    assert verdict(store, "store-order") == {"store-order": "holds"}
    spoil(store / "store/DeviceMsgStore.java", "scored[#scored + 1] = sequence", "scored[#scored + 1] = -sequence")
    assert verdict(store, "store-order") == {"store-order": "violated"}


def test_a_kotlin_class_whose_lock_replies_nothing_when_it_is_taken(tmp_path: Path) -> None:
    store = drafted("redisson", tmp_path)
    assert binding_of(store)["operations"]["acquire"]["args"] == ["<ttl_ms>", "<token>"]
    assert set(verdict(store, "mutual-exclusion", "own-release").values()) == {"holds"}
    spoil(store / "DistributedLock.kt", "'hexists', KEYS[1], ARGV[1])", "'exists', KEYS[1])")
    assert verdict(store, "own-release") == {"own-release": "violated"}


def test_a_c_sharp_class_whose_limiter_acquires(tmp_path: Path) -> None:
    store = drafted("throttling", tmp_path)
    assert binding_of(store)["operations"]["hit"]["args"] == ["<now_ms>", "<window_ms>", "<limit>", "<request>"]
    assert verdict(store, "at-most-n") == {"at-most-n": "holds"}
    spoil(store / "RateLimiter.cs", "count >= limit", "count > limit")
    assert verdict(store, "at-most-n") == {"at-most-n": "violated"}


def test_a_node_module_that_reads_files_by_their_stems(tmp_path: Path) -> None:
    store = drafted("semaphore", tmp_path)
    assert binding_of(store)["promises"]["holders"] == 2
    assert binding_of(store)["keys"] == {"semaphore": "{store}:semaphore"}
    assert verdict(store, "mutual-exclusion") == {"mutual-exclusion": "holds"}
    spoil(store / "lua/acquire.lua", "< limit", "<= limit")
    assert verdict(store, "mutual-exclusion") == {"mutual-exclusion": "violated"}


def test_a_gem_that_sends_commands_by_their_names(tmp_path: Path) -> None:
    operations = binding_of(drafted("courier", tmp_path, gaps=0))["operations"]
    keys = {name: table["keys"] for name, table in operations.items()}
    assert keys == {
        "add": ["jobs", "data"], "take": ["jobs", "running", "data"], "complete": ["running", "data"],
        "recover": ["running", "jobs"],
    }  # fmt: skip


def test_a_python_package_that_calls_functions(tmp_path: Path) -> None:
    operations = binding_of(drafted("mailbox", tmp_path, gaps=5))["operations"]
    assert operations["post"]["function"] == "mailbox_send"
    assert operations["list"]["args"] == ["<marker>", "<count>"]
    assert operations["post"]["keys"] == ["messages", "seq"]


def test_a_limiter_that_replies_with_a_count_is_not_taken_for_one_that_says_yes(tmp_path: Path) -> None:
    lua = "local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n"
    (tmp_path / "hit.py").write_text(f'HIT = "{lua}"\nallowed = c.eval(HIT, 1, f"hits:{{user}}", 7000) <= 2\n')
    assert json.loads(orderlab("init", str(tmp_path), "--json").stdout)["specification"] == "limiter"
    assert binding_of(tmp_path)["promises"]["window_ms"] == 7000
    assert verdict(tmp_path, "at-most-n", "refusal-when-full") == {"at-most-n": "holds", "refusal-when-full": "holds"}
    spoil(tmp_path / "hit.py", "if n == 1 then", "if n > 0 then")
    assert "violated" in verdict(tmp_path, "at-most-n", "refusal-when-full").values()


@pytest.mark.parametrize(
    ("clock", "template"),
    [
        ("int(time.time())", "<now_ms|seconds|floor>"),
        ("time.time()", "<now_ms|seconds>"),
        ("int(time.time() * 1000)", "<now_ms>"),
        ("int(time.time()) + 60", "<now_ms|add:60000|seconds|floor>"),
        ("time.time_ns()", "<now_ms|milliseconds|milliseconds>"),
    ],
)  # fmt: skip
def test_a_clock_is_read_in_its_own_unit(clock: str, template: str, tmp_path: Path) -> None:
    lua = "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2]) return 1"
    (tmp_path / "acquire.py").write_text(f'ACQUIRE = "{lua}"\nc.eval(ACQUIRE, 1, "leases", {clock}, token)\n')
    orderlab("init", str(tmp_path), "--specification", "lock")
    text = (tmp_path / "store.toml").read_text()
    assert template in text
    assert ("ttl_ms = 60000" in text) == ("60" in clock)
