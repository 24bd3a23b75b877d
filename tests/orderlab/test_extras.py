"""The core does without what extras bring: validate, replay, mutate, the plugin run; other commands say what to
install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from orderlab import extras
from orderlab.cli import COMMANDS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("extras")  # what they look at is made once
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

BARE = """
import contextlib, io, json, os, sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Missing())
from orderlab.cli import application
from orderlab.exit_codes import ended_by

told = []
for arguments in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if arguments[0] == "pytest":
                import pytest
                code = int(pytest.main(arguments[1:]))
            else:
                code = int(application()(arguments, standalone_mode=False) or 0)
        except BaseException as error:
            code = ended_by(error, "orderlab")
    if arguments[0] == "validate" and "--json" in arguments:
        with open("found.json", "w") as file:
            file.write(out.getvalue())
    told.append((code, out.getvalue()[-2000:], err.getvalue()[-2000:]))
print(json.dumps(told))
"""


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def closure(names: list[str]) -> set[str]:
    """Distributions that an installation of these brings."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            with suppress(PackageNotFoundError):  # for another Python or system
                waiting += [name_of(one) for one in requires(name) or () if "extra ==" not in one]
    return found


def beyond_the_core() -> list[str]:
    """Modules of packages that `pip install orderlab pytest` does not bring."""
    brought = closure([*map(name_of, PROJECT["dependencies"]), "pytest"]) | {"orderlab"}
    return sorted(
        module for module, owners in packages_distributions().items() if not {name_of(one) for one in owners} & brought
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Commands of an installation without extras: exit code, standard output, standard error of each."""
    folder = tmp_path_factory.mktemp("bare")
    lua = ROOT / "orderlab/lua"
    limiter = str(lua / "limiter")
    (folder / "h.jsonl").write_text("{}\n")
    wanted = {
        "help": ["--help"],
        **{f"{name} --help": [name, "--help"] for name in COMMANDS},
        "validate": ["validate", str(lua / "lock"), "--trust-adapter", "--effort", "0.2"],
        "session": ["validate", str(lua / "pending"), "--law", "one-slot", "--effort", "0.05"],
        "flawed": [
            "validate",
            str(lua / "specimens/limiter-client-clock"),
            "--trust-adapter",
            "--effort",
            "0.2",
            "--json",
        ],
        "replay": ["replay", "found.json", "--trust-adapter"],
        "mutate": ["mutate", limiter, "--trust-adapter", "--limit", "1", "--budget", "30"],
        "plugin": [
            "pytest",
            "-q",
            "-p",
            "orderlab.properties.plugin",
            "--orderlab-store",
            f"{limiter}/store.toml",
            "--orderlab-trust-adapter",
            "--orderlab-law",
            "at-most-n",
            "--orderlab-profile",
            "dev",
        ],
        "explore": ["explore", "increment"],
        "template": ["explore", "--template"],
        "check": ["check", "h.jsonl"],
        "simulate": ["simulate", "tbmq-p2p"],
        "sweep": ["sweep", str(ROOT / "orderlab/spark_sweeps/examples/lettuce_batching.toml"), "--dry-run"],
    }
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(beyond_the_core()), json.dumps(list(wanted.values()))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "HOME": str(folder),
        },
    )
    return dict(zip(wanted, json.loads(done.stdout), strict=True))


def test_what_is_out_of_reach_is_all_that_extras_bring() -> None:
    blocked = set(beyond_the_core())
    assert {module for modules in extras.EXTRAS.values() for module in modules} <= blocked
    assert not blocked & {
        "lupa",
        "hypothesis",
        "numpy",
        "pydantic",
        "typer",
        "rich",
        "fakeredis",
        "tree_sitter",
        "pytest",
    }


def test_the_table_is_that_of_the_project() -> None:
    offered = PROJECT["optional-dependencies"]
    for extra, modules in extras.EXTRAS.items():
        packages = {name_of(one).replace("-", "_") for one in offered[extra] if name_of(one) != "orderlab"}
        named = {"paho": "paho_mqtt", "z3": "z3_solver"}
        assert packages == {named.get(module, module.lower()) for module in modules}
    assert set(extras.EXTRAS) | {"all", "dev", "docs", "java"} == set(offered)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("help", 0),
        ("validate", 0),
        ("session", 0),
        ("flawed", 1),
        ("replay", 1),
        ("mutate", 0),
        ("plugin", 0),
        ("template", 0),
        *((f"{command} --help", 0) for command in COMMANDS),
    ],
)
def test_the_core_does_without_extras(bare: dict[str, tuple[int, str, str]], name: str, code: int) -> None:
    assert bare[name][0] == code, bare[name]


@pytest.mark.parametrize(
    ("command", "extra"), [("explore", "check"), ("check", "check"), ("simulate", "sim"), ("sweep", "spark")]
)
def test_a_command_says_what_to_install(bare: dict[str, tuple[int, str, str]], command: str, extra: str) -> None:
    code, _, error = bare[command]
    assert code == 2
    assert re.fullmatch(
        rf"orderlab: {command} needs \w+, which is not installed: pip install 'orderlab\[{extra}\]'\n", error
    )


def test_what_no_extra_brings_is_no_matter_of_extras() -> None:
    assert extras.told("explore", ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    with (
        pytest.raises(ImportError, match=r"orderlab\.history needs pyarrow, .*\[check\]"),
        extras.told_of("orderlab.history"),
    ):
        raise ModuleNotFoundError("No module named 'pyarrow.lib'", name="pyarrow.lib")
    with pytest.raises(ModuleNotFoundError, match="mine"), extras.told_of("orderlab.history"):
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
