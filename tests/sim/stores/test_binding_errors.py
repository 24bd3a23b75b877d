"""Every mistake in a binding is one line that names the file, the key and the cure; the nearest right form passes."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.engine.validation import asks_clients_for_time, contract_of, never_passed
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.loader import check_store
from orderlab.sim.stores.binding.templates import Vocabulary, compile_template

LUA = Path(__file__).parents[3] / "orderlab" / "lua"
RIGHT = """
[keys]
queue = "{q:<client>}:queue"

[message]
format = "json"
fields = { payload = "<payload|base64>" }

[operations.save]
script = "save.lua"
keys = ["queue"]
args = ["<limit>", "<messages>"]
reply = { shape = "integer", is = "last" }

[operations.fetch]
script = "fetch.lua"
keys = ["queue"]
reply = { shape = "messages", fields = { payload = "payload|base64" } }
"""


def store(folder: Path, toml: str | bytes = RIGHT, **scripts: bytes) -> Path:
    """A store's folder with two trivial scripts, or those given."""
    content = toml if isinstance(toml, bytes) else toml.encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "store.toml").write_bytes(content)
    for name in ("save", "fetch"):
        (folder / f"{name}.lua").write_bytes(scripts.get(name, b"return 1"))
    return folder


def message_of(path: Path, **options: bool) -> str:
    with pytest.raises(InputError) as raised:
        load_binding(path, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_the_right_form_passes(tmp_path: Path) -> None:
    binding = load_binding(store(tmp_path / "right"))
    assert sorted(binding.operations) == ["fetch", "save"]
    assert load_binding(tmp_path / "right" / "store.toml").name == "right"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert load_binding(store(tmp_path / "windows", "\ufeff" + RIGHT)).operations


@pytest.mark.parametrize("key", ["script", "library"])
def test_an_empty_file_name_is_a_mistake_like_any_other(tmp_path: Path, key: str) -> None:
    toml = RIGHT.replace('script = "save.lua"', f'{key} = ""' + ('\nfunction = "f"' if key == "library" else ""))
    assert f'operations.save.{key}: "": cannot be read' in message_of(store(tmp_path / "empty", toml))


MISTAKES = [
    (
        'args = ["<limit>", "<messages>"]',
        'args = ["<limit>", "<clientID>"]',
        'operations.save.args[1]: unknown field "clientID"; did you mean "client"?',
    ),
    ('"{q:<client>}:queue"', '"{q:<clinet>}:queue"', 'keys.queue: unknown field "clinet"; did you mean "client"?'),
    (
        'keys = ["queue"]\nargs',
        'keys = ["qeue"]\nargs',
        'operations.save.keys[0]: unknown key "qeue"; did you mean "queue"?',
    ),
    ("args =", "arg =", 'operations.save: unknown key "arg"; did you mean "args"?'),
    ("args =", 'argv = ["x"]\nargs =', 'operations.save: unknown key "argv"; did you mean "args"?'),
    ("[operations.fetch]", "[operations.fetsh]", 'unknown key "fetsh"; did you mean "fetch"?'),
    ('script = "save.lua"', "", "operations.save: no call; give one of script, function with library, command"),
    ('script = "save.lua"', 'script = "save.lua"\ncommand = ["GET"]', "operations.save: script and command;"),
    ('script = "save.lua"', 'function = "save"', "operations.save: function and library belong together; give both"),
    (
        'script = "save.lua"',
        'script = "sav.lua"',
        'operations.save.script: "sav.lua": no such file; put the script into',
    ),
    ('script = "save.lua"', 'script = "../save.lua"', 'operations.save.script: "../save.lua" lies outside the store'),
    (
        'script = "save.lua"',
        'script = "/etc/hostname"',
        'operations.save.script: "/etc/hostname" lies outside the store',
    ),
    ('script = "save.lua"', 'script = "."', 'operations.save.script: "."'),
    ('script = "save.lua"', 'script = "a\\u0000b"', "operations.save.script"),
    (
        'shape = "integer"',
        'shape = "intger"',
        'operations.save.reply.shape: unknown value "intger"; did you mean "integer"?',
    ),
    ('is = "last"', 'is = "lats"', 'operations.save.reply.is: unknown meaning "lats"; did you mean "last"?'),
    (', is = "last"', "", 'operations.save.reply.is: missing; say what the integer is, such as is = "first"'),
    ('shape = "integer", is', 'shape = "status", is', "operations.save.reply.is: only an integer reply has a meaning"),
    (
        'shape = "messages"',
        'shape = "status"',
        'operations.fetch.reply.shape: fetch returns messages; "status" has none',
    ),
    ('shape = "messages"', 'shape = "records"', "operations.fetch.reply.columns: missing; name the columns"),
    (
        '{ payload = "payload|base64" }',
        '{ paylod = "payload|base64" }',
        'operations.fetch.reply.fields: unknown attribute "paylod"; did you mean "payload"?',
    ),
    (
        '{ payload = "payload|base64" }',
        '{ payload = "payload|base46" }',
        'operations.fetch.reply.fields.payload: unknown filter "base46"; did you mean "base64"?',
    ),
    ("<payload|base64>", "<payload|bas64>", 'message.fields.payload: unknown filter "bas64"; did you mean "base64"?'),
    ("<payload|base64>", "<payload|or>", 'message.fields.payload: filter "or" needs an argument, or:...'),
    ("<payload|base64>", "<payload|base64:2>", 'message.fields.payload: filter "base64" takes no argument'),
    (
        "<payload|base64>",
        "<payload|add:limt>",
        'filter "add" takes a number or a field, not "limt"; did you mean "limit"?',
    ),
    ("<payload|base64>", "<payload", 'message.fields.payload: "<" without ">" in "<payload"; write << for a plain <'),
    ('format = "json"', 'format = "jsn"', 'message.format: unknown value "jsn"; did you mean "json"?'),
    ('format = "json"', 'format = "packed"', 'message.layout: missing; format "packed" needs it'),
    (
        'args = ["<limit>", "<messages>"]',
        'args = [{ each = "mesages", items = ["<payload>"] }]',
        'operations.save.args[0].each: unknown list "mesages"; did you mean "messages"?',
    ),
    (
        'args = ["<limit>", "<messages>"]',
        'args = [{ each = "messages", items = ["<paylod>"] }]',
        'operations.save.args[0].items[0]: unknown field "paylod"; did you mean "payload"?',
    ),
    (
        'args = ["<limit>", "<messages>"]',
        'args = [{ each = "messages", item = ["<payload>"] }]',
        'operations.save.args[0]: unknown key "item"; did you mean "items"?',
    ),
    ('args = ["<limit>", "<messages>"]', "args = [7]", "operations.save.args[0]"),
    ('args = ["<limit>", "<messages>"]', 'args = "<limit>"', "operations.save.args"),
    ("[keys]", "modulus = 70000\n[keys]", "modulus: input should be less than or equal to 65535, not 70000"),
    ("[keys]", 'specification = "sesion"\n[keys]', 'specification: unknown value "sesion"; did you mean "session"?'),
    ("[keys]", 'adapter = "adapter"\n[keys]', 'adapter: "adapter" is no adapter; write "adapter.py:ClassName"'),
    (
        "[keys]",
        'adapter = "adapter.py:Mine"\n[keys]',
        "is Python that would run here; pass --trust-adapter if you trust it",
    ),
    ("[keys]", 'base = "../nowhere"\n[keys]', 'base: no store.toml in "../nowhere"; name the folder of another store'),
    (
        "[keys]",
        "[[edits]]\nscript = 'save.lua'\nfind = 'x'\nreplace = 'y'\n[keys]",
        "edits[0].find: stands 0 times in save.lua; give a piece that stands there once",
    ),
    (
        "[keys]",
        "[[edits]]\nscript = 'svae.lua'\nfind = 'x'\nreplace = 'y'\n[keys]",
        'edits[0].script: unknown script "svae.lua"; did you mean "save.lua"?',
    ),
    ("[operations.fetch]", "batch_max = 0\n[operations.fetch]", "operations.save.batch_max"),
    ("[operations.fetch]", "[operations.fetch]\nbatch_max = 1", "operations.fetch.batch_max: only save takes a batch"),
    (
        "[operations.fetch]",
        "[[operations.save.steps]]\ncommand = ['GET']\n[operations.fetch]",
        "operations.save: has steps and a call of its own; move the call into the steps",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "said"), MISTAKES, ids=[said[:60] for _, _, said in MISTAKES])
def test_a_mistake_is_named_with_its_place_and_its_cure(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert RIGHT.count(right) >= 1
    folder = store(tmp_path / "store", RIGHT.replace(right, wrong, 1))
    text = message_of(folder)
    assert text.startswith(str(folder / "store.toml"))
    assert said in text


def test_a_missing_operation_is_named(tmp_path: Path) -> None:
    text = message_of(store(tmp_path, RIGHT[: RIGHT.index("[operations.fetch]")]))
    assert "operations.fetch: missing; add it" in text


def test_what_is_not_a_binding(tmp_path: Path) -> None:
    assert "no such file; put a store.toml there" in message_of(tmp_path)
    assert "no such file" in message_of(tmp_path / "nowhere")
    assert "not TOML: " in message_of(store(tmp_path / "a", "keys = ["))
    assert "not UTF-8 at byte 3; save it as UTF-8" in message_of(store(tmp_path / "b", b'x="\xff"'))
    (tmp_path / "c" / "store.toml").mkdir(parents=True)
    assert "cannot be read" in message_of(tmp_path / "c")
    assert "larger than" in message_of(store(tmp_path / "d", b"#" * ((1 << 20) + 1)))


def test_an_unreadable_script(tmp_path: Path) -> None:
    folder = store(tmp_path)
    (folder / "save.lua").unlink()
    (folder / "save.lua").mkdir()
    assert 'operations.save.script: "save.lua": cannot be read' in message_of(folder)


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    folder = store(tmp_path, save=b"local a = 1\nlocal b = = 2\n")
    assert message_of(folder) == f"{folder / 'save.lua'}:2: unexpected symbol near '='; correct the script"
    assert "save.lua:1: 'end' expected near '<eof>'" in message_of(store(tmp_path / "b", save=b"if true then"))
    assert load_binding(store(tmp_path / "c", save=b"#!lua flags=no-writes\nreturn 1"))
    assert "save.lua" in message_of(store(tmp_path / "d", save=b"\x1bLua not source"))


def test_a_syntax_error_far_down_a_long_path(tmp_path: Path) -> None:
    folder = store(tmp_path / ("deep" * 30), save=b"\n\n)")
    assert message_of(folder).startswith(f"{folder / 'save.lua'}:3: ")


def test_bases_in_a_circle(tmp_path: Path) -> None:
    store(tmp_path / "a", 'base = "../b"\n' + RIGHT)
    store(tmp_path / "b", 'base = "../a"\n' + RIGHT)
    assert "more than 4 bases behind one another" in message_of(tmp_path / "a")


def test_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = store(tmp_path / "store")
    outside = tmp_path / "outside.lua"
    outside.write_text("return 1")
    (folder / "save.lua").unlink()
    (folder / "save.lua").symlink_to(outside)
    assert '"save.lua" lies outside the store\'s folder' in message_of(folder)


def test_an_adapter_that_fails(tmp_path: Path) -> None:
    folder = store(tmp_path, 'adapter = "mine.py:Mine"\n' + RIGHT)
    (folder / "mine.py").write_text("1 / 0")
    assert "mine.py:Mine failed: ZeroDivisionError" in message_of(folder, trust_adapter=True)
    (folder / "mine.py").write_text("class Other: pass")
    assert "mine.py has no class Mine; known here: Other" in message_of(folder, trust_adapter=True)
    (folder / "mine.py").write_text("class Mine:\n    def __init__(self, binding): binding.nothing")
    assert "mine.py:Mine failed: AttributeError: 'Binding' object" in message_of(folder, trust_adapter=True)


def test_an_adapter_in_a_folder_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    folder = store(tmp_path / os.fsdecode(b"store-\xff"), 'adapter = "mine.py:Mine"\n' + RIGHT)
    (folder / "mine.py").write_text("1 / 0")
    assert "mine.py:Mine failed: ZeroDivisionError" in message_of(folder, trust_adapter=True)


def test_a_store_is_called_like_its_folder_however_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store(tmp_path / "mine") / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert load_binding(".").name == load_binding("store.toml").name == "mine"
    monkeypatch.chdir("deeper")
    assert load_binding("..").name == "mine"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


@pytest.mark.parametrize("make", [_pipe, _device, _huge, Path.mkdir], ids=["pipe", "device", "huge", "folder"])
@pytest.mark.parametrize("name", ["store.toml", "save.lua"])
def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    folder = store(tmp_path / "hostile")
    (folder / name).unlink()
    make(folder / name)
    said = message_of(folder / "store.toml")
    assert said.startswith(str(folder / "store.toml"))
    assert "\n" not in said


DEEP = {
    "brackets": "a = " + "[" * 100_000,
    "tables": "a = " + "{a=" * 100_000,
    "a dotted key": ".".join(["a"] * 200_000) + " = 1",
    "a quoted key": ".".join(['"a"'] * 100_000) + " = 1",
    "a header": "[" + " . ".join(["a"] * 100_000) + "]",
    "filters": RIGHT.replace("<client>", "<client" + "|hex" * 60 + ">"),
    "placeholders": RIGHT.replace("<client>", "<client>" * 60_000),
    "control characters in a name": 'name = "a\\u001b[2J"\n' + RIGHT,
}


@pytest.mark.parametrize("toml", DEEP.values(), ids=DEEP.keys())
def test_what_is_too_deep_or_too_long_is_said_at_once(tmp_path: Path, toml: str) -> None:
    began = time.process_time()
    said = message_of(store(tmp_path / "deep", toml))
    assert time.process_time() - began < 10, "a million characters are read in a fraction of this"
    assert said.startswith(str(tmp_path / "deep" / "store.toml"))
    assert len(said) < 400
    assert said.isprintable()


def test_what_is_deep_and_long_within_reason_passes(tmp_path: Path) -> None:
    filters = RIGHT.replace("<client>", "<client" + "|hex" * 4 + ">")
    assert load_binding(store(tmp_path / "filters", filters)).operations
    assert load_binding(
        store(tmp_path / "dots", RIGHT + '[[edits]]\nscript = "save.lua"\nfind = "1"\nreplace = "' + "a.b" * 20 + '"')
    )


def test_a_value_too_long_is_an_error_of_the_binding() -> None:
    vocabulary = Vocabulary(("client",), {})
    template = compile_template("<client" + "|hex" * 30 + ">", vocabulary, "here")
    with pytest.raises(InputError, match=r"here: makes a value of more than 64 MiB"):
        template.render({"client": b"client"})
    template = compile_template("<client>" * 2000, vocabulary, "here")
    with pytest.raises(InputError, match=r"here: makes a value of more than 64 MiB"):
        template.render({"client": b"x" * 65535})
    assert len(template.render({"client": b"x"})) == 2000


def tables_in(content: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a parsed TOML document has tables."""
    if isinstance(content, dict):
        yield place
    for step, inner in (
        content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    ):
        yield from tables_in(inner, (*place, step))


def keys_in(content: Any) -> set[str]:
    """Every key of every table."""
    if isinstance(content, dict):
        return set(content).union(*map(keys_in, content.values()))
    return set().union(*map(keys_in, content)) if isinstance(content, list) else set()


@pytest.mark.parametrize("name", ["session", "lock", "job_queue", "feed_watched", "pending"])
def test_a_key_in_the_wrong_table_is_never_what_may_be_meant(name: str) -> None:
    text = (LUA / name / "store.toml").read_text()
    content = tomllib.loads(text)
    said = []
    for place in tables_in(content):
        for key in sorted(keys_in(content) | {"zzz"}):
            changed = tomllib.loads(text)
            table = functools.reduce(operator.getitem, place, changed)
            if key not in table:
                table[key] = 7
                with contextlib.suppress(InputError):
                    check_store(changed, "store.toml")
                    continue
                said.append((place, key, refusal_of(changed)))
    assert len(said) > 50
    assert [one for one in said if f'did you mean "{one[1]}"' in one[2] or "\n" in one[2]] == []


def refusal_of(content: dict[str, Any]) -> str:
    with pytest.raises(InputError) as raised:
        check_store(content, "store.toml")
    return str(raised.value)


OF_A_CONTRACT = [
    ('"job_queue"', '"jobqueue"', 'specification: unknown value "jobqueue"; did you mean "job_queue"?'),
    (
        '"job_queue"',
        '"cache"',
        'specification: unknown value "cache"; give session, pending, feed, job_queue, limiter, lock, or FILE.py:Class',
    ),
    ('"job_queue"', '"locks"', 'specification: unknown value "locks"; did you mean "lock"?'),
    (
        'specification = "job_queue"\n',
        "",
        "specification: missing, and add is no operation of a session; add specification",
    ),
    (
        "{queue}:jobs",
        "{<queue>}:jobs",
        "what is the same in every call is plain text: write queue without < >; known here: ",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "said"), OF_A_CONTRACT)
def test_a_store_that_names_no_contract_is_told_which_there_are(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    shutil.copytree(LUA / "job_queue", tmp_path / "queue")
    file = tmp_path / "queue" / "store.toml"
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong, 1))
    assert said in message_of(tmp_path / "queue")


def test_a_script_is_no_store(tmp_path: Path) -> None:
    folder = store(tmp_path / "right")
    assert f"a script, and no store; name {folder / 'store.toml'}" in message_of(folder / "save.lua")
    (folder / "store.toml").unlink()
    assert "put a store.toml beside it" in message_of(folder / "save.lua")


PASSED = [
    ('args = ["<delay_ms>"]', {"delay_ms"}),
    ('args = ["at <now_ms|add:delay_ms>"]', {"now_ms", "delay_ms"}),
    ('args = ["<delay_ms|or:key>"]', {"delay_ms", "key"}),
    ('args = ["<delay_ms|or:keys>"]', {"delay_ms"}),
    ('args = [{ json = { at = ["<delay_ms>"] } }]', {"delay_ms"}),
    ('args = ["<<delay_ms>", "delay_ms"]', set()),
    ('keys = ["fixed"]\nargs = ["<key.fixed>"]', set()),
    ('keys = ["named"]', {"key"}),
    ('args = ["<key.named>"]', {"key"}),
    ('args = ["named", "jobs"]', set()),
    ('reply = { value = "<delay_ms>" }', set()),
    ('reply = { words = { "1" = "<key>" } }', set()),
]
STEPS = [
    ('{ command = ["GET", "fixed"], capture = "key" }, { command = ["SET", "a", "<key>"] }', set()),
    ('{ command = ["GET", "<key>"], capture = "key" }, { command = ["SET", "a", "<key>"] }', {"key"}),
    ('{ command = ["GET", "a"] }, { command = ["GET", "b"], when = "delay_ms" }', {"delay_ms"}),
    ('{ transaction = [{ command = ["SET", "a", "<delay_ms>"] }] }', {"delay_ms"}),
]


@pytest.mark.parametrize(
    ("call", "passed"),
    [(f'script = "add.lua"\n{call}', passed) for call, passed in PASSED]
    + [(f"steps = [{steps}]", passed) for steps, passed in STEPS],
)
def test_what_a_store_passes_is_what_the_parser_of_its_templates_reads(
    tmp_path: Path, call: str, passed: set[str]
) -> None:
    (tmp_path / "add.lua").write_text("return 1")
    (tmp_path / "store.toml").write_text(
        f'specification = "job_queue"\n[keys]\nfixed = "{{q}}:base"\nnamed = "{{q}}:<key>"\n[operations.add]\n{call}\n'
    )
    binding = load_binding(tmp_path)
    assert binding.operations["add"].reads == passed
    assert asks_clients_for_time(binding) == ("now_ms" in passed)
    contract = contract_of(binding)
    assert bool(contract.delay_ms) == ("delay_ms" in passed)
    assert bool(contract.key) == ("key" in passed)


def test_a_field_that_nothing_passes_is_a_gap(tmp_path: Path) -> None:
    shutil.copytree(LUA / "job_queue", tmp_path / "queue")
    binding = load_binding(tmp_path / "queue")
    assert list(never_passed(binding, contract_of(binding))) == [], "a token that the store makes itself is no gap"
    file = tmp_path / "queue" / "store.toml"
    text = file.read_text()
    assert "<delay_ms>" in text
    file.write_text(text.replace("<delay_ms>", "0"))
    changed = load_binding(tmp_path / "queue")
    assert any(
        one.startswith("add never passes delay_ms: what depends on it is not judged")
        for one in never_passed(changed, contract_of(changed))
    )
