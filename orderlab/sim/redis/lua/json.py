"""JSON exactly as lua-cjson 2.1.0 reads it, errors included; and the quoting of long strings for ``cjson.encode``.

``json.c`` reads ordinary JSON, where there is machine code. What it gives up on comes here.
"""

from __future__ import annotations

import math
import re
from json.encoder import encode_basestring
from typing import Any

STACK_SLOTS_MAX = 8000
"""Slots of the C stack of Lua. An open array holds one, an open object two; an array needs two more, an object
three."""


class JsonError(Exception):
    """The text is not what lua-cjson accepts. ``args[0]`` is its message without the place in the script."""


QUOTED_BYTES_MAX = 16 << 20
"""As many may cross into Lua at once (``replies``): known before a control character has become six."""
_LONG = 1 << 20
_CONTROLS = bytes((*range(32), 127))


def quote(text: bytes) -> bytes | None:
    """A string in quotes, with the escapes of lua-cjson: ``/`` and DEL too, bytes from 128 on as they are. None where
    that is more than fits."""
    if len(text) > _LONG and 6 * len(text) - 5 * len(text.translate(None, _CONTROLS)) > QUOTED_BYTES_MAX:
        return None
    quoted = encode_basestring(text.decode("latin-1"))
    if "/" in quoted:
        quoted = quoted.replace("/", "\\/")
    if "\x7f" in quoted:
        quoted = quoted.replace("\x7f", "\\u007f")
    return quoted.encode("latin-1")


_STRTOD = re.compile(
    rb"[+-]?(?:(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    rb"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rb"|(?P<infinity>(?i:infinity|inf))|(?P<nan>(?i:nan)(?:\([0-9A-Za-z_]*\))?))"
)
"""What C's strtod takes from the front of a text."""

_ESCAPES = {0x22: b'"', 0x5C: b"\\", 0x2F: b"/", 0x62: b"\b", 0x66: b"\f", 0x6E: b"\n", 0x72: b"\r", 0x74: b"\t"}
_SINGLE = {
    0x7B: "T_OBJ_BEGIN", 0x7D: "T_OBJ_END", 0x5B: "T_ARR_BEGIN", 0x5D: "T_ARR_END", 0x2C: "T_COMMA", 0x3A: "T_COLON",
}  # fmt: skip
_MAYBE = frozenset(b'"-+0123456789fiIntN')
_STRING_END = re.compile(rb'["\\\x00]')
_SPACE = re.compile(rb"[ \t\r\n]*")


def _hex4(text: bytes) -> int:
    """Four hexadecimal digits as a number, or -1."""
    return int(text, 16) if re.fullmatch(rb"[0-9a-fA-F]{4}", text) else -1


