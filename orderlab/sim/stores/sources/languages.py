"""Languages whose files may hold scripts: their grammars, and what the text of a literal is at run time.

A grammar says where a literal begins and ends and where values are put into it; what is between is decoded here from
the text itself, by each language's own rules (escapes, raw strings, text blocks, heredocs).
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from orderlab.sim.stores.sources.text import Escapes, ProgramString, without_indent, without_width

_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"'}
_BELL = {"a": "\a", "v": "\v"}
_HEX4, _HEX8 = r"u(?P<u>[0-9a-fA-F]{4})", r"U(?P<u>[0-9a-fA-F]{8})"
_BRACED = r"u\{\s*(?P<u>[0-9a-fA-F]+(?:\s+[0-9a-fA-F]+)*)\s*\}"
_JAVA = Escapes(
    {**_CONTROL, "s": " ", "\n": ""}, octal="[0-3][0-7]{0,2}|[0-7]{1,2}", unicode=(r"u+(?P<u>[0-9a-fA-F]{4})",)
)
_PYTHON = Escapes(
    {**_CONTROL, **_BELL, "\n": ""}, hexadecimal="[0-9a-fA-F]{2}", octal="[0-7]{1,3}", unicode=(_HEX4, _HEX8)
)
_SCRIPT = Escapes(
    {**_CONTROL, "v": "\v", "0": "\0", "\n": ""},
    hexadecimal="[0-9a-fA-F]{2}",
    unicode=(_BRACED, _HEX4),
    unknown="second",
)
_GO = Escapes(
    {**_CONTROL, **_BELL},
    hexadecimal="[0-9a-fA-F]{2}",
    octal="[0-7]{3}",
    hexadecimal_is_byte=True,
    unicode=(_HEX4, _HEX8),
)
_PHP_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "e": "\x1b", "f": "\f", "\\": "\\", "$": "$"}
_PHP_NUMBERED = {"hexadecimal": "[0-9a-fA-F]{1,2}", "octal": "[0-7]{1,3}"}
_PHP = Escapes({**_PHP_CONTROL, '"': '"'}, **_PHP_NUMBERED, hexadecimal_is_byte=True, unicode=(_BRACED,))
_PHP_HEREDOC = Escapes(_PHP_CONTROL, **_PHP_NUMBERED, hexadecimal_is_byte=True, unicode=(_BRACED,))
_QUOTE = Escapes({"\\": "\\", "'": "'"})
_RUBY = Escapes(
    {**_CONTROL, **_BELL, "e": "\x1b", "s": " ", "\n": ""},
    hexadecimal="[0-9a-fA-F]{1,2}",
    octal="[0-7]{1,3}",
    hexadecimal_is_byte=True,
    unicode=(_BRACED, _HEX4),
    unknown="second",
)
_SHARP = Escapes({**_CONTROL, **_BELL, "0": "\0", "e": "\x1b"}, hexadecimal="[0-9a-fA-F]{1,4}", unicode=(_HEX4, _HEX8))
_KOTLIN = Escapes({**{name: _CONTROL[name] for name in "tbnr\\'\""}, "$": "$"}, unicode=(_HEX4,))


@dataclass(frozen=True)
class Language:
    """One language: its grammar, and how its literals are decoded."""

    name: str
    module: str
    decode: Callable[[Node, ProgramString], ProgramString]
    """The literal's node and its whole text, with one character for each value put in -> the text at run time."""
    literals: tuple[str, ...]
    interpolations: tuple[str, ...] = ()
    """Nodes within a literal that stand for a value."""
    plus: str = "+"
    """The operator that joins strings."""
    grammar: str = "language"
    newline: bool = True
    """Whether CR LF within a literal is read as LF."""

    @functools.cached_property
    def parser(self) -> Parser:
        """Its parser. Raises ImportError where the grammar is not installed."""
        return Parser(Grammar(getattr(importlib.import_module(self.module), self.grammar)()))


def _java(node: Node, text: ProgramString) -> ProgramString:
    if text.characters.startswith('"""'):
        inner = text[3:-3]
        inner = inner[inner.characters.index("\n") + 1 :] if "\n" in inner.characters else inner
        return _JAVA.applied(without_indent(inner, strip_right=True))
    return _JAVA.applied(text[1:-1])


def _python(node: Node, text: ProgramString) -> ProgramString:
    prefix = re.match("[a-zA-Z]*", text.characters)
    assert prefix is not None
    letters = prefix[0].lower()
    quote = 3 if text.characters[prefix.end() :][:3] in ('"""', "'''") else 1
    inner = text[prefix.end() + quote : -quote]
    if "f" in letters:
        inner = inner.replaced(re.compile(r"\{\{|\}\}"), lambda match: match[0][0])
    if "r" in letters:
        return inner
    if "b" in letters:
        return Escapes(
            {**_CONTROL, **_BELL, "\n": ""}, hexadecimal="[0-9a-fA-F]{2}", octal="[0-7]{1,3}", hexadecimal_is_byte=True
        ).applied(inner)
    return _PYTHON.applied(inner)


def _javascript(node: Node, text: ProgramString) -> ProgramString:
    callee = node.parent.child_by_field_name("function") if node.parent is not None else None
    if callee is not None and node.type == "template_string" and callee.text == b"String.raw":
        return text[1:-1]
    return _SCRIPT.applied(text[1:-1])


