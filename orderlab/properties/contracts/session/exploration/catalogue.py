"""What ``orderlab explore`` can explore of session stores: one system, and its parameters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.classics.catalogue import CatalogueEntry
from orderlab.model.contracts.session.contract import BUDGETS, dealt
from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.model.spec.transition_system import TransitionSystem
from orderlab.properties.contracts.session.exploration.system import EXPLORED, StoreExploration
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import CLIENT, fitted
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import Untrusted, load_binding


class Parameters(BaseModel):
    """The folder of a store, and a scope (``model/contracts/session/contract.py`` tells what the budgets mean)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    writers: int = Field(2, ge=1, le=4)
    readers: int = Field(1, ge=1, le=3)
    messages: int = Field(4, ge=1, le=12)
    limit: int = Field(2, ge=1, le=MODULUS)
    modulus: int = Field(3, ge=1, le=MODULUS)
    qos: Literal["1", "2"] = "1"
    crashes: int = Field(1, ge=0, le=9)
    lost_replies: int = Field(1, ge=0, le=9)
    duplicates: int = Field(0, ge=0, le=9)
    expiries: int = Field(1, ge=0, le=9)
    clears: int = Field(0, ge=0, le=9)
    errors: int = Field(0, ge=0, le=9)
    script_flush: int = Field(1, ge=0, le=9)
    failover: int = Field(0, ge=0, le=9)
    law: Literal["all", *EXPLORED] = "all"  # type: ignore[valid-type]

    def build(self) -> TransitionSystem[Any]:
        """The system. Raises InputError for a store that cannot be used."""
        elsewhere = f"orderlab validate {self.path}"
        try:
            binding = load_binding(self.path)
        except Untrusted as error:
            raise InputError(
                f"{str(error).partition('; ')[0]}; {elsewhere} --trust-adapter explores it, if you trust it"
            ) from None
        if binding.contract is not None:
            raise InputError(f"{binding.place}: no session store; {elsewhere} explores it")
        return explored(binding, self)


def explored(binding: Binding, chosen: Parameters, remembers: bool = True) -> StoreExploration:
    """The store of ``binding`` in the scope of the parameters."""
    budgets = {name: getattr(chosen, name) for name in BUDGETS}
    small = Subject(binding, remembers=True).scaled(min(chosen.modulus, binding.modulus))
    scope = dealt(chosen.writers, chosen.readers, chosen.messages, chosen.limit, int(chosen.qos), **budgets)
    run = small.run((CLIENT,), producers=tuple(b"p%d" % at for at in range(max(chosen.writers, 2))))
    told = {**chosen.model_dump(), "qos": int(chosen.qos), "path": str(binding.path)}
    told["rewritten"] = [f"{one.file}:{one.line}: {one.after.strip()}" for one in small.rewritten]
    law = None if chosen.law == "all" else chosen.law
    return StoreExploration(small.memo, run, fitted(scope, small), law, None, remembers, told)


CATALOGUE = (
    CatalogueEntry(
        "store",
        "The real scripts of a session store among writers, readers and trouble, each step judged by the laws.",
        Parameters,
        Parameters.build,
    ),
)
