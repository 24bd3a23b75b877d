"""Lua 5.1 source as tokens with their places, for tools that rewrite scripts (lexical structure: manual, 2.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LONG_OPENING = re.compile(rb"\[(=*)\[")
_NUMBER = re.compile(rb"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NAME = re.compile(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*")
_SPACE = re.compile(rb"[ \t\r\n\f\v]+")
_SYMBOL = re.compile(rb"\.\.\.|\.\.|==|~=|<=|>=|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: ``source[start:end]``. ``kind`` is space, comment, string, number, name or symbol."""

    kind: str
    start: int
    end: int
    line: int
    """Counts from 1."""


def tokens(source: bytes) -> Iterator[Token]:
    """Every byte of ``source`` in exactly one token, in order. Never raises: an unfinished token ends with the file."""
    position = 0
    line = 1
    if source.startswith(b"#!"):
        position = _end_of_line(source, 0)
        yield Token("comment", 0, position, line)
    while position < len(source):
        kind, end = _next(source, position)
        yield Token(kind, position, end, line)
        line += source.count(b"\n", position, end)
        position = end


def _next(source: bytes, position: int) -> tuple[str, int]:
    if source.startswith(b"--", position):
        opening = _LONG_OPENING.match(source, position + 2)
        return "comment", _end_of_long(source, opening) if opening else _end_of_line(source, position)
    opening = _LONG_OPENING.match(source, position)
    if opening:
        return "string", _end_of_long(source, opening)
    if source[position : position + 1] in (b'"', b"'"):
        return "string", _end_of_quoted(source, position)
    for kind, pattern in (("space", _SPACE), ("number", _NUMBER), ("name", _NAME), ("symbol", _SYMBOL)):
        found = pattern.match(source, position)
        if found:
            return kind, found.end()
    raise AssertionError("every byte is a symbol at least")


def _end_of_line(source: bytes, position: int) -> int:
    end = source.find(b"\n", position)
    return len(source) if end < 0 else end


def _end_of_long(source: bytes, opening: re.Match[bytes]) -> int:
    closing = b"]" + opening[1] + b"]"
    end = source.find(closing, opening.end())
    return len(source) if end < 0 else end + len(closing)


def _end_of_quoted(source: bytes, position: int) -> int:
    quote = source[position]
    at = position + 1
    while at < len(source) and source[at] != quote:
        at += 2 if source[at] == ord("\\") else 1
    return min(at + 1, len(source))
