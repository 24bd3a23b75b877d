"""A call on a store as it goes over the wire: a script, a function of a library, or a plain command."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Script:
    """One Lua source of a store. ``source`` is what goes to the server, byte for byte."""

    name: str
    """File name relative to the store's folder."""
    source: bytes = field(repr=False)
    path: Path

    @cached_property
    def sha1(self) -> str:
        """The digest under which EVALSHA finds the script."""
        return hashlib.sha1(self.source).hexdigest()


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """EVALSHA of ``script``; with ``function`` set, FCALL of that function, whose library is ``script``."""

    operation: str
    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes, ...]
    read_only: bool = False
    function: str | None = None

    @property
    def argv(self) -> tuple[bytes, ...]:
        """The command for a server that has the script loaded (SCRIPT LOAD, or FUNCTION LOAD for a library)."""
        count = b"%d" % len(self.keys)
        if self.function is not None:
            return (b"FCALL", self.function.encode(), count, *self.keys, *self.args)
        return (b"EVALSHA", self.script.sha1.encode(), count, *self.keys, *self.args)

    @property
    def argv_with_source(self) -> tuple[bytes, ...]:
        """The command for a server that may not know the script: EVAL (FCALL for a library, which must be loaded)."""
        if self.function is not None:
            return self.argv
        return (b"EVAL", self.script.source, b"%d" % len(self.keys), *self.keys, *self.args)


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A plain command that the store's client sends itself, between or instead of scripts."""

    operation: str
    argv: tuple[bytes, ...]


Call = ScriptCall | CommandCall
