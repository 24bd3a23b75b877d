"""A small grammar for command lines, so that every form of every command is one readable line of a table.

    SET string_key value [EX seconds|PX milliseconds] [NX|XX] [GET]

Upper case is literal; lower case names a kind of argument; ``[a|b]`` is one of the alternatives or nothing, ``{a|b}``
one of them; ``x...`` repeats, ``(x y)...`` repeats a group; ``#key...`` is a count followed by as many keys; ``;``
separates the commands of one step, in which ``@1`` is the first argument of the first command. Options that stand
side by side come in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

Argv = tuple[bytes, ...]
REPEAT_MAX = 4
SAME_KEY = b"@1"
"""The back-reference as a token; told apart from a drawn argument by identity."""


class Draw(Protocol):
    """A source of choices: seeded for speed, Hypothesis' own for shrinking."""

    serial: int
    """How many distinct numbers have been handed out in this sequence."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def randrange(self, stop: int) -> int:
        """Uniform in 0..stop-1."""
        ...


ArgumentKind = Callable[[Draw], bytes]
Part = Callable[[list[bytes], Draw], None]
"""Appends what it generates."""

_TOKEN = re.compile(r"\.\.\.|[\[\]{}()|;#]|[^\s\[\]{}()|;#.]+(?:\.\d+)?")


class Template:
    """The forms of one step, ready to be drawn from."""

    def __init__(self, text: str, kinds: Mapping[str, ArgumentKind]) -> None:
        """Raises ValueError when ``text`` is not of the grammar, KeyError when it names an unknown kind."""
        self.text = text
        self._kinds = kinds
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._commands = [self._parse_sequence()]
        while self._peek() == ";":
            self._at += 1
            self._commands.append(self._parse_sequence())
        if self._peek() is not None:
            raise ValueError(f"{text!r}: unexpected {self._peek()!r}")
        self.names = tuple(command.split()[0].lower() for command in text.split(";"))

    def generate(self, draw: Draw) -> list[Argv]:
        """The commands of one step."""
        step: list[Argv] = []
        for command in self._commands:
            out: list[bytes] = []
            command(out, draw)
            step.append(tuple(step[0][1] if word is SAME_KEY else word for word in out) if step else tuple(out))
        return step

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _parse_sequence(self) -> Part:
        """A run of parts, up to a closing bracket, a bar or a semicolon."""
        parts: list[Part] = []
        options: list[Part] = []  # the current run of optional parts
        while (token := self._peek()) is not None and token not in "]})|;":
            part = self._parse_part()
            if token == "[":
                options.append(part)
                continue
            if options:
                parts.append(_any_order(options))
                options = []
            parts.append(part)
        if options:
            parts.append(_any_order(options))
        return _in_order(parts)

    def _parse_part(self) -> Part:
        token = self._tokens[self._at]
        self._at += 1
        if token == "[":
            part = _maybe(_one_of(self._parse_alternatives("]")))
        elif token == "{":
            part = _one_of(self._parse_alternatives("}"))
        elif token == "(":
            part = self._parse_alternatives(")")[0]
        elif token == "#":
            counted = self._parse_part()
            return _counted(counted)
        elif token.islower() or token.replace("_", "").islower():
            part = _argument(self._kinds[token])
        else:
            part = _literal(SAME_KEY if token == "@1" else token.encode())
        if self._peek() == "...":
            self._at += 1
            part = _repeated(part)
        return part

    def _parse_alternatives(self, closing: str) -> list[Part]:
        alternatives = [self._parse_sequence()]
        while self._peek() == "|":
            self._at += 1
            alternatives.append(self._parse_sequence())
        if self._peek() != closing:
            raise ValueError(f"{self.text!r}: missing {closing!r}")
        self._at += 1
        return alternatives


def _in_order(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]

    def generate(out: list[bytes], draw: Draw) -> None:
        for part in parts:
            part(out, draw)

    return generate


def _any_order(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]

    def generate(out: list[bytes], draw: Draw) -> None:
        waiting = list(parts)
        while waiting:
            waiting.pop(draw.randrange(len(waiting)))(out, draw)

    return generate


def _one_of(parts: list[Part]) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        parts[draw.randrange(len(parts))](out, draw)

    return generate


def _maybe(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        if draw.random() < 0.35:
            part(out, draw)

    return generate


def _repeated(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        for _ in range(1 + draw.randrange(REPEAT_MAX)):
            part(out, draw)

    return generate


def _counted(part: Part) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        at = len(out)
        part(out, draw)
        out.insert(at, b"%d" % (len(out) - at))

    return generate


def _argument(kind: ArgumentKind) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        out.append(kind(draw))

    return generate


def _literal(word: bytes) -> Part:
    def generate(out: list[bytes], draw: Draw) -> None:
        out.append(word)

    return generate
