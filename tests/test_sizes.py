"""How large and how mixed the tree may get: lengths of files and functions, and names that stand for two things.

Each list names what was there when the guard was set up. A list may only shrink: what is not on it may not be added,
and what has got smaller is taken off (`test_the_lists_are_tight`).
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "orderlab"
LINES_OF_A_FILE = 600
LINES_OF_A_FUNCTION = 70
SHARED_CLASS_NAMES = 36
"""Names of classes that two rooms have each for itself. May only shrink."""
SHARED_BASE_NAMES = 76
"""Files, of all but `__init__.py`, whose base name another file of the same room has too. May only shrink."""
RIDDLES = frozenset(
    (
        "Nothing.", "The same.", "Nobody.", "As it says.", "Both.", "Neither.", "One of them.", "One of these.",
        "The next one.", "The next ones.", "These gone.", "Try these.", "After it.", "One ends.",
    )
)  # fmt: skip
"""Docstrings that say nothing to a reader who does not know the answer."""

NUMBER_OF_TWO_BYTES = {65_535, 65_536}
NAMED_IN = frozenset(
    {"model/protocol/packet_id.py", "sim/redis/lua/json.py", "sim/redis/memory.py", "sim/streams/shard.py"}
)
"""Where the largest number of two bytes may stand as a number: by its name for MQTT, and in layouts that are others':
of UTF-16, of Redis's strings, of the ordered store's keys."""
ABOVE_THE_CONTRACTS = ("properties/", "spark_sweeps/", "commands/", "report/")
WORDS = {"feed": 17, "job": 6, "packet_id": 10, "session": 53}
"""Words of one contract, which the rooms above the contracts are to be generic in: how many identifiers there say them
yet. May only shrink."""
PLACEHOLDERS = {"one": 1002, "told": 280, "found": 616}
"""Names of locals and parameters where the field has a noun: how often each is bound. May only shrink."""
REACHED_INTO = 54
"""Places that read a private attribute of an object other than their own. May only shrink."""
NOT_PRIVATE = frozenset({"_replace", "_fields", "_asdict", "_make", "_field_defaults", "_name_", "_exit"})
"""What tuples, enumerations and `os` of the library call so, though it is public."""

ASSEMBLY = ("sim/mqtt/broker/broker.py", "sim/mqtt/application/broker.py")
"""Where the stages of a broker are put together."""

LONG_FILES: frozenset[str] = frozenset()
LONG_FUNCTIONS = frozenset(
    {
        "model/checkers/delivery/event_pass.py:observe_rows",
    }
)


@functools.cache
def trees() -> Mapping[str, tuple[int, ast.Module]]:
    """File below the package -> its number of lines and its syntax, without the contracts beside their Lua."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("lua/"):
            text = path.read_text()
            found[name] = (len(text.splitlines()), ast.parse(text))
    return found


@functools.cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, gathered once for all that is asked of it."""
    return tuple(ast.walk(tree))


def long_functions(name: str, tree: ast.Module) -> Iterator[str]:
    """Names of functions with more lines than one may have, decorators left out."""
    for node in nodes(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= LINES_OF_A_FUNCTION
        ):
            yield f"{name}:{node.name}"


def room_of(name: str) -> str:
    """The room in which a file lies; files at the top of the package share one."""
    return name.split("/")[0] if "/" in name else ""


def shared_class_names() -> set[str]:
    rooms = defaultdict(set)
    for name, (_, tree) in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                rooms[node.name].add(room_of(name))
    return {name for name, where in rooms.items() if len(where) > 1}


def shared_base_names() -> set[str]:
    """Files whose base name another file of the same room's subtree has."""
    files = defaultdict(list)
    for name in trees():
        if not name.endswith("__init__.py"):
            files[room_of(name), name.rsplit("/", 1)[-1]].append(name)
    return {name for names in files.values() if len(names) > 1 for name in names}


def backends_asked_for(tree: ast.Module) -> Iterator[int]:
    """Lines on which `isinstance` asks for a class that is named as a backend or a store."""
    for node in nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            leaves = [leaf for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name | ast.Attribute)]
            asked = [ast.unparse(leaf) for leaf in leaves]
            if any(name.endswith(("Backend", "Store")) and name != "ast.Store" for name in asked):
                yield node.lineno


def test_no_file_grows_too_long() -> None:
    long = {name for name, (lines, _) in trees().items() if lines > LINES_OF_A_FILE}
    assert long <= LONG_FILES, f"split by ideas: {sorted(long - LONG_FILES)}"


