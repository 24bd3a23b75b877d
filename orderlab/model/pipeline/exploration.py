"""The small pipeline as a transition system for the explorer, with its laws as predicates of a state.

A law that speaks of "eventually" (at-least-once, drain) is checked where nothing is left to do: in a state without a
step of its own, and with the subscriber connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orderlab.model.pipeline.specimens import PUBLISHED, REPAIRED, SPECIMENS
from orderlab.model.pipeline.state import PipelineFault, PipelineNode, PipelineScope, PipelineState, Protocol, node_name
from orderlab.model.pipeline.system import initial, own_steps, steps
from orderlab.model.spec.transition_system import Invariant, Label, Law, Sometimes, TransitionSystem

Holds = Callable[[PipelineState, Protocol, PipelineScope], bool]


def fifo(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """First deliveries come in publish order."""
    first = list(dict.fromkeys(delivered.message for delivered in state.delivered))
    return first == sorted(first)


def exactly_once(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """One message never comes under two packet identifiers: the receiver could not tell the second from a new one."""
    identities = {(delivered.message, delivered.sequence) for delivered in state.delivered}
    return len(identities) == len({message for message, _ in identities})


def retransmission(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """Once a newer connection has delivered, an older one delivers nothing (MQTT-3.1.4-3, MQTT-4.4.0-1)."""
    connections = [delivered.connection for delivered in state.delivered]
    return connections == sorted(connections)


def at_least_once(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """What was acknowledged to the publisher is in the log, or in the store, or was delivered."""
    stored = {saved.message for saved in state.store.queue}
    delivered = {one.message for one in state.delivered}
    return all(
        message in state.log or message in state.producing or message in stored or message in delivered
        for message in state.acknowledged
    )


def no_loss(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """What the consumer has committed is in the store until the subscriber has acknowledged it."""
    stored = {saved.message for saved in state.store.queue}
    return all(message in stored or message in state.removed for message in state.log[: state.committed])


def counter(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """The store's counter never falls behind a sequence that it has handed out."""
    return state.store.last_sequence >= state.exposed_sequence


