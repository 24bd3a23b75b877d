"""Scripts composed of files: what they become, which line is whose, and every mistake in one line with place and
cure."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orderlab.application import make
from orderlab.model.errors import InputError
from orderlab.properties.comparison.base_revision import old_store
from orderlab.properties.mutants.operators import mutants_of
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.lua_text import scale
from orderlab.sim.stores.binding.results import Script

ROOT = Path(__file__).parents[3]
BINDING = """
[keys]
queue = "{<client>}:queue"

[operations.save]
script = "commands/save.lua"
keys = ["queue"]
args = ["<limit>", { each = "messages", items = ["<payload>"] }]

[operations.fetch]
command = ["LRANGE", "<key.queue>", "0", "-1"]
reply = { shape = "strings", fields = { payload = "value" } }
"""
SAVE = """local rcall = redis.call
-- Includes
--- @include "includes/push"
--- @include "includes/trim.lua"
push(KEYS[1])
trim(KEYS[1], 65535)
return 1
"""
PUSH = """--- @include "each"
--- @include <common/names>
local function push(key)
  each(function(payload) rcall(PUSH, key, payload) end)
end
"""
EACH = "local function each(what)\n  for at = 2, #ARGV do what(ARGV[at]) end\nend"
TRIM = (
    "--- @include \"each\"\nlocal function trim(key, most)\n  if rcall('LLEN', key) > 65535 then rcall('LTRIM', "
    "key, -most, -1) end\nend\n"
)


def files(folder: Path, binding: str = BINDING, **given: str) -> Path:
    """A store of several files; ``given`` by their place, with _ for a slash."""
    contents = {
        "commands/save.lua": SAVE,
        "commands/includes/push.lua": PUSH,
        "commands/includes/each.lua": EACH,
        "commands/includes/trim.lua": TRIM,
        "common/names.lua": "local PUSH = 'RPUSH'",
        **{name.replace("_", "/") + ".lua": text for name, text in given.items()},
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "store.toml").write_text(binding)
    return folder


def save_of(folder: Path) -> Script:
    return load_binding(folder).scripts[0]


def told(folder: Path) -> str:
    with pytest.raises(InputError) as raised:
        load_binding(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_each_file_stands_once_where_it_is_first_included(tmp_path: Path) -> None:
    script = save_of(files(tmp_path))
    assert script.source.count(b"local function each") == 1
    assert b"end\n--- @include <common/names>\nlocal PUSH" in script.source
    assert [Path(name).name for name in script.files] == ["save.lua", "push.lua", "each.lua", "names.lua", "trim.lua"]
    assert script.files["commands/save.lua"].decode() == SAVE
    assert script.files["commands/includes/trim.lua"].decode() == TRIM


def test_it_runs_as_one_script(tmp_path: Path) -> None:
    server = KernelBackend()
    source = save_of(files(tmp_path)).source
    assert server.execute(b"EVAL", source, b"1", b"q", b"9", b"x", b"y") == 1
    assert server.execute(b"LRANGE", b"q", b"0", b"-1") == [b"x", b"y"]


def test_every_line_is_a_line_of_one_file(tmp_path: Path) -> None:
    script = save_of(files(tmp_path))
    for number, line in enumerate(script.source.decode().splitlines(), 1):
        _, path, own = script.place_of(number)
        assert path.read_text().splitlines()[own - 1] == line
        assert script.text_of(number) == line.strip()


def test_what_is_no_include(tmp_path: Path) -> None:
    plain = (
        'local a = [[\n--- @include "nothing"\n]]\nlocal b = 1 --- @include "nothing"\n--[[ @include "nothing" '
        "]]\n-- @include what you like\nreturn 1\n"
    )
    script = save_of(files(tmp_path, commands_save=plain))
    assert (script.source.decode(), script.pieces) == (plain, ())


@pytest.mark.parametrize(
    "line",
    [
        '--- @include "x"',
        "--- @include 'x'",
        '-- @include "x.lua"',
        '  --@include "./x"',
        '--- @include "x";',
        "--- @include <commands/x>",
        '--- @include "x"\r',
    ],
)
def test_every_spelling(line: str, tmp_path: Path) -> None:
    assert b"return 7" in save_of(files(tmp_path, commands_save=f"{line}\n", commands_x="return 7")).source


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"nowhere"', "no such file; put the script into"),
        ('"includes"', "no such file"),
        ('"../../outside"', "outside the store folder; move the file into it, or name its folder under [includes]"),
        ('"/etc/passwd"', "outside the store folder"),
        ("<../outside>", "outside the store folder"),
        ('"<shared>/x"', "unknown part <shared>; give its folder under [includes]"),
        ('"', "no file that is named like this"),
        ("<x", "no file that is named like this"),
        ('"save"', "include one another: commands/save.lua -> commands/save.lua; remove one"),
        (
            '"goes/round"',
            "commands/save.lua -> commands/goes/round.lua -> commands/goes/and.lua -> commands/goes/round.lua",
        ),
        ('"shebang"', "is no plain Lua text"),
        ('"folder"', "cannot be read (Is a directory)"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(line: str, said: str, tmp_path: Path) -> None:
    store = files(
        tmp_path / "store",
        commands_save=f"-- first\n--- @include {line}\n",
        commands_goes_round='--- @include "and"',
        commands_goes_and='--- @include "round"',
        commands_shebang="#!lua\nreturn 1",
    )
    (tmp_path / "outside.lua").write_text("return 'secret'")
    (store / "commands" / "folder.lua").mkdir()
    assert said in told(store)
    assert ".lua:" in told(store)


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    store = files(tmp_path / "store", commands_save='--- @include "link"\n')
    (tmp_path / "secret.lua").write_text("secret !")
    (store / "commands" / "link.lua").symlink_to(tmp_path / "secret.lua")
    assert "lies outside the store's folder" in told(store)
    (store / "commands" / "link.lua").unlink()
    (store / "commands" / "link.lua").symlink_to(store / "common" / "names.lua")
    assert b"RPUSH" in save_of(store).source


def test_a_part_is_what_the_binding_says(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "one.lua").write_text('--- @include "two"\n')
    (tmp_path / "shared" / "two.lua").write_text("return 8\n")
    binding = BINDING + '[includes]\nparts = "../shared"\n'
    store = files(tmp_path / "store", binding, commands_save='--- @include "<parts>/one"\n')
    assert list(save_of(store).files) == ["commands/save.lua", "<parts>/one.lua", "<parts>/two.lua"]
    (tmp_path / "shared" / "two.lua").write_text('--- @include "../store/store"\n')
    assert "outside the folder of <parts>" in told(store)
    (store / "commands" / "save.lua").write_text('--- @include "<part>/one"\n')
    assert 'did you mean "parts"?' in told(store)
    variant = tmp_path / "below" / "variant"
    variant.mkdir(parents=True)
    (variant / "store.toml").write_text('base = "../../store"\n')
    (store / "commands" / "save.lua").write_text('--- @include "<parts>/two"\n')
    (tmp_path / "shared" / "two.lua").write_text("return 9\n")
    assert b"return 9" in save_of(variant).source


def test_a_variant_has_the_files_of_its_base_and_its_own_before_them(tmp_path: Path) -> None:
    files(tmp_path / "store")
    variant = tmp_path / "variant"
    (variant / "commands" / "includes").mkdir(parents=True)
    edit = '[[edits]]\nscript = "commands/includes/trim.lua"\nfind = "65535 then"\nreplace = "7 then"\n'
    (variant / "store.toml").write_text(f'base = "../store"\n{edit}')
    (variant / "commands" / "includes" / "each.lua").write_text("local function each(what) end\n")
    source = save_of(variant).source
    assert b"> 7 then" in source
    assert b"each(what) end" in source
    (variant / "store.toml").write_text(f'base = "../store"\n{edit}'.replace("trim.lua", "trap.lua"))
    assert 'unknown script "commands/includes/trap.lua"; did you mean "commands/includes/trim.lua"?' in told(variant)


def test_long_chains_and_large_files_end(tmp_path: Path) -> None:
    store = files(
        tmp_path,
        commands_save='--- @include "f0"\n',
        **{f"commands_f{n}": f'--- @include "f{n + 1}"\n' for n in range(80)},
    )
    assert "more than 64 files below one another" in told(store)
    many = {f"commands_f{n}": "-- " + "x" * 60_000 + "\n" for n in range(20)}
    files(tmp_path, commands_save="".join(f'--- @include "f{n}"\n' for n in range(20)), **many)
    assert "more than 1,048,576 bytes" in told(tmp_path)


def test_a_mistake_in_lua_names_the_file_that_has_it(tmp_path: Path) -> None:
    store = files(tmp_path, commands_includes_trim="local function trim(key, most)\n  if then\nend\n")
    assert f"{store}/commands/includes/trim.lua:2: " in told(store)
    files(tmp_path, commands_includes_trim="local function trim(key, most)\n  if true then\n")
    assert "(to close" in told(store)
    assert "at line 2 of trim.lua" in told(store)


def test_lines_of_scaling_and_of_mutants_are_those_of_their_files(tmp_path: Path) -> None:
    binding = load_binding(files(tmp_path))
    assert {(line.file, line.line) for line in scale(binding, 5)[1]} == {
        ("commands/save.lua", 6),
        ("commands/includes/trim.lua", 3),
    }
    places = {one.place for one in mutants_of(binding)}
    assert "commands/includes/each.lua:2" in places
    assert all(int(place.rpartition(":")[2]) <= 8 for place in places)


def test_a_revision_takes_the_included_files_along(tmp_path: Path) -> None:
    store = files(tmp_path / "store")
    for line in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "all"],
    ):
        subprocess.run(["git", *line], cwd=tmp_path, check=True)
    (store / "common" / "names.lua").write_text("local PUSH = 'LPUSH'\n")
    with old_store(store, "HEAD") as old:
        assert b"'RPUSH'" in old.scripts[0].source
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "names.lua").write_text("local PUSH = 'other'\n")
    with old_store(store, str(tmp_path / "old" / "names.lua")) as old:
        assert b"'other'" in old.scripts[0].source
        assert b"'LPUSH'" in load_binding(store).scripts[0].source


CHECKED = (
    "local function finish(lease, token)\n  if redis.call('GET', lease) ~= token then return 0 end\n  return "
    "redis.call('DEL', lease)\nend\n"
)
UNCHECKED = CHECKED.replace("if redis.call('GET', lease) ~= token then return 0 end", "-- whoever asks")


@pytest.mark.parametrize(("finish", "outcome"), [(CHECKED, "holds"), (UNCHECKED, "violated")])
def test_a_witness_names_the_included_file_and_its_line(finish: str, outcome: str, tmp_path: Path) -> None:
    store = tmp_path / "lock"
    shutil.copytree(ROOT / "lua" / "lock", store)
    (store / "release.lua").write_text(
        '-- KEYS: lease\n--- @include "includes/finish"\nreturn finish(KEYS[1], ARGV[1])\n'
    )
    (store / "includes").mkdir()
    (store / "includes" / "finish.lua").write_text(finish)
    report = tmp_path / "report.json"
    asked = [
        "validate",
        str(store),
        "--trust-adapter",
        "--effort",
        "0.15",
        "--law",
        "own-release",
        "--backend",
        "kernel",
        f"--report=json={report}",
    ]
    done = CliRunner().invoke(make(), asked)
    (subject,) = json.loads(report.read_text())["subjects"]
    assert done.exit_code == (1 if outcome == "violated" else 0), done.output
    lines = [(one["line"]["path"], one["line"]["line"]) for one in subject["findings"]]
    assert lines == ([(str(store / "includes" / "finish.lua"), 3)] if outcome == "violated" else [])
    if outcome == "violated":
        (store / "includes" / "finish.lua").write_text(CHECKED)
        replayed = CliRunner().invoke(
            make(), ["replay", str(report), "--trust-adapter", "--export", f"pytest={tmp_path / 'test_it.py'}"]
        )
        assert replayed.exit_code == 0, replayed.output
        assert "local function finish" in (tmp_path / "test_it.py").read_text()
