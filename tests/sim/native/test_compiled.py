"""The same text, compiled and interpreted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orderlab.sim.native import build as compiling
from orderlab.sim.native import install as compiled

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def place() -> Path:
    try:
        return compiling.build()
    except compiling.CannotCompile as reason:
        pytest.fail(f"machine code cannot be tested here: {reason}")


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0", **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


WHERE = "import orderlab.sim.redis.keyspace as keyspace; print(keyspace.__file__)"


def test_a_process_takes_the_machine_code_unless_it_is_told_not_to(place: Path) -> None:
    assert run(WHERE) == str(place / "orderlab" / "sim" / "redis" / f"keyspace{compiled.SUFFIX}")
    assert run(WHERE, ORDERLAB_COMPILED="0") == str(ROOT / "orderlab" / "sim" / "redis" / "keyspace.py")


def test_every_module_that_is_named_is_compiled(place: Path) -> None:
    assert set(compiling.MODULES) <= set(compiled.modules_in(place))


def test_machine_code_of_another_text_is_not_taken(place: Path, tmp_path: Path) -> None:
    for path in compiled.sources(ROOT):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert place in compiled.folders(tmp_path), "the same text, elsewhere"
    changed = tmp_path / "orderlab" / "sim" / "redis" / "replies.py"
    changed.write_text(changed.read_text() + "\n")
    assert place not in compiled.folders(tmp_path)


def test_machine_code_that_cannot_be_loaded_is_left_alone(place: Path, tmp_path: Path) -> None:
    broken = tmp_path / "orderlab" / "compiled" / place.name
    for path in place.rglob(f"*{compiled.SUFFIX}"):
        copy = broken / path.relative_to(place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(b"not machine code")
    assert run(WHERE, XDG_CACHE_HOME=str(tmp_path)) == str(ROOT / "orderlab" / "sim" / "redis" / "keyspace.py")


def test_without_a_compiler_the_reason_is_one_line_with_the_cure(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orderlab.sim.native.build"],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    assert "apt-get install gcc" in done.stdout
    assert not list(tmp_path.rglob("*.so"))


REPLIES = """
import hashlib
from tests.laboratory.conformance.sequences import Generator, SeededDraw
from tests.laboratory.conformance.subjects import KernelSubject
from orderlab.sim import compiled
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.registry import COMMANDS, load_commands

load_commands()
generator, draw, subject, said = Generator(COMMANDS), SeededDraw(SEED), KernelSubject(), hashlib.sha256()
for _ in range(400):
    sequence = generator.sequence(draw)
    subject.begin(sequence, 1_700_000_000_000)
    for step in sequence.steps:
        if isinstance(step, int):
            subject.advance(step)
            continue
        try:
            reply = subject.execute(step)
        except UnsupportedCommand as error:
            reply = error
        said.update(f"{step}{type(reply)}{reply!r}".encode())
    said.update(repr(sorted(subject.shard.freeze().items())).encode())
print(compiled.is_installed(), said.hexdigest())
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_compiled_and_interpreted_reply_the_same(place: Path, seed: int) -> None:
    program = REPLIES.replace("SEED", str(seed))
    is_compiled, digest = run(program).split()
    assert is_compiled == "True"
    assert run(program, ORDERLAB_COMPILED="0").split() == ["False", digest]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("program", "errors_max"), [("json_replies", 1500), ("call_replies", 500)])
def test_what_is_written_in_c_replies_the_same(place: Path, program: str, errors_max: int, seed: int) -> None:
    text = f"from tests.sim.redis.{program} import main; main({seed})"
    is_compiled, errors, digest = run(text).split()
    assert is_compiled == "True"
    assert 150 < int(errors) < errors_max, "the draw is neither all fine nor all broken"
    assert run(text, ORDERLAB_COMPILED="0").split() == ["False", errors, digest]


IS_NATIVE = """
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.lua.host import host_of
sandbox = host_of(Shard())._engine.sandbox
print(sandbox.function("open_json") is not None, sandbox.function("direct_call") is not None)
"""


def test_a_library_that_cannot_be_loaded_is_left_alone(place: Path, tmp_path: Path) -> None:
    assert run(IS_NATIVE) == "True True"
    assert run(IS_NATIVE, ORDERLAB_COMPILED="0") == "False False"
    copy = tmp_path / "orderlab" / "compiled" / place.name
    shutil.copytree(place, copy)
    broken, missing = (
        compiled.library_in(copy, ROOT / f"orderlab/sim/redis/lua/libraries/{name}.c") for name in ("call", "json")
    )
    broken.write_bytes(b"not machine code")
    assert run(WHERE, XDG_CACHE_HOME=str(tmp_path)).startswith(str(copy))
    assert run(IS_NATIVE, XDG_CACHE_HOME=str(tmp_path)) == "True False"
    missing.unlink()
    assert run(IS_NATIVE, XDG_CACHE_HOME=str(tmp_path)) == "False False"


def test_an_environment_keeps_what_the_cache_folder_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(no_folder))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(
        compiling.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "it was asked to")
    )
    with pytest.raises(compiling.CannotCompile, match="it was asked to"):
        compiling.build()
    assert (tmp_path / "environment" / "orderlab" / "compiled").is_dir()
    monkeypatch.setattr(sys, "prefix", str(no_folder))
    with pytest.raises(compiling.CannotCompile, match="XDG_CACHE_HOME"):
        compiling.build()


REMOVED = """
import shutil, sys
from pathlib import Path
from orderlab.sim.native import install
install.install()
shutil.rmtree(Path(sys.argv[1]))
from orderlab.sim.redis import shard  # mypyc tells the files of others that these import by the folder
print(shard.__file__.startswith("/proc/self/fd/"), shard.Shard().execute((b"EVAL", b"return cjson.encode({redis.call('ECHO', 'x')})", b"0")))
"""  # noqa: E501


@pytest.mark.skipif(
    not compiled.OPEN_FILES.is_dir(), reason="only Linux lets a process find the files that it holds open"
)
def test_a_process_goes_on_when_its_machine_code_is_removed(place: Path, tmp_path: Path) -> None:
    mine = tmp_path / "orderlab" / "compiled" / place.name
    shutil.copytree(place, mine)
    done = subprocess.run(
        [sys.executable, "-c", REMOVED, str(mine)],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == """True b'["x"]'"""
