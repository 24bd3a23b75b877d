"""The rooms and what each may import: `notes/ARCHITECTURE.md` as a test. Type imports count; the lists of exceptions
may only shrink."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parents[1] / "orderlab"
ROOMS = ("model", "sim", "properties", "spark_sweeps")
ALLOWED: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "sim": (
        "sim",
        "model.errors",
        "model.files",
        "model.history",
        "model.protocol.packet_id",
        "model.contracts.client_steps",
        "model.contracts.session.capabilities",
    ),
    "properties": ("properties", "sim", "model"),
    # the notation of the setting `faults`, in which a question about random ones writes what it draws
    "spark_sweeps": ("spark_sweeps", "model", "sim.systems", "sim.engine", "sim.faults", "sim.fault_schedule"),
}
"""What a room may import, as prefixes of modules. The command line and the public modules (`orderlab/*.py`) may import
all. Of `model.protocol` sim may know how packet identifiers count: arithmetic that brokers do and specifications state,
and that judges nothing."""
SCRIPTS = ("spark_sweeps.main",)
"""Run by their path, as the command line is by its name, and imported by nobody: they belong to it wherever they
lie."""
BELOW = ("exit_codes", "child", "code_of_user", "platform")
"""How processes end, what code of a user does to them, and what the system has: below every room, as each has modules
that are run by name, or children."""
EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
CIRCLES: dict[str, int] = {}
"""Modules that import each other in a circle, by room and number; none elsewhere. May only shrink."""


OF_SESSIONS = (
    "properties.contracts.session",
    "properties.strategies.histories",
    "properties.machines.handshake",
)
"""Modules of `properties` that are about MQTT itself. All others are generic in the kind of store and say none of its
words."""
SESSION_WORDS = re.compile(
    r"packet[ _-]?id|epoch|pubrel|in[ _-]?flight|clean[ _-]?start|\bqos\b|modulus", re.IGNORECASE
)
KINDS_OF_STORES = (
    "model.contracts.session",
    "model.contracts.sequential",
    "properties.contracts.session",
    "properties.contracts.sequential",
    "properties.engine",
)
"""What nobody imports but each kind itself and the table of the kinds; the public modules (`orderlab/*.py`) are facades
over them."""
KNOW_SESSIONS: frozenset[str] = frozenset()
"""Exceptions. May only shrink."""


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Module name below the package -> its file."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    """Each file is read by several tests."""
    return ast.parse(text)


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports anywhere, under TYPE_CHECKING and in functions too."""
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "orderlab":
            below = (node.module or "").removeprefix("orderlab").removeprefix(".")
            for alias in node.names:
                full = f"{below}.{alias.name}".removeprefix(".")
                yield full if full in known else below
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("orderlab."):
                    yield alias.name.removeprefix("orderlab.")


def offences(known: dict[str, Path]) -> set[tuple[str, str]]:
    """Imports that the rooms do not allow."""
    found = set()
    for name, path in known.items():
        if name.split(".")[0] not in ALLOWED or name in SCRIPTS:
            continue
        allowed = (*ALLOWED[name.split(".")[0]], *BELOW)
        for target in imports(path, known):
            if not any(target == prefix or target.startswith(prefix + ".") for prefix in allowed):
                found.add((name, target))
    return found


def test_no_room_imports_what_it_must_not_know() -> None:
    found = offences(modules())
    assert found - EXCEPTIONS == set(), "import from a room above, or move the module"
    assert EXCEPTIONS - found == set(), "no longer needed: take these out of EXCEPTIONS"


def test_nobody_imports_a_script() -> None:
    known = modules()
    assert {name for name in SCRIPTS if name in known} == set(SCRIPTS)
    assert not [name for name, path in known.items() for target in imports(path, known) if target in SCRIPTS]


def test_the_product_imports_neither_its_laboratory_nor_its_tests() -> None:
    found = [
        name
        for name, path in modules().items()
        if re.search(r"^\s*(?:from|import) (?:tests|benchmarks)\b", path.read_text(), re.MULTILINE)
    ]
    assert not found