def test_no_function_grows_too_long() -> None:
    long = {function for name, (_, tree) in trees().items() for function in long_functions(name, tree)}
    assert long <= LONG_FUNCTIONS, f"more than {LINES_OF_A_FUNCTION} lines: {sorted(long - LONG_FUNCTIONS)}"


def test_two_rooms_share_no_more_names_of_classes() -> None:
    assert len(shared_class_names()) <= SHARED_CLASS_NAMES, sorted(shared_class_names())


def test_a_room_repeats_no_more_base_names() -> None:
    assert len(shared_base_names()) <= SHARED_BASE_NAMES, sorted(shared_base_names())


def test_nobody_else_asks_which_backend_it_has() -> None:
    places = [f"{name}:{line}" for name, (_, tree) in trees().items() for line in backends_asked_for(tree)]
    assert not places, f"type what is needed, and ask the object: {places}"


def words_said(tree: ast.Module) -> Iterator[str]:
    """Words of ``WORDS`` in names that a file defines or uses, not in texts nor in modules that it imports."""
    for node in nodes(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
        for word in WORDS if isinstance(name, str) else ():
            if re.search(rf"(?:^|_){word}s?(?:_|$)", name.lower()):
                yield word


def bound_names(tree: ast.Module) -> Iterator[str]:
    """The locals and parameters of a file, as often as they are bound."""
    for node in nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def reached_into(tree: ast.Module) -> Iterator[int]:
    """Lines that read a private attribute of something else than ``self`` or ``cls``."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in NOT_PRIVATE:
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            is_own |= (
                isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and (node.value.func.id == "super")
            )
            if not is_own:
                yield node.lineno


def test_rooms_above_the_contracts_say_no_more_words_of_one() -> None:
    said = Counter(
        word
        for name, (_, tree) in trees().items()
        if name.startswith(ABOVE_THE_CONTRACTS) and not name.startswith("properties/contracts/")
        for word in words_said(tree)
    )
    assert all(said[word] <= most for word, most in WORDS.items()), said


def test_locals_are_nouns_of_the_field() -> None:
    bound = Counter(name for _, tree in trees().values() for name in bound_names(tree))
    assert all(bound[name] <= most for name, most in PLACEHOLDERS.items()), {name: bound[name] for name in PLACEHOLDERS}


def test_nobody_reaches_into_another_object() -> None:
    places = [f"{name}:{line}" for name, (_, tree) in trees().items() for line in reached_into(tree)]
    assert len(places) <= REACHED_INTO, places


def test_stages_of_a_broker_have_no_world() -> None:
    """They take the parts that they use; assembly, faults and reports have all of them."""
    places = [
        f"{name}:{node.lineno}"
        for name, (_, tree) in trees().items()
        if name.startswith("sim/mqtt/") and name not in ASSEMBLY
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr == "world"
    ]
    assert not places, f"take the part by its name: {places}"


def test_the_largest_number_of_two_bytes_has_one_name() -> None:
    places = [
        f"{name}:{node.lineno}"
        for name, (_, tree) in trees().items()
        if name not in NAMED_IN
        for node in nodes(tree)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in NUMBER_OF_TWO_BYTES
    ]
    assert not places, "write MODULUS or TWO_BYTES_MAX of orderlab.model.protocol.packet_id"


def test_no_docstring_is_a_riddle() -> None:
    riddles = [
        f"{name}:{node.lineno}"
        for name, (_, tree) in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) in RIDDLES
    ]
    assert not riddles, riddles


def test_the_lists_are_tight() -> None:
    """What has got smaller comes off its list, so that it cannot grow again."""
    long = {name for name, (lines, _) in trees().items() if lines > LINES_OF_A_FILE}
    functions = {function for name, (_, tree) in trees().items() for function in long_functions(name, tree)}
    assert long >= LONG_FILES, f"take off LONG_FILES: {sorted(LONG_FILES - long)}"
    assert functions >= LONG_FUNCTIONS, f"take off LONG_FUNCTIONS: {sorted(LONG_FUNCTIONS - functions)}"


@pytest.mark.parametrize(
    ("text", "functions", "asked"),
    [
        ("def f():\n" + "    pass\n" * 69, [], 0),
        ("def f():\n" + "    pass\n" * 70, ["x.py:f"], 0),
        ("isinstance(a, KernelBackend) or isinstance(a, (int, stores.BoundStore)) or isinstance(a, int)", [], 2),
        ("isinstance(a, Store) or isinstance(a, ast.Store)", [], 1),
    ],
)
def test_what_is_too_large_is_seen(text: str, functions: list[str], asked: int) -> None:
    tree = ast.parse(text)
    assert list(long_functions("x.py", tree)) == functions
    assert len(list(backends_asked_for(tree))) == asked
