"""The papers name what is there: paths, modules, commands and their options, in the notes, the README and the
docstrings."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from orderlab.application import command
from orderlab.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAPERS = (
    ROOT / "README.md",
    *sorted((ROOT / "notes").glob("*.md")),
    *sorted((ROOT / "orderlab" / "lua").rglob("*.md")),
)
ROOMS = (
    "benchmarks",
    "commands",
    "lua",
    "model",
    "notes",
    "orderlab",
    "properties",
    "report",
    "sim",
    "spark_sweeps",
    "tests",
)
FOLDERS = (ROOT, ROOT / "orderlab", ROOT / "orderlab" / "sim" / "redis", ROOT / "orderlab" / "sim" / "mqtt",
           ROOT / "orderlab" / "spark_sweeps", ROOT / "orderlab" / "lua")  # fmt: skip
"""What a path is written from: the root, or the room that a note is about."""
NAMED_ONLY = frozenset(
    (
        "conftest.py",
        "grid.py",
        "limiter.py",
        "lock.py",
        "mine.py",
        "model.py",
        "peterson.py",
        "store.toml",
        "mine.toml",
        "sweep.toml",
        "save.lua",
        "fetch.lua",
        "list.lua",
        "push.lua",
        "sweep.json",
        "history.json",
    )
)
"""Files of a reader, in examples."""
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(rf"^(?:(?:{'|'.join(ROOMS)}|[a-z_]+)/)[\w./*{{}},-]*$")
DOTTED = re.compile(r"(?<![\w.])(?:orderlab|benchmarks|tests\.laboratory)(?:\.(?!(?:sarif|zip|toml)\b)[A-Za-z_]\w*)+")
COMMAND = re.compile(rf"(?:^|[`\s(/])orderlab ({'|'.join(COMMANDS)})\b([^`\n|)]*)")
MODULE = re.compile(r"python -m ((?:orderlab|benchmarks|tests\.laboratory)[\w.]*)")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b(?!\.md)")
PLUGIN = re.compile(r"--orderlab-[a-z][a-z-]*")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def names_in_the_repository() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return frozenset(Path(name).name for name in listed)


def paths_in(text: str) -> Iterator[str]:
    """What stands between backticks and reads as a path of the repository, without `::test`, line or anchor."""
    for code in CODE.findall(text):
        word = code.split("::")[0].split("#")[0].strip()
        is_name = re.fullmatch(r"[\w-]+\.(?:py|lua|md|toml)", word) and word not in NAMED_ONLY
        if is_name or (PATH.match(word) and word.split("/")[0] in ROOMS and not PLACEHOLDER.search(word)):
            yield word


def alternatives(path: str) -> list[str]:
    """``a/{b,c}.py`` as the two paths that it stands for."""
    braces = re.search(r"\{([^{}]*)\}", path)
    return [path.replace(braces[0], one) for one in braces[1].split(",")] if braces else [path]


def is_there(path: str, paper: Path) -> bool:
    if "/" not in path:
        return path in names_in_the_repository()
    forms = [(one.rstrip("/"), f"{one}.py") for one in alternatives(path)]  # a module may stand without its ending
    return all(any(any(folder.glob(form)) for form in both for folder in (*FOLDERS, paper.parent)) for both in forms)


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Names at the top of a module and of its classes."""
    tree = ast.parse(file.read_text())
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    bodies += [node.body for node in tree.body if isinstance(node, ast.With | ast.If | ast.Try)]
    found: set[str] = set()
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return frozenset(found)


def is_defined(dotted: str) -> bool:
    """Whether it is a package, a module, or a name in one."""
    place = ROOT
    parts = dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place = place / parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place = place / f"{parts.pop(0)}.py"
    if not parts:
        return True
    file = place / "__init__.py" if place.is_dir() else place
    return file.is_file() and all(part in defined_in(file) for part in parts)


@cache
def options_of(name: str) -> frozenset[str]:
    found = {"--help"}
    for parameter in command(name).params:
        found.update((*parameter.opts, *parameter.secondary_opts))
    return frozenset(found)


