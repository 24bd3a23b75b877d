"""Where in whose files a step of client code was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import redis

_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_REDIS: Final = os.path.dirname(os.path.abspath(redis.__file__)) + os.sep


def place_of(frame: Any, folder: str) -> tuple[str, str]:
    """The line of the user's file, in ``folder``, that a frame goes back to, and of the library beneath, if any."""
    first, user = "", ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, "<")) and "/greenlet/" not in name:
            text = f"{name}:{frame.f_lineno}"
            if name.startswith(_REDIS) or ("/lib/python3" in name and "/site-packages/" not in name):
                first = first or (text if name.endswith("/redis/lock.py") else "")
            elif "/site-packages/" in name or not name.startswith(folder):
                first = first or text
            else:
                user = user or text
        frame = frame.f_back
    return user, first
