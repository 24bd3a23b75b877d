"""Makes the machine code that ``compiled`` loads: ``python -m orderlab.sim.native.build``. Takes mypyc and a C
compiler.

mypyc (of mypy) translates typed Python as it stands. Modules are chosen by profile: what one call of a script passes
through. What Lua is slow at and Python cannot do from within Lua is written in C.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from orderlab.sim.native.install import ROOT, SUFFIX, folders, library_in, modules_in, shipped, sources

MODULES = (
    *(f"orderlab.sim.redis.values.{name}" for name in ("hash", "hash_order", "list", "set", "sorted_set")),
    *(
        f"orderlab.sim.redis.commands.{name}"
        for name in (
            "connection",
            "expiry",
            "hashes",
            "keys",
            "lists",
            "scripting",
            "sets",
            "sorted_set_ranges",
            "sorted_sets",
            "strings",
        )
    ),
    *(
        f"orderlab.sim.redis.{name}"
        for name in (
            "arguments",
            "client",
            "config",
            "execution",
            "keyspace",
            "lua.engine",
            "lua.host",
            "lua.json",
            "lua.msgpack",
            "lua.number_text",
            "lua.outcome",
            "lua.replies",
            "lua.script_run",
            "node_state",
            "numbers",
            "registry",
            "shard",
            "short_calls",
            "work",
        )
    ),
)
"""What is compiled; every other module is imported by these as it is."""
MYPY_SETTINGS = """[mypy]
ignore_missing_imports = True
follow_imports = silent
explicit_package_bases = True
namespace_packages = True
"""


class CannotCompile(Exception):
    """Why there will be no machine code, with the cure."""


def build() -> Path:
    """Make the machine code unless it is there; the folder that holds it. Raises CannotCompile."""
    places = folders()
    if not places:
        raise CannotCompile("the modules lie in an archive; compile them where they lie in a folder")
    if modules_in(shipped()):
        return shipped()
    for made_before in places:
        if made_before.exists():
            return made_before
    _check_tools()
    place = next(filter(_is_writable, places), None)
    if place is None:
        raise CannotCompile(f"{places[0].parent} cannot be written; set XDG_CACHE_HOME to a folder that can")
    with tempfile.TemporaryDirectory(dir=place.parent) as made:
        work, result = Path(made, "work"), Path(made, "result")
        for path in sources(ROOT):
            copy = work / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (work / "mypy.ini").write_text(MYPY_SETTINGS)
        files = [name.replace(".", "/") + ".py" for name in MODULES]
        environment = {
            "MYPYC_DEBUG_LEVEL": "0",
            "MYPYC_MULTI_FILE": "0",
            **os.environ,
            "CFLAGS": "-w -fno-semantic-interposition",
        }
        run = subprocess.run(
            [sys.executable, "-m", "mypyc", *files],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        shutil.rmtree(work / "build", ignore_errors=True)
        compiled = list(work.rglob(f"*{SUFFIX}"))
        if run.returncode or len(compiled) <= len(MODULES):
            said = (run.stdout + run.stderr).strip().splitlines() or [f"it ended with {run.returncode}"]
            raise CannotCompile(f"mypyc: {said[-1]}")
        for text in filter(lambda path: path.suffix == ".c", sources(ROOT)):
            _compile_library(text, library_in(result, text))
        for path in compiled:
            target = result / path.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        try:
            result.replace(place)
        except OSError:
            if not place.exists():  # else another process was faster
                raise
    return place


def _compile_library(text: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    include = "-I" + sysconfig.get_path("include")
    # Python's functions: ELF asks for no word.
    later = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command = [
        _compiler(),
        "-O2",
        "-Wall",
        "-fPIC",
        "-shared",
        *later,
        include,
        "-o",
        str(target),
        str(text),
        "-lm",
        "-ldl",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise CannotCompile(f"{text.name}: {(run.stderr.strip().splitlines() or ['the C compiler failed'])[0]}")


def _compiler() -> str:
    named = os.environ.get("CC", "gcc")
    return named if shutil.which(named) else "cc"


def _is_writable(place: Path) -> bool:
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(place.parent, os.W_OK)


def _check_tools() -> None:
    try:
        import mypyc  # noqa: F401
    except ImportError:
        raise CannotCompile("mypyc is missing; pip install mypy") from None
    if shutil.which(_compiler()) is None:
        raise CannotCompile("there is no C compiler; apt-get install gcc")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise CannotCompile("Python.h is missing; apt-get install python3-dev")


def main() -> None:
    """Compile, and say in one line what came of it. Without machine code everything works, more slowly."""
    begun = time.monotonic()
    try:
        place = build()
    except (CannotCompile, OSError) as reason:
        print(f"compiling: not done, so the kernel runs interpreted, at about two thirds of the speed: {reason}")
        return
    print(f"compiling: {len(MODULES)} modules in {time.monotonic() - begun:.0f} s, kept in {place.name}")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "compiling")
