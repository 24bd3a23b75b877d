"""Characters of a program's file that remember the line they stand on, and what languages do to the inside of a string:
escapes, indentation, margins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os.path import commonprefix

MARGIN = "|"
"""What Kotlin's `trimMargin` takes off, with the blanks before it."""


@dataclass(frozen=True)
class ProgramString:
    """A string as it is at run time. ``lines[n]`` is the line of the file, from 1, that character ``n`` comes from."""

    characters: str = ""
    lines: tuple[int, ...] = ()

    @classmethod
    def at(cls, characters: str, line: int) -> ProgramString:
        """What stands in a file from the line ``line`` on, as it stands there."""
        lines = []
        for character in characters:
            lines.append(line)
            line += character == "\n"
        return cls(characters, tuple(lines))

    @classmethod
    def on(cls, characters: str, line: int) -> ProgramString:
        """What is written on one line of a file, whatever it is made of."""
        return cls(characters, (line,) * len(characters))

    def __add__(self, other: ProgramString) -> ProgramString:
        return ProgramString(self.characters + other.characters, self.lines + other.lines)

    def __getitem__(self, part: slice) -> ProgramString:
        return ProgramString(self.characters[part], self.lines[part])

    def __len__(self) -> int:
        return len(self.characters)

    def stripped(self, blanks: str | None = None, sides: str = "both") -> ProgramString:
        """Without blanks (or the characters given) at both ends, or at the ``left`` or ``right`` one."""
        first = len(self) - len(self.characters.lstrip(blanks)) if sides != "right" else 0
        last = len(self.characters.rstrip(blanks)) if sides != "left" else len(self)
        return self[first : max(first, last)]

    def rows(self) -> list[ProgramString]:
        """Its lines, each without its end."""
        found, first = [], 0
        for row in self.characters.split("\n"):
            found.append(self[first : first + len(row)])
            first += len(row) + 1
        return found

    def replaced(self, pattern: re.Pattern[str], change: Callable[[re.Match[str]], str]) -> ProgramString:
        """With each match of ``pattern`` replaced; what takes its place stands on the match's line."""
        characters: list[str] = []
        lines: list[int] = []
        end = 0
        for match in pattern.finditer(self.characters):
            characters.append(self.characters[end : match.start()])
            lines += self.lines[end : match.start()]
            instead = change(match)
            characters.append(instead)
            # A line that an escape begins is told where the text behind the escape stands.
            lines += [self.lines[match.start()]] * len(instead)
            end = match.end()
        characters.append(self.characters[end:])
        lines += self.lines[end:]
        return ProgramString("".join(characters), tuple(lines))

    def line_numbers(self) -> list[int]:
        """For each line of the string, the line of the file that it begins on."""
        found = []
        first = 0
        for row in self.characters.split("\n"):
            at = min(first, len(self) - 1)
            found.append(self.lines[at] if self.lines else 1)
            first += len(row) + 1
        return found


def joined(texts: Iterable[ProgramString], between: ProgramString | None = None) -> ProgramString:
    """One after the other, with ``between`` between them."""
    found: list[ProgramString] = []
    for text in texts:
        if found and between is not None:
            found.append(between)
        found.append(text)
    lines = tuple(line for text in found for line in text.lines)
    return ProgramString("".join(text.characters for text in found), lines)


def _assembled(rows: list[ProgramString], like: ProgramString) -> ProgramString:
    """Rows with ends between them; each end stands on the line of the row that it ends."""
    found: list[ProgramString] = []
    for number, row in enumerate(rows):
        found.append(row)
        if number < len(rows) - 1:
            line = row.lines[-1] if row.lines else (found[-2].lines[-1] if number else like.lines[0])
            found.append(ProgramString.on("\n", line))
    return joined(found)


def _blanks(row: ProgramString) -> int:
    return len(row) - len(row.characters.lstrip(" \t"))


