"""The small pipeline put together: its initial state and every next step, what goes wrong included.

Each fault costs one of ``faults_left``.
"""

from __future__ import annotations

from collections.abc import Callable

from orderlab.model.pipeline.nodes import begin_session, consuming, delivering, driving, publishing, replication, write
from orderlab.model.pipeline.state import (
    NodeState,
    PipelineFault,
    PipelineScope,
    PipelineState,
    PipelineStep,
    Protocol,
    Steps,
    StoreCommand,
    node_name,
    with_node,
)


def initial(protocol: Protocol, scope: PipelineScope) -> PipelineState:
    """Nothing published; the subscriber is connected to the first node if the scope says so."""
    state = PipelineState(nodes=tuple(NodeState() for _ in range(scope.nodes)), faults_left=scope.fault_budget)
    return begin_session(state, protocol, scope, 0) if scope.starts_connected else state


def own_steps(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """What the system does by itself."""
    yield from publishing(state, protocol, scope)
    yield from driving(state, protocol, scope)
    yield from consuming(state, protocol, scope)
    yield from delivering(state, protocol, scope)


def steps(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """What the system does, and what is done to it."""
    yield from own_steps(state, protocol, scope)
    yield from faults(state, protocol, scope)


def faults(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """Every fault of the scope that can strike now."""
    if PipelineFault.REDIS_FAILOVER in scope.faults and not protocol.wait_for_replica and state.replica != state.store:
        yield replication(state)
    if not state.faults_left:
        return
    struck = state._replace(faults_left=state.faults_left - 1)
    for fault in sorted(scope.faults):
        for detail, after in STRIKES[fault](struck, protocol, scope):
            yield PipelineStep("fault", fault.value, detail), after


def unanswered(node: NodeState) -> tuple[StoreCommand, ...]:
    """What the driver sent and has no answer to, in order; what it had buffered comes after."""
    return tuple(answer.command for answer in node.answers) + node.sent + node.buffer


def producer_retry(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The oldest produce request fails, or its answer is lost; the producer sends it again behind the others."""
    if not state.producing:
        return []
    message, *rest = state.producing
    failed = state._replace(producing=(*rest, message))
    if protocol.idempotent_producer and any(earlier not in state.log for earlier in range(1, message)):
        return [(f"m{message} fails", failed)]
    answer_lost = state._replace(producing=(*rest, message), log=(*state.log, message))
    if message in state.log:
        answer_lost = failed
    return [(f"m{message} fails", failed), (f"m{message} arrives, its answer is lost", answer_lost)]


def kafka_leader_change(
    state: PipelineState, protocol: Protocol, scope: PipelineScope
) -> list[tuple[str, PipelineState]]:
    """The leader dies; the follower's log is the log. What was not acknowledged is sent again."""
    lost = tuple(message for message in state.log[state.replicated :] if message not in state.acknowledged)
    return [("", state._replace(log=state.log[: state.replicated], producing=lost + state.producing))]


def broker_crash(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """A node restarts from the committed offset; what it had sent may still be executed, or not."""
    outcomes = []
    for index, node in enumerate(state.nodes):
        fresh = NodeState(position=state.committed, generation=node.generation)
        down = with_node(state, index, fresh)
        if node.session is not None and node.session.connection == state.connection:
            down = down._replace(connected=False, to_acknowledge=())
        outcomes.append((node_name(index), down))
        if node.sent:
            outcomes.append((f"{node_name(index)}, its commands still on the way", down._replace(orphans=node.sent)))
    return outcomes


def pack_timeout(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """Redis stalls longer than the pack waits: the save is sent again while the first one still stands."""
    return [
        (node_name(index), with_node(state, index, write(node, node.packs[0], scope)))
        for index, node in enumerate(state.nodes)
        if node.packs and node.packs[0] in node.sent
    ]


def rebalance(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The partition moves to another node, which reads from the committed offset; the old one goes on unaware."""
    outcomes = []
    for index, node in enumerate(state.nodes):
        if index != state.owner:
            generation = state.generation + 1
            polled = state.nodes[state.owner].position
            committed = max(state.committed, polled) if protocol.commit_on_revoke else state.committed
            reader = node._replace(position=committed, packs=(), generation=generation)
            moved = state._replace(owner=index, generation=generation, committed=committed)
            outcomes.append((f"to {node_name(index)}", with_node(moved, index, reader)))
    return outcomes


def connection_loss(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The connection to Redis breaks and comes back; the driver sends every unanswered command again."""
    return [
        (node_name(index), with_node(state, index, node._replace(sent=unanswered(node), answers=(), buffer=())))
        for index, node in enumerate(state.nodes)
        if node.answers
    ]


def script_flush(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The script cache is emptied (SCRIPT FLUSH, or a failover to a node that never had it)."""
    return [("", state._replace(script_loaded=False))] if state.script_loaded else []


def redis_failover(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The master dies, the replica takes over with what it has; drivers reconnect and send again."""
    after = state._replace(store=state.replica)
    for index, node in enumerate(state.nodes):
        after = with_node(after, index, node._replace(sent=unanswered(node), answers=(), buffer=()))
    return [("", after)]


def slot_migration(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The client's slot starts to migrate; the next save meets a key that is not there."""
    return [("", state._replace(migrating=True))] if not state.migrating else []


def disconnect(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The subscriber's connection breaks: what is on the socket is lost."""
    if not state.connected:
        return []
    after = state._replace(connected=False, to_acknowledge=())
    for index, node in enumerate(state.nodes):
        after = with_node(after, index, node._replace(session=None))
    return [("", after)]


def takeover(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> list[tuple[str, PipelineState]]:
    """The subscriber connects to another node while its old connection still looks alive."""
    outcomes = []
    for index, node in enumerate(state.nodes):
        if state.connected and node.session is None:
            after = begin_session(state, protocol, scope, index)
            outcomes.append((f"to {node_name(index)}", after))
    return outcomes


Strike = Callable[[PipelineState, Protocol, PipelineScope], list[tuple[str, PipelineState]]]

STRIKES: dict[PipelineFault, Strike] = {
    PipelineFault.PRODUCER_RETRY: producer_retry,
    PipelineFault.KAFKA_LEADER_CHANGE: kafka_leader_change,
    PipelineFault.BROKER_CRASH: broker_crash,
    PipelineFault.PACK_TIMEOUT: pack_timeout,
    PipelineFault.REBALANCE: rebalance,
    PipelineFault.REDIS_CONNECTION_LOSS: connection_loss,
    PipelineFault.SCRIPT_CACHE_FLUSH: script_flush,
    PipelineFault.REDIS_FAILOVER: redis_failover,
    PipelineFault.SLOT_MIGRATION: slot_migration,
    PipelineFault.DISCONNECT: disconnect,
    PipelineFault.TAKEOVER: takeover,
}
