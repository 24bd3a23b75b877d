"""What ``orderlab explore`` can explore of session stores: one system, and its parameters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.classics.catalogue import CatalogueEntry
from orderlab.model.spec.transition_system import TransitionSystem
from orderlab.properties.contracts.session.exploration.scope import EXPLORED, Scope


class Parameters(BaseModel):
    """The folder of a store, and a scope (``Scope`` tells what the budgets mean)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    writers: int = Field(2, ge=1, le=4)
    readers: int = Field(1, ge=1, le=3)
    messages: int = Field(4, ge=1, le=12)
    limit: int = Field(2, ge=1, le=65535)
    modulus: int = Field(3, ge=1, le=65535)
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
        from orderlab.properties.contracts.session.exploration.system import StoreExploration
        from orderlab.sim.stores.binding.loader import load_binding

        given = self.model_dump(exclude={"path", "law"})
        scope = Scope(**{**given, "qos": int(self.qos)})
        return StoreExploration(load_binding(self.path), scope, None if self.law == "all" else self.law)


CATALOGUE = (
    CatalogueEntry(
        "store",
        "The real scripts of a session store among writers, readers and trouble, each step judged by the laws.",
        Parameters,
        Parameters.build,
    ),
)
