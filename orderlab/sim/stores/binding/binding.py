"""A Binding: one store's operations, called by name, whatever scripts, keys and replies stand behind them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.versions import VERSIONS, ServerVersion
from orderlab.sim.stores.binding.operations import OperationBinding, OperationCompiler, base_of, scope_of
from orderlab.sim.stores.binding.replies import ReplyReader
from orderlab.sim.stores.binding.results import Call, Failed, Fields, GivenUp, Result, Saved, Script
from orderlab.sim.stores.binding.schema import Accepted, Callers, ContractStore
from orderlab.sim.stores.binding.session import DEFAULTS, OPERATION_FIELDS, Store
from orderlab.sim.stores.binding.templates import FieldValues, Template

OLD, NEW = "old", "new"
"""Versions of a store's scripts."""


class Adapter(Protocol):
    """Python of the user's own, for what templates cannot say; it sees an operation before they do."""

    def step(self, operation: str, fields: Fields, replies: Sequence[Reply]) -> Call | Result | None:
        """The next call after ``replies``, or the result; None leaves the operation to the templates.

        Must be pure: the same arguments give the same answer.
        """


class Contracted(Protocol):
    """What a binding must know of a contract: the operations, each with the names of its fields."""

    operations: Mapping[str, Sequence[str]]

    def among(self, names: Collection[str]) -> Contracted:
        """The same contract, of which clients use these operations alone."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """What a flawed store is there to show."""

    id: str
    breaks: tuple[str, ...]
    """Names of the laws that it breaks."""
    scenario: str
    neighbour: Path
    """Folder of the nearest correct store."""


@dataclass(frozen=True)
class Binding:
    """The operations of one store. Immutable; two bindings with equal content behave equally."""

    path: Path
    """The store's folder."""
    place: str
    """How error messages call the file."""
    store: Store | ContractStore
    scripts: tuple[Script, ...]
    adapter: Adapter | None = None
    contract: Contracted | None = None
    """Of a store whose specification is a class of its owner's."""
    base: Binding | None = None
    """The scripts as they were, where either version may serve a call: during a rolling upgrade."""

    @property
    def versions(self) -> Mapping[str, Binding]:
        """What may serve a call, by name; the old version first, whose data a rolling upgrade finds."""
        return {NEW: self} if self.base is None else {OLD: self.base, NEW: self}

    @property
    def name(self) -> str:
        """The store's name: its own word, or the folder's name."""
        folder = self.path if self.path.name not in ("", "..") else Path(os.path.abspath(self.path))
        return self.store.name or folder.name

    @property
    def runs_python(self) -> bool:
        """Whether Python of its owner's takes part: an adapter, or a contract that is none of the suite's."""
        return self.adapter is not None or (
            self.contract is not None and not type(self.contract).__module__.startswith("orderlab.")
        )

    @property
    def specification(self) -> str:
        """The specification that the store must refine."""
        return self.store.specification

    @property
    def tables(self) -> str | None:
        """The tables of PostgreSQL that carry its operations out as transactions; None of a store in Redis."""
        return self.store.tables

    @property
    def server(self) -> ServerVersion:
        """The server that the scripts are for."""
        return VERSIONS[self.store.server]

    @property
    def said_server(self) -> ServerVersion | None:
        """The same, if the store names it."""
        return self.server if "server" in self.store.model_fields_set else None

    def on(self, server: ServerVersion) -> Binding:
        """The same store on another server."""
        base = self.base and self.base.on(server)
        return replace(self, store=self.store.model_copy(update={"server": server.name}), base=base)

    @property
    def modulus(self) -> int:
        """Number of packet identifiers."""
        return self.store.modulus

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the store's author takes for granted, and which scripts of its folder are none of it; a verdict repeats
        both."""
        unused = [name for name in unused_scripts(self.path) if name not in {one.name for one in self.scripts}]
        left_out = (f"no operation calls {', '.join(unused)}, which is not judged",) if unused else ()
        return (*(self.server.assumed() if self.tables is None else ()), *self.store.assumptions, *left_out)

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        """Violations that the store's owner lives with."""
        return tuple(getattr(self.store, "accept", ()))

    @property
    def fixed(self) -> Mapping[str, int]:
        """Fields whose value the scripts fix themselves (``limit``, ``default_expiry_ms``)."""
        return {name: value for name, value in self.store.fixed.model_dump().items() if value is not None}

    @property
    def callers(self) -> Callers:
        """What callers may give."""
        return self.store.callers

    @property
    def specimen(self) -> Specimen | None:
        """What a flawed store of the suite is there to show; None of any other."""
        table = self.store.specimen
        if table is None:
            return None
        return Specimen(table.id, tuple(table.breaks), table.scenario, self.path / table.neighbour)

    @cached_property
    def _compiler(self) -> OperationCompiler:
        scripts = {script.name: script for script in self.scripts}
        return OperationCompiler(self.store, scripts, self.place, self._fields)

    @property
    def _fields(self) -> Mapping[str, tuple[str, ...]]:
        if self.contract is None:
            return OPERATION_FIELDS
        return {name: tuple(fields) for name, fields in self.contract.operations.items()}

    @property
    def keys(self) -> Mapping[str, Template]:
        """The store's keys by name, as templates."""
        return self._compiler.keys

    @cached_property
    def operations(self) -> Mapping[str, OperationBinding]:
        """The operations that the store has, by name."""
        given = dict(self.store.operations)
        for name in given:
            if name not in self._fields:
                raise InputError(
                    f'{self.place}: operations: unknown operation "{name}"; {did_you_mean(name, [*self._fields])}'
                )
        tables = {name: given.get(name) for name in self._fields}
        return {name: self._compiler.compile(name, table) for name, table in tables.items() if table is not None}

    @cached_property
    def bases(self) -> Mapping[str, FieldValues]:
        """The scope of each operation of which no field is given."""
        defaults = {**DEFAULTS, "modulus": self.modulus, **self.fixed}
        return {name: base_of(bound, defaults) for name, bound in self.operations.items()}

    @property
    def needs_connections(self) -> bool:
        """Whether the server must tell its clients apart, as one of them watches keys."""
        return any(one.needs_connection for one in self.operations.values())

    def operation(self, name: str) -> OperationBinding:
        """The operation ``name``. Raises InputError when the store has none of that name."""
        if name not in self.operations:
            cure = did_you_mean(name, tuple(self.operations))
            raise InputError(f'{self.place}: operations: no operation "{name}"; {cure}')
        return self.operations[name]

    def step(self, operation: str, fields: Fields, replies: Sequence[Reply] = ()) -> Call | Result:
        """The next call of an operation after ``replies``, or its result when it is over.

        Pure: a client holds the replies and nothing else. An error reply ends the operation with ``Failed``. Raises
        InputError for an unknown operation or field, ReplyMismatch for a reply that the binding cannot read.
        """
        if self.adapter is not None:
            answer = self.adapter.step(operation, fields, replies)
            if answer is not None:
                return answer
        bound = self.operation(operation)
        if bound.batch_max == 1 and not fields.get("messages"):
            return Saved()  # no message, no call
        scope = scope_of(bound, fields, self.bases[operation])
        position = at = 0
        tries = 1
        reply: Reply = None
        while at < len(bound.steps):
            step = bound.steps[at]
            at += 1
            collected: list[Reply] = []
            for inner in step.scopes(scope) if step.applies(scope) else ():
                if position == len(replies):
                    return step.build(inner)
                one = replies[position]
                position += 1
                if step.is_transaction:
                    if one is None:  # a watched key has changed
                        break
                    one = (
                        next((each for each in one if isinstance(each, Exception)), one)
                        if isinstance(one, list)
                        else one
                    )
                if isinstance(one, Exception):
                    return bound.reader.read(one, fields, self.modulus)
                collected.append(one)
            else:
                reply = collected if step.each is not None else collected[0] if collected else None
                if step.capture is not None:
                    scope[step.capture] = reply
                continue
            if tries == bound.tries:
                return GivenUp(
                    b"it gave up: watched keys had changed %s" % (b"once" if tries == 1 else b"%d times" % tries)
                )
            tries, at = tries + 1, bound.again_from
        if position != len(replies):
            raise InputError(f"{operation}: {len(replies)} replies to {position} calls")
        if bound.value is not None:
            reply = bound.value(scope)
        source = bound.reader.table.source if isinstance(bound.reader, ReplyReader) else None
        return bound.reader.read(scope[source] if source else reply, fields, self.modulus)

    def call(self, operation: str, **fields: object) -> Call:
        """The first call of an operation; for an operation of one script, the only one."""
        answer = self.step(operation, fields)
        if isinstance(answer, Result):
            raise InputError(f"{operation}: nothing to call for these fields")
        return answer

    def decode(self, operation: str, reply: Reply, fields: Fields | None = None) -> Result:
        """The result of an operation of one call from its reply.

        ``fields`` are those of the call; an integer reply of save needs its messages to number them.
        """
        if self.adapter is not None:
            answer = self.adapter.step(operation, fields or {}, (reply,))
            if isinstance(answer, Result):
                return answer
        if isinstance(reply, Failed):
            return reply
        return self.operation(operation).reader.read(reply, fields or {}, self.modulus)

    def with_sources(self, sources: Mapping[str, bytes]) -> Binding:
        """The same binding with other sources for some of its scripts, by name (mutants, scaled scripts)."""
        scripts = tuple(replace(script, source=sources.get(script.name, script.source)) for script in self.scripts)
        return replace(self, scripts=scripts)

    def with_operations(self, names: Collection[str]) -> Binding:
        """The same store with these of its operations alone."""
        contract = self.contract and self.contract.among(names)
        return replace(self, store=self.store.with_operations(names), contract=contract)

    def with_store(self, store: Store | ContractStore) -> Binding:
        """The same scripts under another ``store.toml``."""
        return replace(self, store=store)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the binding was made from; compiled templates are made anew."""
        return (Binding, (self.path, self.place, self.store, self.scripts, self.adapter, self.contract, self.base))


def unused_scripts(folder: Path) -> list[str]:
    """Lua files of a folder that neither a table there names nor a script includes."""
    scripts = sorted(path for path in folder.glob("*.lua") if path.is_file())
    try:
        text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.toml"))
        lines = [line for path in scripts for line in path.read_bytes().split(b"\n") if b"include" in line]
    except (OSError, ValueError):
        return []
    kept = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    included = b"\n".join(lines)
    return [path.name for path in scripts if path.name not in kept and path.stem.encode() not in included]
