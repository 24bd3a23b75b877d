"""Publisher → front broker → Kafka: produce requests in flight, leader log, follower, PUBACK."""

from __future__ import annotations

from orderlab.model.pipeline.protocol import Protocol, Scope
from orderlab.model.pipeline.state import State
from orderlab.model.pipeline.step import Step, Steps


def publishing(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """Publish in order, append at the leader, copy to the follower."""
    if state.published < scope.messages and len(state.producing) < scope.producer_requests_in_flight:
        message = state.published + 1
        yield (
            Step("publisher", "publish", f"m{message}"),
            state._replace(published=message, producing=(*state.producing, message)),
        )
    if state.producing:
        message, *rest = state.producing
        yield Step("kafka", "append", f"m{message}"), append(state, protocol, message, tuple(rest))
    if state.replicated < len(state.log):
        replicated = state._replace(replicated=state.replicated + 1)
        if protocol.acks_all:
            replicated = puback(replicated, state.log[state.replicated])
        yield Step("kafka", "replicate", f"m{state.log[state.replicated]}"), replicated


def append(state: State, protocol: Protocol, message: int, rest: tuple[int, ...]) -> State:
    """The leader takes the oldest request. An idempotent one is dropped when known and put back when too early."""
    if protocol.idempotent_producer:
        if message in state.log:
            return state._replace(producing=rest)
        if any(earlier not in state.log for earlier in range(1, message)):
            return state._replace(producing=(*rest, message))
    appended = state._replace(producing=rest, log=(*state.log, message))
    return appended if protocol.acks_all else puback(appended, message)


def puback(state: State, message: int) -> State:
    """The publish is acknowledged to the publisher."""
    return state._replace(acknowledged=state.acknowledged | {message})
