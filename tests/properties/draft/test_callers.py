"""What programs pass to their scripts, as a draft has it: nothing is misread, and what is not understood is a gap."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from orderlab.properties.draft.callers import with_callers
from orderlab.properties.draft.draft import draft
from orderlab.properties.draft.facts import all_facts
from orderlab.properties.draft.guess import guessed
from orderlab.properties.lint.subjects import scripts_at
from tests.in_process import orderlab

GO = """package rdb

func jobKey(q, id string) string { return fmt.Sprintf("q:{%s}:job:%s", q, id) }
func prefix(q string) string { return fmt.Sprintf("q:{%s}:job:", q) }

var enqueueCmd = redis.NewScript(`
redis.call("HSET", KEYS[1], "msg", ARGV[1], "since", ARGV[2])
redis.call("LPUSH", KEYS[2], ARGV[3]) return 1`)

var dequeueCmd = redis.NewScript(`
local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[2])
if id then
  redis.call("ZADD", KEYS[3], ARGV[1], id)
  return {id, redis.call("HGET", ARGV[2] .. id, "msg")}
end
return nil`)

var doneCmd = redis.NewScript(`
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then return redis.error_reply("NOT FOUND") end
redis.call("DEL", KEYS[2]) return redis.status_reply("OK")`)

func (r *RDB) Enqueue(ctx context.Context, msg *Msg) error {
	keys := []string{jobKey(msg.Queue, msg.ID), fmt.Sprintf("q:{%s}:pending", msg.Queue)}
	argv := []interface{}{msg.Payload, r.clock.Now().UnixNano(), msg.ID}
	return enqueueCmd.Run(ctx, r.client, keys, argv...).Err()
}

func (r *RDB) Dequeue(ctx context.Context, q string) ([]string, error) {
	keys := []string{fmt.Sprintf("q:{%s}:pending", q), fmt.Sprintf("q:{%s}:active", q), fmt.Sprintf("q:{%s}:lease", q)}
	argv := []interface{}{r.now().Add(LeaseDuration).Unix(), prefix(q)}
	return dequeueCmd.Run(ctx, r.client, keys, argv...).StringSlice()
}

func (r *RDB) Done(ctx context.Context, msg *Msg) error {
	keys := []string{fmt.Sprintf("q:{%s}:active", msg.Queue), jobKey(msg.Queue, msg.ID)}
	return doneCmd.Run(ctx, r.client, keys, msg.ID).Err()
}
"""
"""Lists of the same names in every function, keys of one job each, clocks in three units."""
JAVA = """class Delayed {
  static final String PUSH = \"\"\"
    redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) return 1
    \"\"\";
  boolean push(String id, Duration delay) {
    long due = clock.millis() + delay.toMillis();
    return jedis.eval(PUSH, List.of("dq"), List.of(id, Long.toString(due))) == 1;
  }
}"""
RUBY = """class Mutex
  LOCK = <<~LUA
    if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
      return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
    end
  LUA
  def lock(ttl)
    @redis.call("EVAL", LOCK, 1, "m", @value, ttl, "yes") == "OK"
  end
  def extend(ttl)
    @redis.call("EVAL", LOCK, 1, "m", @value, ttl, "no") == "OK"
  end
end"""
TWO_CLASSES = """
TAKE = "return redis.call('INCR', KEYS[1])"
ACQUIRE = "return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])"
class Bucket:
    def __init__(self, name): self.key = f"bucket:{name}"
    def take(self): return client.eval(TAKE, 1, self.key)
class Semaphore:
    def __init__(self, name): self.key = f"semaphore:{name}"
    def acquire(self): return client.eval(ACQUIRE, 1, self.key, int(self.ttl * 1000), self.token)
