"""JSON that carries arbitrary bytes: strings are written and read byte for byte, as ``cjson`` in a script sees them.

``cjson`` neither checks nor converts UTF-8, so a client identifier that is no UTF-8 travels unharmed.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SPECIAL = re.compile(rb'["\\\x00-\x1f\x7f]')
_ESCAPES = {b'"': rb"\"", b"\\": rb"\\", b"\n": rb"\n", b"\r": rb"\r", b"\t": rb"\t"}


def _escape(match: re.Match[bytes]) -> bytes:
    found = match[0]
    return _ESCAPES.get(found) or b"\\u%04x" % found[0]


def dump_json(value: Any) -> bytes:
    """``value`` as compact JSON. ``bytes`` become strings as they are; keys keep their order.

    >>> dump_json({"a": [b"\\xff\\"", 1, 2.5, None, True]})
    b'{"a":["\\xff\\\\"",1,2.5,null,true]}'
    """
    if isinstance(value, bytes):
        return b'"' + _SPECIAL.sub(_escape, value) + b'"'
    if isinstance(value, str):
        return dump_json(value.encode("utf-8", "surrogateescape"))
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value).encode()
    if isinstance(value, dict):
        members = (dump_json(str(name)) + b":" + dump_json(member) for name, member in value.items())
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(map(dump_json, value)) + b"]"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def load_json(text: bytes) -> Any:
    """The value of a JSON text; strings inside carry odd bytes as surrogate escapes (``to_bytes`` undoes that).

    Raises ValueError when ``text`` is no JSON.
    """
    return json.loads(text.decode("utf-8", "surrogateescape"))


def to_bytes(text: str) -> bytes:
    """The bytes that a string of ``load_json`` stood for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, written as an escape in the JSON itself
        return text.encode("utf-8", "surrogatepass")
