"""The contract of MQTT sessions in the nouns of every contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.model.contracts.contract import AnyTrace, Situation
from orderlab.model.contracts.session import coverage
from orderlab.model.contracts.session.scopes import SCOPES, Scope
from orderlab.model.contracts.session.steps import Step, Trace, told_step
from orderlab.model.laws import LAWS, STORE_LAWS


@dataclass(frozen=True)
class SessionTerms:
    """Of session stores, and of pending sets: a session store without ``release`` (``lua/pending``)."""

    name: str

    @property
    def laws(self) -> Mapping[str, str]:
        """Law -> statement."""
        return {law: LAWS[law].statement for law in STORE_LAWS}

    @property
    def situations(self) -> Mapping[str, Sequence[Situation]]:
        """Law -> what must come about before it has been put to the test."""
        return coverage.BY_LAW

    @property
    def scopes(self) -> Sequence[Scope]:
        """What is explored, the most telling first."""
        return SCOPES

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of this kind: it does not name a contract."""
        return "contract" not in data

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace. Raises InputError that names what is wrong where."""
        return Trace.from_json(data, place)

    def told_step(self, step: Step, trace: AnyTrace) -> str:
        """One step as a sentence."""
        assert isinstance(trace, Trace)
        return told_step(step, trace)
