"""Operations of one call and of several, variants of a store, and stores that are laid out in other ways."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.stores.binding import (
    Assigned,
    Binding,
    CommandCall,
    Failed,
    Fetched,
    FetchedMessage,
    Message,
    Removed,
    Saved,
    ScriptCall,
    load_binding,
)
from orderlab.sim.stores.binding.results import ContractReply

LUA = Path(__file__).parents[3] / "lua"
TWO = (Message(b"a", b"t/1", 2, 5000, time_ms=9, properties=(("k", "v"),)), Message(b'"\xff'))


def bind(folder: Path, toml: str) -> Binding:
    (folder / "store.toml").write_text(toml)
    for name in ("save", "fetch", "ack", "lib"):
        (folder / f"{name}.lua").write_text("return 1")
    return load_binding(folder)


def test_a_json_array_of_messages(tmp_path: Path) -> None:
    binding = load_binding(LUA / "specimens" / "published")
    call = binding.call("save", client=b"c", messages=TWO, limit=3, default_expiry_ms=60_000)
    assert isinstance(call, ScriptCall)
    assert call.keys == (b"{c}_messages", b"{c}_last_packet_id")
    first = (
        b'{"clientId":"c","topicName":"t/1","time":9,"qos":2,"packetType":"PUBLISH","payload":"YQ==","retained":false,'
        b'"msgExpiryInterval":5,"userProperties":{"k":"v"}}'
    )
    second = (
        b'{"clientId":"c","topicName":"","time":0,"qos":1,"packetType":"PUBLISH","payload":"Iv8=","retained":false}'
    )
    assert call.args == (b"[" + first + b"," + second + b"]", b"3", b"60")
    assert call.argv[:3] == (b"EVALSHA", call.script.sha1.encode(), b"2")
    assert call.argv_with_source[:3] == (b"EVAL", call.script.source, b"2")


def test_repeated_arguments_and_keys(tmp_path: Path) -> None:
    binding = bind(
        tmp_path,
        """
        [keys]
        queue = "{q:<client>}"
        one = "{q:<client>}:<index>"
        [operations.save]
        script = "save.lua"
        keys = ["queue", { each = "messages", items = ["one"] }]
        args = [
            "<messages|length>", "<key.queue>",
            { each = "messages", items = ["<index>", "<payload>", "<expiry_ms|or:default_expiry_ms>"] },
            { json = { who = "<client>", batch = "<messages>", fixed = [1, true] } },
            { msgpack = { who = "<client>", batch = ["<messages|length>", -1, 300, 2.5, true] } },
        ]
        [operations.fetch]
        script = "fetch.lua"
        keys = ["queue"]
        """,
    )
    call = binding.call("save", client=b"c", messages=TWO, default_expiry_ms=7)
    assert isinstance(call, ScriptCall)
    assert call.keys == (b"{q:c}", b"{q:c}:1", b"{q:c}:2")
    json_text = b'{"who":"c","batch":["a","\\"\xff"],"fixed":[1,true]}'
    packed = b"\x82\xa3who\xa1c\xa5batch\x95\x02\xff\xcd\x01\x2c\xca@ \x00\x00\xc3"
    assert call.args == (b"2", b"{q:c}", b"1", b"a", b"5000", b"2", b'"\xff', b"7", json_text, packed)
    fetch = binding.call("fetch", client=b"c")
    assert isinstance(fetch, ScriptCall)
    assert fetch.args == ()


STEPS = """
[keys]
counter = "{<client>}:n"
list = "{<client>}:l"
[operations.save]
reply = { shape = "integer", is = "last", from = "next" }
[[operations.save.steps]]
command = ["GET", "<key.counter>"]
capture = "last"
[[operations.save.steps]]
script = "save.lua"
keys = ["list"]
args = ["<last|or:0|add:1>", "<messages>"]
capture = "next"
[[operations.save.steps]]
command = ["SET", "<key.counter>", "<next>"]
when = "next"
[operations.fetch]
reply = { shape = "strings", from = "bodies" }
[[operations.fetch.steps]]
command = ["LRANGE", "<key.list>", "0", "<count|subtract:1>"]
capture = "names"
[[operations.fetch.steps]]
command = ["MGET", { each = "names", items = ["{<client>}:<item>"] }]
when = "names"
capture = "bodies"
"""


def test_an_operation_of_several_calls(tmp_path: Path) -> None:
    binding = bind(tmp_path, STEPS)
    fields = {"client": b"c", "messages": TWO}
    assert not binding.operation("save").is_atomic
    assert binding.step("save", fields) == CommandCall("save", (b"GET", b"{c}:n"))
    script = binding.step("save", fields, [None])
    assert isinstance(script, ScriptCall)
    assert script.args[0] == b"1"
    script = binding.step("save", fields, [b"41"])
    assert isinstance(script, ScriptCall)
    assert script.args[0] == b"42"
    assert binding.step("save", fields, [b"41", 43]) == CommandCall("save", (b"SET", b"{c}:n", b"43"))
    assert binding.step("save", fields, [b"41", 43, b"OK"]) == Saved((Assigned(42), Assigned(43)), first=42, last=43)
    assert binding.step("save", fields, [b"41", ErrorReply(b"OOM")]) == Failed(b"OOM")
    with pytest.raises(InputError, match="save: 4 replies to 3 calls"):
        binding.step("save", fields, [b"41", 43, b"OK", 1])


def test_a_step_for_every_item_and_a_step_that_is_left_out(tmp_path: Path) -> None:
    binding = bind(tmp_path, STEPS)
    fields = {"client": b"c", "count": 2}
    assert binding.step("fetch", fields) == CommandCall("fetch", (b"LRANGE", b"{c}:l", b"0", b"1"))
    assert binding.step("fetch", fields, [[]]) == Fetched()
    assert binding.step("fetch", fields, [[b"x", b"y"]]) == CommandCall("fetch", (b"MGET", b"{c}:x", b"{c}:y"))
    found = binding.step("fetch", fields, [[b"x", b"y"], [b"1", None]])
    assert found == Fetched((FetchedMessage(b"1"),))


def test_a_call_for_every_message(tmp_path: Path) -> None:
    binding = bind(
        tmp_path,
        """
        [operations.save]
        reply = { shape = "records", columns = ["packet_id"] }
        [[operations.save.steps]]
        script = "save.lua"
        each = "messages"
        args = ["<index>", "<message>"]
        [operations.fetch]
        script = "fetch.lua"
        """,
    )
    fields = {"messages": TWO}
    first, second = binding.step("save", fields), binding.step("save", fields, [7])
    assert isinstance(first, ScriptCall)
    assert isinstance(second, ScriptCall)
    assert (first.args, second.args) == ((b"1", b"a"), (b"2", b'"\xff'))
    assert binding.step("save", fields, [7, 8]) == Saved((Assigned(7), Assigned(8)), first=7, last=8)
    assert binding.step("save", {"messages": ()}) == Saved()


def test_a_function_of_a_library(tmp_path: Path) -> None:
    (tmp_path / "lib.lua").write_text("x")
    binding = bind(
        tmp_path,
        """
        [operations.save]
        library = "lib.lua"
        function = "save"
        args = ["<limit>"]
        [operations.fetch]
        library = "lib.lua"
        function = "fetch"
        read_only = true
        """,
    )
    call = binding.call("save", limit=3)
    assert isinstance(call, ScriptCall)
    assert call.argv == call.argv_with_source == (b"FCALL", b"save", b"0", b"3")
    assert binding.operation("fetch").read_only
    assert [script.name for script in binding.scripts] == ["lib.lua"]


def test_a_store_that_takes_one_message_at_a_time() -> None:
    binding = load_binding(LUA / "pending")
    assert binding.operation("save").batch_max == 1
    assert binding.step("save", {"messages": ()}) == Saved()
    with pytest.raises(InputError, match="save: a batch of 2, but batch_max is 1; split it"):
        binding.call("save", messages=TWO)


def test_unknown_operations_and_fields() -> None:
    binding = load_binding(LUA / "session")
    with pytest.raises(InputError, match='operations: no operation "remove"; known here: open, save'):
        binding.call("remove")
    with pytest.raises(InputError, match=r'save: unknown field "limt"; did you mean "limit"\?'):
        binding.call("save", limt=3)


def test_fixed_values_come_from_the_store(tmp_path: Path) -> None:
    binding = bind(
        tmp_path,
        """
        [fixed]
        limit = 5
        [operations.save]
        script = "save.lua"
        args = ["<limit>", "<default_expiry_ms>", "<modulus>"]
        [operations.fetch]
        script = "fetch.lua"
        """,
    )
    call = binding.call("save")
    assert isinstance(call, ScriptCall)
    assert call.args == (b"5", b"604800000", b"65535")
    assert binding.fixed == {"limit": 5}


def test_a_variant_takes_over_what_it_does_not_replace(tmp_path: Path) -> None:
    base, variant = tmp_path / "base", tmp_path / "variant"
    base.mkdir()
    variant.mkdir()
    bind(base, '[keys]\na = "1"\nb = "2"\n[operations.save]\nscript = "save.lua"\nkeys = ["a", "b"]\n'
         '[operations.fetch]\nscript = "fetch.lua"\n[operations.acknowledge]\nscript = "ack.lua"\n')  # fmt: skip
    (variant / "store.toml").write_text(
        'base = "../base"\n[keys]\nb = "3"\n[operations.acknowledge]\nscript = "fetch.lua"\n'
        "[[edits]]\nscript = 'save.lua'\nfind = '1'\nreplace = '2'\n"
    )
    (variant / "fetch.lua").write_text("return 7")
    binding = load_binding(variant)
    assert binding.name == "variant"
    call = binding.call("save")
    assert isinstance(call, ScriptCall)
    assert call.keys == (b"1", b"3")
    assert {script.name: script.source for script in binding.scripts} == {
        "save.lua": b"return 2",
        "fetch.lua": b"return 7",
    }


def test_an_adapter_says_what_templates_cannot(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from orderlab.adapter import CommandCall, Removed\n"
        "class Mine:\n"
        "    def __init__(self, binding): self.binding = binding\n"
        "    def step(self, operation, fields, replies):\n"
        "        if operation != 'acknowledge': return None\n"
        "        return Removed(replies[0]) if replies else CommandCall(operation, (b'DEL', fields['client']))\n"
    )
    toml = (
        'adapter = "mine.py:Mine"\n[operations.save]\nscript = "save.lua"\n[operations.fetch]\nscript = "fetch.lua"\n'
    )
    (tmp_path / "store.toml").write_text(toml)
    (tmp_path / "save.lua").write_text("return 1")
    (tmp_path / "fetch.lua").write_text("return 1")
    binding = load_binding(tmp_path, trust_adapter=True)
    assert binding.call("acknowledge", client=b"c") == CommandCall("acknowledge", (b"DEL", b"c"))
    assert binding.decode("acknowledge", 1, {}) == Removed(1)
    assert isinstance(binding.call("save"), ScriptCall)


def test_a_binding_is_pickled_and_works_again() -> None:
    for folder in (LUA / "session", LUA / "specimens" / "counter-outside-the-script"):
        binding = load_binding(folder)
        again = pickle.loads(pickle.dumps(binding))
        assert again.call("save", messages=TWO) == binding.call("save", messages=TWO)


@pytest.mark.parametrize(("clean_start", "calls"), [(1, [b"DEL", b"SET"]), (0, [b"SETNX", b"SET"])])
def test_a_call_may_hang_on_a_field(tmp_path: Path, clean_start: int, calls: list[bytes]) -> None:
    binding = bind(
        tmp_path,
        """
        [keys]
        queue = "{q:<client>}"

        [[operations.open.steps]]
        command = ["DEL", "<key.queue>"]
        when = "clean_start"

        [[operations.open.steps]]
        command = ["SETNX", "<key.queue>", "1"]
        unless = "clean_start"

        [[operations.open.steps]]
        command = ["SET", "<key.queue>", "<epoch>"]

        [operations.save]
        script = "save.lua"

        [operations.fetch]
        script = "fetch.lua"
        """,
    )
    made: list[bytes] = []
    answer = binding.step("open", {"clean_start": clean_start}, [])
    while isinstance(answer, CommandCall):
        made.append(answer.argv[0])
        answer = binding.step("open", {"clean_start": clean_start}, [1] * len(made))
    assert made == calls


def test_a_store_is_named_after_its_folder_wherever_one_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3] / "lua" / "pending")
    assert load_binding(Path()).name == "pending"


@pytest.mark.parametrize(
    ("last", "replies", "told"), [("unless", [b"x"], None), ("when", [None], None), ("when", [b"x", b"y"], "y")]
)
def test_a_skipped_last_step_answers_with_nil(
    tmp_path: Path, last: str, replies: list[bytes | None], told: object
) -> None:
    steps = f'{{ command = ["GET", "a"], capture = "held" }}, {{ command = ["GET", "b"], {last} = "held" }}'
    (tmp_path / "store.toml").write_text(f'specification = "lock"\n[operations.acquire]\nsteps = [{steps}]\n')
    assert load_binding(tmp_path).step("acquire", {}, replies) == ContractReply(told)
