"""The wheel, installed beside a project that has a ``model.py``, a ``sim/``, ``properties/`` and ``lua/`` of its
own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history

ROOT = Path(__file__).parents[2]
ROOMS = ("sim", "properties", "lua", "spark_sweeps", "benchmarks", "tests", "commands", "report")
NOT_MINE = 'raise RuntimeError("a module of the user\'s own, which orderlab has no reason to import")\n'
OTHER_PYTHONS = [found for version in (11, 12, 13) if (found := shutil.which(f"python3.{version}"))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, unpacked as pip does, and the packages of this one; nothing in
    it can be written.

    A file stands where a folder would have to be made, which stops root as well.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    borrowed = [path for path in sys.path if path.endswith("-packages")]
    (place / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    scripts = ConfigParser()
    scripts.read_string(next(place.glob("orderlab-*.dist-info/entry_points.txt")).read_text())
    module, function = scripts["console_scripts"]["orderlab"].split(":")
    found = folder / "bin/python"
    script = folder / "bin/orderlab"
    script.write_text(f"#!{found}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
    for inner in [path for path in (place / "orderlab").rglob("*") if path.is_dir()]:
        (inner / "__pycache__").write_text("")
    (place / "orderlab/__pycache__").write_text("")
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with modules that are called as the rooms are."""
    (tmp_path / "model.py").write_text("ANSWER = 42\n")
    (tmp_path / "test_mine.py").write_text("import model\n\n\ndef test_mine():\n    assert model.ANSWER == 42\n")
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(NOT_MINE)
    shutil.copytree(ROOT / "orderlab/lua/limiter", tmp_path / "store", ignore=shutil.ignore_patterns("__pycache__"))
    write_history(parse_history("S + P1 A1 P2 A2 D1#1 D2#2 K#1 K#2"), tmp_path / "history.jsonl")
    return tmp_path


def run(python: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command as a user without a home that can be written to, in a project that is on the path."""
    nowhere = project / "nowhere"
    nowhere.write_text("")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "XDG", "ORDERLAB"))
    }
    environment = {
        **kept,
        "HOME": str(nowhere),
        "XDG_CACHE_HOME": str(nowhere),
        "MPLCONFIGDIR": str(nowhere),
        "PYTHONPATH": str(project),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{python.parent}:{kept.get('PATH', '')}",
    }
    return subprocess.run(arguments, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_rooms_and_the_stores_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"orderlab", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert {"orderlab/lua/session/store.toml", "orderlab/lua/session/save.lua", "orderlab/lua/lock/lease.py"} <= set(
        names
    )
    tracked = subprocess.run(["git", "ls-files", "orderlab"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(tracked.stdout.split()) <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc", ".c.o"))]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("simulate", "--list"),
        ("check", "history.jsonl", "--law", "packet-id"),
        ("explore", "increment", "--engine", "compiled"),
        ("validate", "store", "--trust-adapter", "--law", "at-most-n", "--effort", "quick"),
    ],
    ids=" ".join,
)
def test_the_command_line_runs_beside_modules_of_the_same_names(
    python: Path, project: Path, arguments: tuple[str, ...]
) -> None:
    done = run(python, project, "orderlab", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]


def test_the_plugin_and_what_users_import_run_there_too(python: Path, project: Path) -> None:
    options = ("--orderlab-store", "store/store.toml", "--orderlab-trust-adapter", "--orderlab-law", "at-most-n")
    done = run(
        python,
        project,
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "--orderlab-profile",
        "dev",
        *options,
        "test_mine.py",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    program = """
import json, model, orderlab.contract, orderlab.specification, orderlab.adapter
from importlib.metadata import entry_points, files
print(json.dumps([orderlab.contract.__file__, model.ANSWER, [one.value for one in entry_points(group="pytest11", name="orderlab")]]))
"""  # noqa: E501
    place, answer, plugins = json.loads(run(python, project, str(python), "-c", program).stdout)
    assert place.startswith(str(python.parents[1]))
    assert (answer, plugins) == (42, ["orderlab.properties.plugin"])


@pytest.mark.exhaustive
def test_a_wheel_with_machine_code_takes_it_wherever_it_is_unpacked(tmp_path: Path) -> None:
    environment = {**os.environ, "ORDERLAB_WHEEL": "compiled"}
    arguments = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(arguments, cwd=ROOT, env=environment, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert built.name.split("-")[2:4] == [version, version]
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "site")
    where = "import orderlab.sim.redis.backends, orderlab.sim.redis.keyspace as keyspace; print(keyspace.__file__)"
    outside = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path / "none")}
    arguments = [sys.executable, "-c", where]
    done = subprocess.run(arguments, cwd=tmp_path, env=outside, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "site/orderlab/sim/native/shipped")
    changed = tmp_path / "site/orderlab/sim/redis/replies.py"
    changed.write_text(changed.read_text() + "\n")
    done = subprocess.run(arguments, cwd=tmp_path, env=outside, check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("redis/keyspace.py")


@pytest.mark.exhaustive
@pytest.mark.parametrize("interpreter", OTHER_PYTHONS, ids=lambda path: Path(path).name)
def test_pip_installs_the_core_and_all_with_what_they_need(
    wheel: Path, project: Path, tmp_path_factory: pytest.TempPathFactory, interpreter: str
) -> None:
    """With resolution of every dependency, for each Python that is here: takes minutes and a package index."""
    folder = tmp_path_factory.mktemp("real")
    if subprocess.run([interpreter, "-m", "venv", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip(f"{interpreter} makes no environments")
    found = folder / "bin/python"

    def install(*what: str) -> None:
        subprocess.run([found, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what], check=True)

    install(str(wheel), "pytest")
    done = run(found, project, "orderlab", "validate", "store", "--trust-adapter", "--effort", "quick")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    done = run(found, project, "orderlab", "simulate", "tbmq-p2p")
    assert done.returncode == 2
    assert "orderlab[sim]" in done.stderr
    options = ("--orderlab-store", "store/store.toml", "--orderlab-trust-adapter", "--orderlab-profile", "dev")
    assert run(found, project, str(found), "-m", "pytest", "-q", *options).returncode == 0
    install(f"{wheel}[all]")
    for arguments in (
        ("explore", "increment", "--engine", "compiled"),
        ("check", "history.jsonl", "--law", "fifo"),
        ("simulate", "tbmq-p2p", "--set", "duration_s=0.05"),
    ):
        assert run(found, project, "orderlab", *arguments).returncode in (0, 3), arguments