class JsonReader:
    """``json_decode`` of lua_cjson.c 2.1.0: one token of look-ahead, C strings (a NUL ends the text), its messages.

    The value becomes a flat list for ``tree.lua``. ``array`` and ``object_`` are the marks of containers there,
    ``null`` stands for JSON null. ``invalid_numbers`` admits hexadecimal, NaN, infinities and leading zeros.
    """

    def __init__(self, text: bytes, depth_max: int, invalid_numbers: bool, array: Any, object_: Any, null: Any) -> None:
        self._length = len(text)
        self._starts_wide = len(text) >= 2 and 0 in text[:2]
        self._text = text + b"\0"
        self._depth_max = depth_max
        self._invalid_numbers = invalid_numbers
        self._array = array
        self._object = object_
        self._nil = null
        self._at = 0
        self._index = 0
        self._value: Any = None
        self._problem = ""
        self._slots = 1
        """Slots of the stack that the open containers hold."""

    def read(self) -> list[Any]:
        """The flat list. Raises JsonError."""
        if self._starts_wide:
            raise JsonError("JSON parser does not support UTF-16 or UTF-32")
        flat: list[Any] = []
        open_containers: list[list[int]] = []  # [is object, where its size stands in `flat`, its size]
        token = self._next()
        while True:
            token, is_open = self._begin_value(token, flat, open_containers)
            if is_open:
                continue
            while True:
                if not open_containers:
                    token = self._next()
                    if token != "T_END":
                        self._fail("the end", token)
                    return flat
                innermost = open_containers[-1]
                innermost[2] += 1
                token = self._next()
                if token == ("T_OBJ_END" if innermost[0] else "T_ARR_END"):
                    flat[innermost[1]] = innermost[2]
                    open_containers.pop()
                    self._slots -= 1 + innermost[0]
                    continue
                if token != "T_COMMA":
                    self._fail("comma or object end" if innermost[0] else "comma or array end", token)
                token = self._next()
                if innermost[0]:
                    token = self._name(token, flat)
                break

    def _begin_value(self, token: str, flat: list[Any], open_containers: list[list[int]]) -> tuple[str, bool]:
        """Put a scalar, or the beginning of a container. Returns the token to go on with, and whether a container
        is open that waits for its first value."""
        if token in ("T_STRING", "T_NUMBER", "T_BOOLEAN"):
            flat.append(self._value)
            return token, False
        if token == "T_NULL":
            flat.append(self._nil)
            return token, False
        if token not in ("T_OBJ_BEGIN", "T_ARR_BEGIN"):
            self._fail("value", token)
        is_object = token == "T_OBJ_BEGIN"
        depth = len(open_containers) + 1
        if depth > self._depth_max or self._slots + 2 + is_object > STACK_SLOTS_MAX:
            raise JsonError(f"Found too many nested data structures ({depth}) at character {self._at}")
        flat.append(self._object if is_object else self._array)
        flat.append(0)
        token = self._next()
        if token == ("T_OBJ_END" if is_object else "T_ARR_END"):
            return token, False
        open_containers.append([is_object, len(flat) - 1, 0])
        self._slots += 1 + is_object
        if is_object:
            token = self._name(token, flat)
        return token, True

    def _name(self, token: str, flat: list[Any]) -> str:
        if token != "T_STRING":
            self._fail("object key string", token)
        flat.append(self._value)
        token = self._next()
        if token != "T_COLON":
            self._fail("colon", token)
        return self._next()

    def _fail(self, expected: str, token: str) -> None:
        found = self._problem if token == "T_ERROR" else token
        raise JsonError(f"Expected {expected} but found {found} at character {self._index + 1}")

    def _error(self, problem: str) -> str:
        self._index, self._problem = self._at, problem
        return "T_ERROR"

    def _next(self) -> str:
        text = self._text
        space = _SPACE.match(text, self._at)
        self._at = self._index = space.end() if space else self._at
        first = text[self._at]
        if first == 0:
            return "T_END"
        single = _SINGLE.get(first)
        if single is not None:
            self._at += 1
            return single
        if first not in _MAYBE:
            return self._error("invalid token")
        if first == 0x22:
            return self._string()
        if first == 0x2D or 0x30 <= first <= 0x39:
            if not self._invalid_numbers and self._is_invalid_number():
                return self._error("invalid number")
            return self._number()
        for word, token, value in (
            (b"true", "T_BOOLEAN", True),
            (b"false", "T_BOOLEAN", False),
            (b"null", "T_NULL", None),
        ):
            if text.startswith(word, self._at):
                self._at += len(word)
                self._value = value
                return token
        if self._invalid_numbers and self._is_invalid_number():
            return self._number()
        return self._error("invalid token")

    def _is_invalid_number(self) -> bool:
        text, at = self._text, self._at
        if text[at] == 0x2B:
            return True
        if text[at] == 0x2D:
            at += 1
        if text[at] == 0x30:
            return text[at + 1] | 0x20 == 0x78 or 0x30 <= text[at + 1] <= 0x39
        if text[at] <= 0x39:
            return False
        return text[at : at + 3].lower() in (b"inf", b"nan")

    def _number(self) -> str:
        match = _STRTOD.match(self._text, self._at)
        if match is None:
            return self._error("invalid number")
        self._at = match.end()
        negative = match[0].startswith(b"-")
        if match["decimal"] is not None:
            value = float(match["decimal"])
        elif match["hex"] is not None:
            try:
                value = float.fromhex(match["hex"].decode())
            except OverflowError:
                value = math.inf
        else:
            value = math.inf if match["infinity"] is not None else math.nan
        self._value = -value if negative else value
        return "T_NUMBER"

    def _string(self) -> str:
        text = self._text
        self._at += 1
        pieces = []
        while True:
            stop = _STRING_END.search(text, self._at)
            assert stop is not None  # the NUL at the end
            pieces.append(text[self._at : stop.start()])
            self._at = stop.start()
            if stop[0] == b'"':
                self._at += 1
                self._value = b"".join(pieces)
                return "T_STRING"
            if stop[0] == b"\0":
                return self._error("unexpected end of string")
            escape = text[self._at + 1]
            if escape == 0x75:
                piece = self._unicode_escape()
                if piece is None:
                    return self._error("invalid unicode escape code")
                pieces.append(piece)
            elif escape in _ESCAPES:
                pieces.append(_ESCAPES[escape])
                self._at += 2
            else:
                return self._error("invalid escape code")

    def _unicode_escape(self) -> bytes | None:
        text, at = self._text, self._at
        code, length = _hex4(text[at + 2 : at + 6]), 6
        if code < 0:
            return None
        if code & 0xF800 == 0xD800:
            low = _hex4(text[at + 8 : at + 12])
            if code & 0x400 or text[at + 6 : at + 8] != b"\\u" or low & ~0x3FF != 0xDC00:
                return None
            code = ((code & 0x3FF) << 10 | low & 0x3FF) + 0x10000
            length = 12
        self._at += length
        return chr(code).encode()
