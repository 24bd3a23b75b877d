"""The syntax tree of a method that is running, and nothing else: refused where the text is not what Python runs.

`inspect` reads the file as it is now and looks through decorators. So the text is compiled again and compared with the
code of the method: a file that was edited after its import, or a decorator that changes the meaning, is found out.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any


class NotCompilable(Exception):
    """The text uses something that the compiled engine does not know. The message says what and where."""


@dataclass(frozen=True)
class ProgramText:
    parameters: tuple[str, ...]
    body: list[ast.stmt]
    names: Mapping[str, Any]
    """What globals and closure bind."""
    assigned: frozenset[str]
    """Every name that is local to the function: parameters, and what it assigns anywhere."""


def program_text(method: Callable[..., Any]) -> ProgramText:
    where = getattr(method, "__qualname__", repr(method))
    if not inspect.isfunction(method) or hasattr(method, "__wrapped__"):
        raise NotCompilable(f"{where}: not a plain function")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        raise NotCompilable(f"{where}: its text is not at hand") from None
    if not isinstance(tree, ast.FunctionDef):
        raise NotCompilable(f"{where}: not a plain function")
    given = tree.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
        raise NotCompilable(f"{where}: parameters other than plain ones")
    if not _same_code(_compiled_again(tree, method.__code__.co_freevars), method.__code__):
        raise NotCompilable(f"{where}: its text in the file is not what runs")
    cells = zip(method.__code__.co_freevars, method.__closure__ or (), strict=True)
    try:
        names = {**method.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    except ValueError:
        raise NotCompilable(f"{where}: a variable of its closure is not bound") from None
    parameters = tuple(argument.arg for argument in given.args)
    return ProgramText(parameters, tree.body, names, frozenset(parameters) | set(_stored(tree.body)))


def _stored(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements assign; a comprehension's variable lives inside it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.comprehension):
            waiting += [node.iter, *node.ifs]
        elif not isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _compiled_again(tree: ast.FunctionDef, free: tuple[str, ...]) -> CodeType | None:
    """The code of the function alone, inside one that binds its free variables."""
    bare = ast.FunctionDef(tree.name, tree.args, tree.body, [], None)
    binding: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in free]
    no_arguments = ast.arguments([], [], None, [], [], None, [])
    outer = ast.FunctionDef("outer", no_arguments, [*binding, bare], [], None)
    for node in (bare, outer):
        node.type_params = []  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    code = compile(module, "<again>", "exec", dont_inherit=True)
    for name in ("outer", tree.name):
        inner = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if not inner:
            return None
        code = inner[0]
    return code


def _same_code(one: CodeType | None, other: CodeType) -> bool:
    if one is None or one.co_code != other.co_code or one.co_names != other.co_names:
        return False
    if one.co_varnames != other.co_varnames or one.co_freevars != other.co_freevars:
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(
        _same_code(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else (type(a), a) == (type(b), b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )
