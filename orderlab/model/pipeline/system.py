"""The small pipeline put together: initial state and every next step."""

from __future__ import annotations

from orderlab.model.pipeline.consuming import consuming
from orderlab.model.pipeline.delivering import begin_session, delivering
from orderlab.model.pipeline.driving import driving
from orderlab.model.pipeline.faults import faults
from orderlab.model.pipeline.protocol import Protocol, Scope
from orderlab.model.pipeline.publishing import publishing
from orderlab.model.pipeline.state import Node, State
from orderlab.model.pipeline.step import Steps


def initial(protocol: Protocol, scope: Scope) -> State:
    """Nothing published; the subscriber is connected to the first node if the scope says so."""
    state = State(nodes=tuple(Node() for _ in range(scope.nodes)), faults_left=scope.fault_budget)
    return begin_session(state, protocol, scope, 0) if scope.starts_connected else state


def own_steps(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """What the system does by itself."""
    yield from publishing(state, protocol, scope)
    yield from driving(state, protocol, scope)
    yield from consuming(state, protocol, scope)
    yield from delivering(state, protocol, scope)


def steps(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """What the system does, and what is done to it."""
    yield from own_steps(state, protocol, scope)
    yield from faults(state, protocol, scope)