def all_or_nothing(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """No save has left a part of its batch."""
    return not state.torn


def drain(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> bool:
    """When nothing is left to do and the subscriber is connected, everything published has been delivered."""
    if not state.connected or any(True for _ in own_steps(state, protocol, scope)):
        return True
    delivered = {one.message for one in state.delivered}
    return state.published == scope.messages and not state.store.queue and len(delivered) == state.published


LAWS: dict[str, Holds] = {
    "fifo": fifo,
    "exactly-once": exactly_once,
    "retransmission": retransmission,
    "at-least-once": at_least_once,
    "no-loss": no_loss,
    "counter": counter,
    "all-or-nothing": all_or_nothing,
    "drain": drain,
}


def place_of(state: PipelineState, message: int) -> str:
    """Where a message is that was published."""
    for saved in state.store.queue:
        if saved.message == message:
            return f"is in the store under sequence {saved.sequence}"
    if message in state.producing:
        return "is in a produce request"
    if message in state.log:
        return "is in the Kafka log and nowhere behind it"
    return "is nowhere"


def why(law: str, state: PipelineState) -> str:
    """What of a state breaks a law, in one sentence."""
    stored = {saved.message for saved in state.store.queue}
    delivered = list(dict.fromkeys(one.message for one in state.delivered))
    match law:
        case "fifo":
            return f"first deliveries came as {', '.join(f'm{message}' for message in delivered)}"
        case "exactly-once":
            sequences: dict[int, set[int]] = {}
            for one in state.delivered:
                sequences.setdefault(one.message, set()).add(one.sequence)
            twice = next(message for message, of in sequences.items() if len(of) > 1)
            return f"m{twice} was delivered under the sequences {', '.join(map(str, sorted(sequences[twice])))}"
        case "retransmission":
            return f"connections delivered in the order {', '.join(str(one.connection) for one in state.delivered)}"
        case "at-least-once":
            lost = [m for m in state.acknowledged if place_of(state, m) == "is nowhere" and m not in delivered]
            return f"m{lost[0]} was acknowledged to its publisher, was not delivered, and is nowhere" if lost else ""
        case "no-loss":
            gone = [m for m in state.log[: state.committed] if m not in stored and m not in state.removed]
            return f"the consumer committed m{gone[0]}, which is not in the store and was not acknowledged"
        case "counter":
            return f"the store counts {state.store.last_sequence}, and {state.exposed_sequence} was handed out before"
        case "drain":
            left = [m for m in range(1, state.published + 1) if m not in delivered or m in stored]
            stuck = "; ".join(f"m{m} {place_of(state, m)}" for m in left) or "not everything was published"
            seen = ", ".join(f"m{m}" for m in left if m not in delivered)
            never = f" and {seen} was never delivered" if seen else ""
            return f"{stuck}{never}, and it stays so: the subscriber is connected, and nobody has a step left"
    return ""


ANTECEDENTS: dict[str, Callable[[PipelineState], bool]] = {
    "fifo": lambda state: len({one.message for one in state.delivered}) > 1,
    "exactly-once": lambda state: bool(state.delivered),
    "retransmission": lambda state: bool(state.delivered),
    "at-least-once": lambda state: bool(state.acknowledged),
    "no-loss": lambda state: state.committed > 0,
    "counter": lambda state: state.exposed_sequence > 0,
    "all-or-nothing": lambda state: state.store.last_sequence > 0,
}
"""When a law has something to say. A law that is missing here speaks of every state."""


class Pipeline(TransitionSystem[PipelineState]):
    """The protocol in its scope, with every pipeline law. Stopping is right anywhere: ``drain`` judges where."""

    name: ClassVar[str] = "pipeline"
    deadlock_is_violation: ClassVar[bool] = False

    def __init__(
        self, protocol: Protocol = REPAIRED, scope: PipelineScope | None = None, law: str | None = None
    ) -> None:
        self.protocol = protocol
        self.scope = scope or PipelineScope()
        self.law = law
        """Judge only this law, so that the shortest witness is its own; None: all."""

    def initial_states(self) -> Iterable[PipelineState]:
        return [initial(self.protocol, self.scope)]

    def successors(self, state: PipelineState) -> Iterable[tuple[Label, PipelineState]]:
        for step, after in steps(state, self.protocol, self.scope):
            yield Label(step.actor, step.action, (("what", step.detail),) if step.detail else ()), after

    def parameters(self) -> Mapping[str, Any]:
        repaired = asdict(REPAIRED)
        flaws = {name: str(value) for name, value in asdict(self.protocol).items() if value != repaired[name]}
        scope = asdict(self.scope) | {"faults": ", ".join(sorted(self.scope.faults)) or "none"}
        return {**scope, "protocol": flaws or "repaired"}

    def laws(self) -> Sequence[Law]:
        found: list[Law] = [self._invariant(name) for name in LAWS if name != "fifo" or self.scope.messages > 1]
        if self.law is not None:
            return [law for law in found if law.name == self.law]
        return [*found, Sometimes("everything-delivered", self._everything_delivered)]

    def is_terminal(self, state: PipelineState) -> bool:
        return not any(True for _ in own_steps(state, self.protocol, self.scope))

    def describe(self, state: PipelineState) -> Mapping[str, Any]:
        return state_of_pipeline(state)

    def _invariant(self, name: str) -> Invariant[PipelineState]:
        law = LAWS[name]
        holds = law.__doc__ or ""
        return Invariant(
            name,
            lambda state: law(state, self.protocol, self.scope),
            ANTECEDENTS.get(name),
            statement=holds,
            why=lambda state: why(name, state),
        )

    def _everything_delivered(self, state: PipelineState) -> bool:
        return len({one.message for one in state.delivered}) == self.scope.messages


class PipelineParameters(BaseModel):
    """What the command line may set: a specimen by name, or a protocol and a scope of one's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    specimen: Literal["none", *SPECIMENS] = "none"  # type: ignore[valid-type]
    neighbour: bool = False
    """With a specimen: explore the protocol beside it that lacks the flaw."""
    law: Literal["all", *LAWS] = "all"  # type: ignore[valid-type]
    protocol: Literal["repaired", "published"] = "repaired"
    messages: int = Field(2, ge=1, le=5)
    nodes: int = Field(1, ge=1, le=3)
    pack_size: int = Field(1, ge=1, le=5)
    flush_at: int = Field(1, ge=1, le=5)
    receive_maximum: int = Field(2, ge=1, le=10)
    fault: str = ""
    """Faults that may strike, separated by commas; empty: none."""
    fault_budget: int = Field(1, ge=0, le=4)

    @field_validator("fault")
    @classmethod
    def known_faults(cls, value: str) -> str:
        """Each by the name that operators use."""
        for name in filter(None, value.split(",")):
            if name.strip() not in list(PipelineFault):
                raise ValueError(f'unknown fault "{name.strip()}"; it is one of: {", ".join(PipelineFault)}')
        return value

    def build(self) -> Pipeline:
        """The system; a specimen brings its own scope and judges the law that it breaks."""
        law = None if self.law == "all" else self.law
        if self.specimen != "none":
            specimen = SPECIMENS[self.specimen]
            if self.neighbour:
                return Pipeline(specimen.neighbour, specimen.scope, law)
            return Pipeline(specimen.flawed, specimen.scope, law or specimen.breaks)
        faults = frozenset(PipelineFault(name.strip()) for name in self.fault.split(",") if name)
        scope = PipelineScope(
            messages=self.messages,
            nodes=self.nodes,
            pack_size=self.pack_size,
            flush_at=self.flush_at,
            receive_maximum=self.receive_maximum,
            faults=faults,
            fault_budget=self.fault_budget,
        )
        return Pipeline(REPAIRED if self.protocol == "repaired" else PUBLISHED, scope, law)


def state_of_pipeline(state: PipelineState) -> dict[str, Any]:
    """The state under the names that an operator knows."""
    found: dict[str, Any] = {
        "produce requests in flight": messages(state.producing),
        "puback": messages(sorted(state.acknowledged)),
        "kafka log": messages(state.log),
        "high watermark": state.replicated,
        "partition owner": node_name(state.owner),
        "committed offset": state.committed,
        "store": [f"{saved.sequence}: m{saved.message}" for saved in state.store.queue],
        "store counter": state.store.last_sequence,
        "replica": [f"{saved.sequence}: m{saved.message}" for saved in state.replica.queue],
        "script loaded": state.script_loaded,
        "orphaned commands": [command.kind for command in state.orphans],
        "delivered": [f"m{one.message} ({one.sequence}, connection {one.connection})" for one in state.delivered],
    }
    for index, node in enumerate(state.nodes):
        found |= {f"{node_name(index)} {key}": value for key, value in describe_node(node).items()}
    return found


def describe_node(node: PipelineNode) -> dict[str, Any]:
    """One broker node: consumer, driver, session."""
    session = node.session
    found: dict[str, Any] = {
        "next offset": node.position,
        "buffered": [command.kind for command in node.buffer],
        "sent": [command.kind for command in node.sent],
        "answers": [f"{answer.command.kind} {answer.status}" for answer in node.answers],
        "session": None,
    }
    if session is not None:
        found["session"] = f"connection {session.connection}, cursor {session.cursor}"
        found["on the socket"] = messages(saved.message for saved in session.socket)
        found["held"] = messages(saved.message for saved in session.held)
    return found


def messages(numbers: Iterable[int]) -> list[str]:
    """m1, m2, ..."""
    return [f"m{number}" for number in numbers]