def test_an_import_from_below_is_seen(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "clock.py").write_text("")
    (tmp_path / "model" / "laws.py").write_text("def f():\n    from orderlab.sim.clock import now\n")
    assert offences(modules(tmp_path)) == {("model.laws", "sim.clock")}


def circles() -> dict[str, int]:
    """Room -> modules in its largest circle of imports."""
    known = modules()
    graph = nx.DiGraph((name, target) for name, path in known.items() for target in imports(path, known))
    found: dict[str, int] = {}
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1:
            room = ".".join(sorted(members)[0].split(".")[:2])
            found[room] = max(found.get(room, 0), len(members))
    return found


def test_circles_only_shrink() -> None:
    for room, size in circles().items():
        assert size <= CIRCLES.get(room, 0), f"a circle of {size} modules in {room}: move what both need below both"


@pytest.mark.parametrize("name", [*ROOMS, "lua"])
def test_the_paths_of_the_design_are_links(name: str) -> None:
    link = PACKAGE.parent / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"orderlab/{name}"


def is_generic(name: str) -> bool:
    """Whether a module is above the kinds of stores."""
    return name.startswith("properties.") and not any(name == one or name.startswith(one + ".") for one in OF_SESSIONS)


def words_of(tree: ast.Module) -> Iterator[str]:
    """Identifiers and texts of a module; of docstrings and comments there are none."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    papers = {id(one.value) for body in bodies for one in body if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=word)
                | ast.Attribute(attr=word)
                | ast.arg(arg=word)
                | ast.FunctionDef(name=word)
                | ast.ClassDef(name=word)
            ):
                yield word
            case ast.keyword(arg=str(word)):
                yield word
            case ast.Constant(value=str(word)) if id(node) not in papers:
                yield word


def told_of_sessions(known: dict[str, Path]) -> dict[str, set[str]]:
    """Generic module -> what it says in words of sessions."""
    said = {
        name: {word for word in words_of(parsed(path.read_text())) if SESSION_WORDS.search(word)}
        for name, path in known.items()
        if is_generic(name)
    }
    return {name: words for name, words in said.items() if words}


def knowing_kinds(known: dict[str, Path]) -> set[str]:
    """Modules above the kinds of stores that import one."""

    def is_of_kind(name: str) -> bool:
        return any(name == one or name.startswith(one + ".") for one in KINDS_OF_STORES)

    above = {name for name in known if is_generic(name) or name.split(".")[0] in ("commands", "report")}
    return {name for name in above if not is_of_kind(name) and any(map(is_of_kind, imports(known[name], known)))}


def test_what_is_above_the_kinds_of_stores_says_no_word_of_sessions() -> None:
    assert told_of_sessions(modules()).keys() - KNOW_SESSIONS == set(), "say it in the kind's folder, or by its Terms"


def test_nobody_but_a_kind_imports_it() -> None:
    found = knowing_kinds(modules())
    assert found - KNOW_SESSIONS == set(), "ask properties/contracts/kind.py for the kind of the store"
    assert KNOW_SESSIONS - found == set(), "no longer needed: take these out of KNOW_SESSIONS"


def test_nobody_but_the_table_of_kinds_asks_what_a_store_calls_its_specification() -> None:
    for name, path in modules().items():
        if (
            not (is_generic(name) or name.split(".")[0] in ("commands", "report"))
            or name == "properties.contracts.kind"
        ):
            continue
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.Compare):
                asked = [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
                texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                assert "specification" not in asked, (
                    f"{name}: line {node.lineno} asks for the specification's name; ask the kind"
                )
                assert not {"session", "pending"} & set(map(str, texts)), (
                    f"{name}: line {node.lineno} knows a specification's name; ask the kind"
                )


def test_a_word_of_sessions_is_seen(tmp_path: Path) -> None:
    (tmp_path / "properties").mkdir()
    file = tmp_path / "properties" / "story.py"
    file.write_text(
        '"""Of packet identifiers."""\ndef told(step):\n    """PUBREL."""\n    return f"as {step.packet_id}", '
        '"in-flight"\n'
    )
    assert told_of_sessions(modules(tmp_path)) == {"properties.story": {"packet_id", "in-flight"}}
    file.write_text("def told(step):\n    return step.name\n")
    assert told_of_sessions(modules(tmp_path)) == {}