def without_indent(
    text: ProgramString, last_counts: bool = True, strip_right: bool = False, empty_blank: bool = False
) -> ProgramString:
    """Without the blanks that all lines begin with (Java's text blocks, Ruby's ``<<~``, `textwrap.dedent`,
    `trimIndent`). Blank lines do not count but, where ``last_counts``, the last, which holds the delimiter.
    ``strip_right``: no line keeps blanks at its end; ``empty_blank``: no blank line keeps any."""
    rows = text.rows()
    counted = [row for row in rows if row.characters.strip(" \t")]
    if last_counts and rows:
        counted.append(rows[-1])
    width = min(map(_blanks, counted), default=len(text))
    if empty_blank:  # Python compares the blanks themselves, the others count them
        width = len(commonprefix([row.characters[: _blanks(row)] for row in counted]))  # noqa: RUF071 - of characters
    cut = [row[min(width, _blanks(row)) :] for row in rows]
    if strip_right:
        cut = [row.stripped(" \t", "right") for row in cut]
    if empty_blank:
        cut = [row if row.characters.strip() else row[:0] for row in cut]
    return _assembled(cut, text)


def without_width(text: ProgramString, width: int) -> ProgramString:
    """Without so many blanks at the beginning of each line (PHP's heredocs, C#'s raw strings)."""
    return _assembled([row[min(width, _blanks(row)) :] for row in text.rows()], text)


def without_margin(text: ProgramString) -> ProgramString:
    """`trimMargin`: from each line the blanks and the margin behind them; blank first and last lines go."""
    rows = text.rows()
    cut = [row.stripped(" \t", "left")[1:] if row.characters.lstrip(" \t").startswith(MARGIN) else row for row in rows]
    return without_blank_ends(_assembled(cut, text))


def without_blank_ends(text: ProgramString) -> ProgramString:
    """Without a first and a last line that are blank."""
    rows = text.rows()
    if len(rows) > 1 and not rows[0].characters.strip():
        rows = rows[1:]
    if len(rows) > 1 and not rows[-1].characters.strip():
        rows = rows[:-1]
    return _assembled(rows, text)


@dataclass(frozen=True)
class Escapes:
    """What a backslash does in one kind of string."""

    simple: Mapping[str, str]
    """The character behind it -> what both stand for."""
    hexadecimal: str = ""
    """Pattern of what follows ``\\x``; empty where there is none."""
    octal: str = ""
    hexadecimal_is_byte: bool = False
    unicode: tuple[str, ...] = ()
    """Patterns of a character's number in hexadecimal, the group ``u`` holds it."""
    unknown: str = "keep"
    """What becomes of others: ``keep`` both characters, or the ``second`` alone."""

    def applied(self, text: ProgramString) -> ProgramString:
        """The text with its escapes replaced."""
        if "\\" not in text.characters:
            return text
        numbered = [f"(?:{pattern})" for pattern in self.unicode]
        if self.hexadecimal:
            numbered.append(f"x(?P<h>{self.hexadecimal})")
        if self.octal:
            numbered.append(f"(?P<o>{self.octal})")
        named = [re.sub(r"\?P<u>", f"?P<u{n}>", pattern) for n, pattern in enumerate(numbered)]
        pattern = re.compile(r"\\(?:" + "|".join([*named, r"(?P<c>\r\n|.)"]) + ")", re.DOTALL)
        return text.replaced(pattern, lambda match: self._meaning(match.groupdict()))

    def _meaning(self, groups: Mapping[str, str | None]) -> str:
        if (plain := groups["c"]) is not None:
            if plain == "\r\n":
                plain = "\n"
            return self.simple.get(plain, plain if self.unknown == "second" else f"\\{plain}")
        if (digits := groups.get("h")) is not None:
            return _byte(int(digits, 16)) if self.hexadecimal_is_byte else chr(int(digits, 16))
        if (digits := groups.get("o")) is not None:
            return _byte(int(digits, 8) & 255) if self.hexadecimal_is_byte else chr(int(digits, 8))
        digits = next(value for name, value in groups.items() if name.startswith("u") and value is not None)
        numbers = [int(each, 16) for each in digits.split()]
        return "".join(chr(number) if number < 0x110000 else "\ufffd" for number in numbers)


def _byte(value: int) -> str:
    """A byte of a string of bytes; those above 127 are written as Python's `surrogateescape` writes them."""
    return chr(value) if value < 128 else chr(0xDC00 + value)


def as_bytes(text: ProgramString) -> bytes:
    """What is sent to a server: UTF-8, surrogate pairs of two escapes joined."""
    characters = re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        text.characters,
    )
    return characters.encode("utf-8", "surrogateescape")
