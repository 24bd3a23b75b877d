"""The pipeline laws as predicates of a state of the small pipeline.

A law that speaks of "eventually" (at-least-once, drain) is checked where nothing is left to do: in a state without a
step of its own, and with the subscriber connected.
"""

from __future__ import annotations

from collections.abc import Callable

from orderlab.model.pipeline.protocol import Protocol, Scope
from orderlab.model.pipeline.state import State
from orderlab.model.pipeline.system import own_steps

Holds = Callable[[State, Protocol, Scope], bool]


def fifo(state: State, protocol: Protocol, scope: Scope) -> bool:
    """First deliveries come in publish order."""
    first = list(dict.fromkeys(delivered.message for delivered in state.delivered))
    return first == sorted(first)


def exactly_once(state: State, protocol: Protocol, scope: Scope) -> bool:
    """One message never comes under two packet identifiers: the receiver could not tell the second from a new one."""
    identities = {(delivered.message, delivered.sequence) for delivered in state.delivered}
    return len(identities) == len({message for message, _ in identities})


def retransmission(state: State, protocol: Protocol, scope: Scope) -> bool:
    """Once a newer connection has delivered, an older one delivers nothing (MQTT-3.1.4-3, MQTT-4.4.0-1)."""
    connections = [delivered.connection for delivered in state.delivered]
    return connections == sorted(connections)


def at_least_once(state: State, protocol: Protocol, scope: Scope) -> bool:
    """What was acknowledged to the publisher is in the log, or in the store, or was delivered."""
    stored = {saved.message for saved in state.store.queue}
    delivered = {one.message for one in state.delivered}
    return all(
        message in state.log or message in state.producing or message in stored or message in delivered
        for message in state.acknowledged
    )


def no_loss(state: State, protocol: Protocol, scope: Scope) -> bool:
    """What the consumer has committed is in the store until the subscriber has acknowledged it."""
    stored = {saved.message for saved in state.store.queue}
    return all(message in stored or message in state.removed for message in state.log[: state.committed])


def counter(state: State, protocol: Protocol, scope: Scope) -> bool:
    """The store's counter never falls behind a sequence that it has handed out."""
    return state.store.last_sequence >= state.exposed_sequence


def all_or_nothing(state: State, protocol: Protocol, scope: Scope) -> bool:
    """No save has left a part of its batch."""
    return not state.torn


def drain(state: State, protocol: Protocol, scope: Scope) -> bool:
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


def place_of(state: State, message: int) -> str:
    """Where a message is that was published."""
    for saved in state.store.queue:
        if saved.message == message:
            return f"is in the store under sequence {saved.sequence}"
    if message in state.producing:
        return "is in a produce request"
    if message in state.log:
        return "is in the Kafka log and nowhere behind it"
    return "is nowhere"


def why(law: str, state: State) -> str:
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