@cache
def plugin_options() -> str:
    return "".join(file.read_text() for file in (ROOT / "orderlab" / "properties" / "plugin").glob("*.py"))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_a_paper_names_what_is_there(paper: Path) -> None:
    text = paper.read_text()
    wrong = [path for path in paths_in(text) if not is_there(path, paper)]
    wrong += [dotted for dotted in DOTTED.findall(text) if not is_defined(dotted)]
    for name, rest in COMMAND.findall(text):
        wrong += [f"orderlab {name} {option}" for option in OPTION.findall(rest) if option not in options_of(name)]
        wrong += [
            word
            for word in rest.split()
            if word.split("/")[0] in ROOMS and PATH.match(word) and not is_there(word, paper)
        ]
    wrong += [option for option in set(PLUGIN.findall(text)) if option not in plugin_options()]
    for module in MODULE.findall(text):
        file = ROOT / Path(*module.split("."))
        runs = (file / "__main__.py").is_file() or '__name__ == "__main__"' in file.with_suffix(".py").read_text()
        wrong += [] if runs else [f"python -m {module}"]
    assert sorted(set(wrong)) == []


def test_targets_of_make_that_papers_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {target for paper in PAPERS for target in re.findall(r"`make ([a-z-]+)`", paper.read_text())}
    assert named <= targets


def test_what_docstrings_and_messages_call_by_a_dotted_name_exists() -> None:
    wrong = set()
    for file in sorted((ROOT / "orderlab").rglob("*.py")):
        wrong |= {(file.name, dotted) for dotted in DOTTED.findall(file.read_text()) if not is_defined(dotted)}
    assert wrong == set()


def test_what_docstrings_call_by_a_path_exists() -> None:
    wrong = set()
    for file in sorted((ROOT / "orderlab").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./-]+\.(?:py|md|toml|lua|c))`", node.value)
                wrong |= {(file.name, path) for path in named if not is_there(path, file)}
    assert wrong == set()


def remarks_of(file: Path) -> Iterator[str]:
    """The comments and docstrings of a Python file; of Lua and C the lines of comments."""
    text = file.read_text()
    if file.suffix != ".py":
        yield from (line for line in text.splitlines() if re.match(r"\s*(?:--|/?\*|//)|.*\s(?:--|/\*) ", line))
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


@pytest.mark.parametrize("room", ["commands", "model", "properties", "report", "sim", "spark_sweeps"])
def test_files_that_comments_and_docstrings_name_exist(room: str) -> None:
    there = {name.rsplit("/", 1)[-1] for name in names_in_the_repository()}
    wrong = {
        (file.name, named)
        for file in sorted((ROOT / "orderlab" / room).rglob("*"))
        if file.suffix in (".py", ".lua", ".c")
        for remark in remarks_of(file)
        for named in re.findall(r"(?<![\w./-])(?:[a-z_0-9]+/)*([a-z_0-9]+\.py)\b(?!:[A-Za-z])", remark)
        if named not in there
    }
    assert wrong == set()


def test_the_checks_of_papers_see_what_is_missing() -> None:
    note = ROOT / "notes" / "none.md"
    assert [
        path
        for path in paths_in("`sim/nowhere.py`, `sim/redis/shard.py`, `found.json`, `nowhere.md`")
        if not is_there(path, note)
    ] == [
        "sim/nowhere.py",
        "nowhere.md",
    ]
    assert not is_defined("orderlab.sim.nowhere")
    assert not is_defined("orderlab.sim.redis.shard.Nothing")
    assert is_defined("orderlab.sim.redis.shard.Shard")
    assert "--nothing" not in options_of("validate")


WORDS_MAX = 2_500
"""Of a page: what is measured or generated, and what another reader looks for, has a page of its own."""
LONGER_PAGES = {"status.md": 3_600}
"""Words that these may have still. The list may only shrink."""
_WRITTEN = re.compile(r"<!-- the table below is written by: .*?<!-- end of the table -->", re.DOTALL)


def words_in(text: str) -> int:
    """Words that somebody wrote, as `wc -w` counts: what a command writes between its marks is looked up, not read."""
    return len(_WRITTEN.sub("", text).split())


@pytest.mark.parametrize("page", sorted((ROOT / "notes").glob("*.md")), ids=lambda path: path.name)
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    found = words_in(page.read_text())
    assert found <= LONGER_PAGES.get(page.name, WORDS_MAX), f"{page.name} has {found} words; give a part its own page"


def test_pages_that_are_longer_are_needed_on_their_list() -> None:
    """Known bad: each would fail without its entry."""
    for name, most in LONGER_PAGES.items():
        assert WORDS_MAX < words_in((ROOT / "notes" / name).read_text()) <= most


def test_words_are_counted_outside_of_what_a_command_writes() -> None:
    marks = "<!-- the table below is written by: make compare -->\n| a | b |\n<!-- end of the table -->\n"
    assert words_in(f"Two words.\n{marks}and – three more\n") == 6
