"""What compiling a text takes, counted before it is done: Lua's parser knows no limit of its own.

Its lists of jumps are walked from their beginning whenever one is added: those of ``elseif``, of ``and``, ``or`` and
``not`` in one expression, and of ``break``. So they take the square of their number, and all else the length of the
text.
"""

from __future__ import annotations

import re
from typing import Final

BYTES_PER_INSTRUCTION: Final = 4
"""What a text becomes is charged by ``loading.lua``: comments become nothing."""
JUMPS_PER_INSTRUCTION: Final = 16
_FEW: Final = 1000
_TOKENS = re.compile(
    rb"""--\[(?P<a>=*)\[(?:.*?\](?P=a)\]|.*) | --[^\n]* | \[(?P<b>=*)\[(?:.*?\](?P=b)\]|.*) | "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'?
    | (?P<word>\b(?:elseif|and|or|not|break|then|do|return|local|end)\b) | (?P<other>[;=])""",  # noqa: E501
    re.DOTALL | re.VERBOSE,
)
_WORDS = (b"elseif", b"and", b"or", b"not", b"break")


def compile_steps(text: bytes) -> int:
    """Instructions of Lua that take as long as reading ``text``."""
    steps = len(text) // BYTES_PER_INSTRUCTION
    if sum(map(text.count, _WORDS)) > _FEW:
        steps += _jumps(text) // JUMPS_PER_INSTRUCTION
    return steps


def _jumps(text: bytes) -> int:
    """Jumps that are walked over. What stands in comments and strings does not count, and statements end an
    expression."""
    walked = branches = breaks = operators = 0
    for token in _TOKENS.finditer(text):
        word = token["word"]
        if word in (b"and", b"or", b"not"):
            operators += 1
            walked += operators
        elif word == b"elseif":
            branches += 1
            walked += branches
        elif word == b"break":
            breaks += 1
            walked += breaks
        elif word or token["other"]:
            operators = 0
    return walked
