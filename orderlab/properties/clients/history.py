"""A contract as the oracle of client code: calls of a library's methods are its operations, judged as a history.

An operation begins with its first step and ends with its last; between the two it takes effect at one moment. One that
ends in an exception, or whose client dies, took effect whole or not at all (``Judge.stop``).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from orderlab.model.contracts.base import SPECIFICATION, Call, Contract
from orderlab.model.contracts.judge import Judge
from orderlab.model.errors import InputError, did_you_mean
from orderlab.properties.clients.execution import Execution
from orderlab.sim.stores.binding.loader import check_promises, load_binding
from orderlab.sim.stores.binding.schema import CONTRACTS

ORACLES: Final = {**CONTRACTS, "session": "orderlab.model.contracts.session.message_queue:SessionQueue"}
"""Contracts by the words that name them."""
REPLIES: Final = ("replies of operations",)
"""What an operation that begins reads and one that ends writes: which of the two came first is seen."""


def contract_of(oracle: Any, promises: Mapping[str, Any] | None) -> Contract:
    """The contract that ``@scenario(oracle=...)`` names: a word, a store's folder or ``store.toml``, a class, or a
    contract itself. Raises InputError."""
    who = f"oracle={oracle!r}"
    if isinstance(oracle, Contract):
        return oracle
    if isinstance(oracle, (str, Path)) and str(oracle) not in ORACLES:
        if not Path(oracle).exists():
            raise InputError(f"{who}: unknown; {did_you_mean(str(oracle), tuple(ORACLES))}, or name a store.toml")
        named = load_binding(oracle, trust_adapter=True).contract
        if not isinstance(named, Contract):
            raise InputError(f"{who}: its contract is no sequential specification; name another store")
        return named
    kind = oracle
    if isinstance(oracle, str):
        module, _, name = ORACLES[oracle].partition(":")
        kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, Contract)):
        raise InputError(f"{who}: no contract; name {', '.join(ORACLES)}, a store.toml or a Contract")
    table = getattr(kind, "promises_table", None)
    if table is None:
        return kind()
    settled: Any = {"promises": check_promises(table, dict(promises or {}), who)}
    return kind(**settled)


def plain(value: Any) -> Any:
    """What a method returned, as contracts speak of replies."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


class OperationHistory:
    """The operations of one execution, and the judge of their replies."""

    def __init__(self, contract: Contract, execution: Execution, violate: Callable[[str, str], None]) -> None:
        self.contract, self.execution, self.violate = contract, execution, violate
        self.judge = Judge(contract, execution.shard.now_ms)
        self.count = 0
        self.failure: InputError | None = None
        """Why it could not be judged."""
        self.is_over = False
        """Nothing after a violation can be judged."""

    def laws(self) -> set[str]:
        """Those that replies have tested."""
        return {law for law, count in self.judge.tested.items() if count} | ({SPECIFICATION} if self.count else set())

    def does(
        self,
        name: str,
        method: Callable[[], Any],
        reply: Callable[[Any], Any] | None,
        refused: type[BaseException] | tuple[type[BaseException], ...],
        fields: Mapping[str, Any],
    ) -> Any:
        """Call ``method`` as the operation ``name``. Returns what it returns."""
        if name not in self.contract.operations:
            known = did_you_mean(name, tuple(self.contract.operations))
            raise self._failed(
                InputError(f"at.does({name!r}): no operation of {type(self.contract).__name__}; {known}")
            )
        operation = _Operation(self, Call(name, tuple(fields.items())), reply, refused)
        lane = self.execution.lane
        assert lane is not None
        lane.opens = operation.begin
        try:
            result = method()
            if inspect.isawaitable(result):
                operation.begin()
                return self._awaited(operation, result)
        except BaseException as error:
            operation.stop(error)
            raise
        operation.finish(result)
        return result

    async def _awaited(self, operation: _Operation, result: Awaitable[Any]) -> Any:
        try:
            value = await result
        except BaseException as error:
            operation.stop(error)
            raise
        operation.finish(value)
        return value

    def tell(self, what: Callable[[], Any]) -> Any:
        """Ask the judge, and keep what it cannot judge."""
        if self.is_over:
            return None
        try:
            self.judge.at(self.execution.shard.now_ms)
            return what()
        except InputError as error:
            raise self._failed(error) from None

    def _failed(self, error: InputError) -> InputError:
        self.failure, self.is_over = error, True
        return error


class _Operation:
    """One call of a method."""

    def __init__(self, history: OperationHistory, call: Call, reply: Callable[[Any], Any] | None, refused: Any) -> None:
        self.history, self.call, self.reply, self.refused = history, call, reply, refused
        self.lane = history.execution.lane
        self.number = 0

    def begin(self) -> None:
        """Its first step is made now."""
        history = self.history
        if self.lane is not None:
            self.lane.opens = None
        if not self.number:
            history.count += 1
            self.number = history.count
            history.execution.touched.reads.add(REPLIES)
            history.tell(lambda: history.judge.begin(self.number, self.call))

    def finish(self, result: Any) -> None:
        """It has returned."""
        self._replied(plain(result if self.reply is None else self.reply(result)))

    def _replied(self, reply: Any) -> None:
        self.begin()
        history = self.history
        history.execution.touched.writes.add(REPLIES)
        violation = history.tell(lambda: history.judge.finish(self.number, reply))
        if violation is not None:
            history.is_over = True
            history.violate(violation.laws[0], violation.text)

    def stop(self, error: BaseException) -> None:
        """It ended in an exception: whether it took effect is open, unless that is how it refuses. Without a step it
        did nothing."""
        history = self.history
        if self.number and isinstance(error, self.refused):
            return self._replied(None)
        if self.lane is not None:
            self.lane.opens = None
        if self.number and not history.is_over:
            history.execution.touched.writes.add(REPLIES)
            history.tell(lambda: history.judge.stop(self.number, f"{self.call} ended in an exception", False))