def _go(node: Node, text: ProgramString) -> ProgramString:
    if text.characters.startswith("`"):
        return text[1:-1].replaced(re.compile("\r"), lambda match: "")
    return _GO.applied(text[1:-1])


def _php(node: Node, text: ProgramString) -> ProgramString:
    if node.type == "string":
        return _QUOTE.applied(text[text.characters.index("'") + 1 : -1])
    if node.type == "encapsed_string":
        return _PHP.applied(text[text.characters.index('"') + 1 : -1])
    rows = text.characters.split("\n")
    width = len(rows[-1]) - len(rows[-1].lstrip(" \t"))
    inner = without_width(text[len(rows[0]) + 1 : -len(rows[-1]) - 1], width) if len(rows) > 2 else ProgramString()
    inner = inner.stripped("\r", "right") if inner.characters.endswith("\r") else inner
    return inner if node.type == "nowdoc" else _PHP_HEREDOC.applied(inner)


def _ruby(node: Node, text: ProgramString) -> ProgramString:
    if node.type == "heredoc_beginning":
        assert node.text is not None
        begin = node.text.decode("utf-8", "replace")
        inner = text[text.characters.find("\n") + 1 :]
        last = inner.characters.rfind("\n")  # what follows is the end mark
        inner = inner[: last + 1] if last >= 0 else ProgramString()
        if begin.startswith("<<~"):
            inner = without_indent(inner, last_counts=False)
        return inner if "'" in begin else _RUBY.applied(inner)
    if text.characters.startswith(("'", "%q")):
        first = 1 if text.characters.startswith("'") else 3
        closing = text.characters[-1]
        return Escapes({"\\": "\\", closing: closing, text.characters[first - 1]: text.characters[first - 1]}).applied(
            text[first:-1]
        )
    first = 1 if text.characters.startswith(('"', "`")) else 3 if text.characters[1:2].isalpha() else 2
    return _RUBY.applied(text[first:-1])


def _sharp(node: Node, text: ProgramString) -> ProgramString:
    head = re.match(r'[$@]*("+)', text.characters)
    assert head is not None
    marks, quotes = head[0].rstrip('"'), len(head[1])
    if quotes >= 3:
        inner = text[head.end() : -quotes]
        if "\n" not in inner.characters:
            return inner
        rows = inner.characters.split("\n")
        inner = inner[len(rows[0]) + 1 : -len(rows[-1]) - 1]
        return without_width(inner.stripped("\r", "right"), len(rows[-1]))
    inner = text[len(marks) + 1 : -1]
    if "$" in marks:
        inner = inner.replaced(re.compile(r"\{\{|\}\}"), lambda match: match[0][0])
    if "@" in marks:
        return inner.replaced(re.compile('""'), lambda match: '"')
    return _SHARP.applied(inner)


def _kotlin(node: Node, text: ProgramString) -> ProgramString:
    return text[3:-3] if text.characters.startswith('"""') else _KOTLIN.applied(text[1:-1])


_JAVASCRIPT = Language(
    "JavaScript", "tree_sitter_javascript", _javascript, ("string", "template_string"), ("template_substitution",)
)
_TYPESCRIPT = Language(
    "TypeScript",
    "tree_sitter_typescript",
    _javascript,
    _JAVASCRIPT.literals,
    _JAVASCRIPT.interpolations,
    grammar="language_typescript",
)
LANGUAGES: Mapping[str, Language] = {
    ".java": Language("Java", "tree_sitter_java", _java, ("string_literal",)),
    ".py": Language("Python", "tree_sitter_python", _python, ("string",), ("interpolation",)),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), _JAVASCRIPT),
    **dict.fromkeys((".ts", ".mts", ".cts"), _TYPESCRIPT),
    ".tsx": Language(
        "TypeScript",
        "tree_sitter_typescript",
        _javascript,
        _JAVASCRIPT.literals,
        _JAVASCRIPT.interpolations,
        grammar="language_tsx",
    ),
    ".go": Language("Go", "tree_sitter_go", _go, ("interpreted_string_literal", "raw_string_literal"), newline=False),
    ".php": Language(
        "PHP",
        "tree_sitter_php",
        _php,
        ("string", "encapsed_string", "heredoc", "nowdoc"),
        (
            "variable_name",
            "member_access_expression",
            "subscript_expression",
            "dynamic_variable_name",
            "member_call_expression",
            "nullsafe_member_access_expression",
            "scoped_property_access_expression",
            "function_call_expression",
            "scoped_call_expression",
        ),
        plus=".",
        grammar="language_php",
        newline=False,
    ),
    ".rb": Language("Ruby", "tree_sitter_ruby", _ruby, ("string", "heredoc_beginning"), ("interpolation",)),
    ".cs": Language(
        "C#",
        "tree_sitter_c_sharp",
        _sharp,
        ("string_literal", "verbatim_string_literal", "raw_string_literal", "interpolated_string_expression"),
        ("interpolation",),
        newline=False,
    ),
    **dict.fromkeys(
        (".kt", ".kts"),
        Language(
            "Kotlin",
            "tree_sitter_kotlin",
            _kotlin,
            ("string_literal", "multiline_string_literal"),
            ("interpolation",),
        ),
    ),
}
"""By the suffix of a file's name."""
KOTLIN_NAME = re.compile(r"(?<!\\)\$([A-Za-z_]\w*)")
"""What Kotlin puts into a string without braces; its grammar does not tell it."""