"""


def bound(folder: Path, name: str, text: str, contract: str) -> dict[str, Any]:
    """The first draft of one program, of which no script is run."""
    (folder / name).write_text(text)
    facts = with_callers(folder, all_facts(scripts_at([folder])[0]))
    return tomllib.loads(draft(facts, guessed(facts, contract), replied=()))


def test_lists_of_one_name_are_those_of_their_function_and_a_key_of_one_job_holds_its_name(tmp_path: Path) -> None:
    store = bound(tmp_path, "rdb.go", GO, "job_queue")
    operations = store["operations"]
    assert operations["add"]["args"] == ["<payload>", "<now_ms|milliseconds|milliseconds>", "<job>"]
    assert operations["take"]["args"] == ["<now_ms|add:lease_ms|seconds|floor>", "q:{store}:job:"]
    assert [store["keys"][name] for name in operations["complete"]["keys"]] == [
        "q:{store}:active",
        "q:{store}:job:<job>",
    ]
    assert operations["complete"]["reply"] == {"errors": {"NOT FOUND": "lost"}, "words": {"OK": "ok"}}
    assert store["promises"]["tells"] == ["TODO"]  # a list was seen in the text, and no reply


def test_a_moment_that_a_variable_holds_as_text(tmp_path: Path) -> None:
    store = bound(tmp_path, "Delayed.java", JAVA, "job_queue")
    assert store["operations"]["add"]["args"] == ["<job>", "<now_ms|add:delay_ms>"]
    assert store["promises"]["ties"] == "any"


@pytest.mark.parametrize(
    ("moment", "template"),
    [
        ("at.Unix()", "<now_ms|add:delay_ms|seconds|floor>"),
        ("at.UnixMilli()", "<now_ms|add:delay_ms>"),
        ("s.timeNow().Unix()", "<now_ms|seconds|floor>"),
        ("now.Add(delay).UnixMilli()", "<now_ms|add:delay_ms>"),
    ],
)
def test_a_moment_in_go_is_in_its_own_unit(moment: str, template: str, tmp_path: Path) -> None:
    program = "package q\nvar pushCmd = redis.NewScript(`redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2]) return 1`)\n"
    program += 'func Push() { pushCmd.Run(ctx, r, []string{"q:{x}"}, %s, msg.ID) }\n'
    store = bound(tmp_path, "q.go", program % moment, "job_queue")
    assert store["operations"]["add"]["args"] == [template, "<job>"]


def test_a_script_that_does_two_things_by_a_word_is_two_operations(tmp_path: Path) -> None:
    operations = bound(tmp_path, "mutex.rb", RUBY, "lock")["operations"]
    assert (operations["acquire"]["args"][2], operations["renew"]["args"][2]) == ("yes", "no")


def test_members_of_one_name_are_those_of_their_class(tmp_path: Path) -> None:
    store = bound(tmp_path, "limits.py", TWO_CLASSES, "lock")
    assert len(store["keys"]) == 2
    assert store["operations"]["acquire"]["args"] == ["<ttl_ms>", "<token>"]


def test_what_keys_begin_with_is_no_field(tmp_path: Path) -> None:
    text = "-- KEYS[1] wait\n-- ARGV[1] key prefix\n-- ARGV[2] job id\n"
    text += "redis.call('HSET', ARGV[1] .. ARGV[2], 'x', 1) return redis.call('LPUSH', KEYS[1], ARGV[2])"
    operations = bound(tmp_path, "add.lua", text, "job_queue")["operations"]
    assert operations["add"]["args"] == ["{store}:", "<job>"]


@pytest.mark.parametrize(
    "call",
    [
        "this.client.add(...keys, ...args)",
        "this.execCommand(client, 'add', [...keys, ...args])",
        "c.add(keys.concat(args))",
    ],
)
def test_commands_of_files_that_tell_how_many_keys_there_are(call: str, tmp_path: Path) -> None:
    text = "redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) return redis.call('LPUSH', KEYS[1], ARGV[1])"
    (tmp_path / "add-2.lua").write_text(text)
    program = f"function add(id, data) {{ const keys = ['q:wait', 'q:data']; const args = [id, data]; return {call} }}"
    operations = bound(tmp_path, "scripts.ts", program, "job_queue")["operations"]
    assert operations["add"]["args"] == ["<job>", "<payload>"]
    assert operations["add"]["keys"] == ["wait", "data"]


@pytest.mark.parametrize(
    ("body", "args"),
    [
        ("args = [id]\n    args.append(data)\n    c.eval(ADD, 1, 'q', *args)", ["<job>", "<payload>"]),
        ("args = [id]\n    if more: args.append(data)\n    c.eval(ADD, 1, 'q', *args)", ["<TODO arg1>", "<TODO arg2>"]),
    ],
)
def test_a_list_that_grows(body: str, args: list[str], tmp_path: Path) -> None:
    program = f"""ADD = "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])"
def add(id, data, more):
    {body}
"""
    assert bound(tmp_path, "q.py", program, "job_queue")["operations"]["add"]["args"] == args


def test_constants_of_another_file_are_followed(tmp_path: Path) -> None:
    (tmp_path / "Keys.java").write_text('class Keys { static final String WAITING = "shop:{q}:waiting"; }')
    program = """class Queue {
      static final String PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])";
      void push(String id) { jedis.eval(PUSH, List.of(Keys.WAITING), List.of(id)); }
    }"""
    assert bound(tmp_path, "Queue.java", program, "job_queue")["keys"] == {"waiting": "{store}:waiting"}


def test_jobs_that_the_store_names_are_a_gap(tmp_path: Path) -> None:
    (tmp_path / "done.lua").write_text("-- ARGV[1] job id\nreturn redis.call('LREM', KEYS[1], 1, ARGV[1])")
    text = "local id = redis.call('INCR', KEYS[2]) redis.call('HSET', id, 'data', ARGV[1]) "
    text += "redis.call('LPUSH', KEYS[1], id) return id"
    store = bound(tmp_path, "add.lua", f"-- ARGV[1] data\n{text}", "job_queue")
    assert store["promises"]["names"] == "TODO"


def test_a_reply_that_is_not_understood_is_a_gap(tmp_path: Path) -> None:
    text = "if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then return redis.call('EVAL', 'x', 0) end return -2"
    store = bound(tmp_path, "complete.lua", f"-- KEYS[1] jobs\n-- ARGV[1] job\n{text}", "job_queue")
    assert store["operations"]["complete"]["reply"] == {"value": "<TODO reply>"}


def test_a_lock_that_counts_and_passes_its_duration_everywhere_is_promised_so(tmp_path: Path) -> None:
    lock = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then "
    lock += "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0"
    unlock = """if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
    if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
    redis.call('del', KEYS[1]) return 1"""
    for name, text in (("lock", lock), ("unlock", unlock)):
        (tmp_path / f"{name}.lua").write_text(f"-- KEYS[1] name\n-- ARGV[1] ttl\n-- ARGV[2] owner\n{text}")
    assert "no line says TODO" in orderlab("init", tmp_path).stdout
    store = tomllib.loads((tmp_path / "store.toml").read_text())
    assert store["promises"] == {"ttl_ms": 10000, "tokens": "caller", "reentrant": "counts"}
    assert store["operations"]["acquire"]["args"] == ["10000", "<token>"]
    ended = orderlab("validate", tmp_path, "--effort", "0.1", "--backend", "kernel")
    assert "violated" not in ended.stdout, ended.stdout
