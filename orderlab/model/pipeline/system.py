"""The small pipeline as a system of nodes: what each does by itself, what goes wrong, and every next state.

In the order of a message: the front broker produces to Kafka and answers the publisher. The consumer of a node polls a
pack, submits its save, and commits the offset when the save is answered. The driver has one pipelined connection per
node, optional batching, answers in order. The session store offers save, fetch, remove, each atomic unless the protocol
says otherwise. The session replays what it fetched, keeps an inflight window, sends, and removes what is acknowledged.
Each fault costs one of ``faults_left``.
"""

from __future__ import annotations

from collections.abc import Callable

from orderlab.model.pipeline.state import (
    Delivered,
    DeliveryMode,
    PipelineFault,
    PipelineNode,
    PipelineScope,
    PipelineState,
    PipelineStep,
    Protocol,
    SavedMessage,
    SessionState,
    Steps,
    StoreAnswer,
    StoreCommand,
    StoreContent,
    node_name,
    with_node,
)


def publishing(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """Publish in order, append at the leader, copy to the follower."""
    if state.published < scope.messages and len(state.producing) < scope.producer_requests_in_flight:
        message = state.published + 1
        yield (
            PipelineStep("publisher", "publish", f"m{message}"),
            state._replace(published=message, producing=(*state.producing, message)),
        )
    if state.producing:
        message, *rest = state.producing
        yield PipelineStep("kafka", "append", f"m{message}"), append(state, protocol, message, tuple(rest))
    if state.replicated < len(state.log):
        replicated = state._replace(replicated=state.replicated + 1)
        if protocol.acks_all:
            replicated = puback(replicated, state.log[state.replicated])
        yield PipelineStep("kafka", "replicate", f"m{state.log[state.replicated]}"), replicated


def append(state: PipelineState, protocol: Protocol, message: int, rest: tuple[int, ...]) -> PipelineState:
    """The leader takes the oldest request. An idempotent one is dropped when known and put back when too early."""
    if protocol.idempotent_producer:
        if message in state.log:
            return state._replace(producing=rest)
        if any(earlier not in state.log for earlier in range(1, message)):
            return state._replace(producing=(*rest, message))
    appended = state._replace(producing=rest, log=(*state.log, message))
    return appended if protocol.acks_all else puback(appended, message)


def puback(state: PipelineState, message: int) -> PipelineState:
    """The publish is acknowledged to the publisher."""
    return state._replace(acknowledged=state.acknowledged | {message})


def consuming(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """Poll records below the high watermark; take in the oldest answer of the connection."""
    for index, node in enumerate(state.nodes):
        if state.owner == index and len(node.packs) < protocol.packs_in_flight and node.position < state.replicated:
            pack = state.log[node.position : min(state.replicated, node.position + scope.pack_size)]
            online = any(other.session is not None for other in state.nodes)
            command = StoreCommand("save", node.position, pack, online=online, generation=node.generation)
            polled = node._replace(position=node.position + len(pack), packs=(*node.packs, command))
            detail = ", ".join(f"m{message}" for message in pack)
            yield (
                PipelineStep(node_name(index), "poll and save", detail),
                with_node(state, index, write(polled, command, scope)),
            )
        if readable(state, protocol, node):
            yield take_answer(state, protocol, scope, index, node)


def take_answer(
    state: PipelineState, protocol: Protocol, scope: PipelineScope, index: int, node: PipelineNode
) -> tuple[PipelineStep, PipelineState]:
    """The node reads the oldest answer. NOSCRIPT: load the script and send the command again, behind all others."""
    answer, *rest = node.answers
    node = node._replace(answers=tuple(rest))
    actor, command = node_name(index), answer.command
    if answer.status == "noscript":
        again = with_node(state, index, write(node, command, scope))
        return PipelineStep(actor, "load script, send again", command.kind), again._replace(script_loaded=True)
    if answer.status == "error":
        return PipelineStep(actor, "save failed, send again"), with_node(state, index, write(node, command, scope))
    state = with_node(state, index, node)
    if answer.saved:
        exposed = max(state.exposed_sequence, answer.saved[-1].sequence)
        state = state._replace(exposed_sequence=exposed)
    if command.kind == "save":
        return PipelineStep(actor, "save answered, commit offset"), save_answered(state, protocol, scope, index, answer)
    if command.kind == "fetch":
        return PipelineStep(actor, "fetch answered", names(answer)), answer_fetch(state, protocol, scope, index, answer)
    return PipelineStep(actor, "remove answered"), state


def save_answered(
    state: PipelineState, protocol: Protocol, scope: PipelineScope, index: int, answer: StoreAnswer
) -> PipelineState:
    """Commit the offset and tell the session."""
    node, command = state.nodes[index], answer.command
    if command in node.packs:
        place = node.packs.index(command)
        node = node._replace(packs=node.packs[:place] + node.packs[place + 1 :])
        state = with_node(state, index, node)
        if not protocol.fenced_commit or command.generation == state.generation:
            state = state._replace(committed=command.offset + len(command.messages))
    return hand_over(state, protocol, scope, answer)


def names(answer: StoreAnswer) -> str:
    """The messages of an answer."""
    return ", ".join(f"m{saved.message}" for saved in answer.saved) or "nothing"


def write(node: PipelineNode, command: StoreCommand, scope: PipelineScope) -> PipelineNode:
    """The node writes ``command`` to its driver, which flushes when ``flush_at`` commands are buffered."""
    buffer, count = (*node.buffer, command), node.buffered_count + 1
    if count >= scope.flush_at:
        return node._replace(buffer=(), buffered_count=0, sent=node.sent + buffer)
    return node._replace(buffer=buffer, buffered_count=count)


def driving(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """Flush by timer, execute the oldest command of a connection, copy to the replica."""
    for index, node in enumerate(state.nodes):
        yield from flushing(state, protocol, index, node)
        if node.sent:
            command, *rest = node.sent
            after, answer = run(state, protocol, command)
            busy = node._replace(sent=tuple(rest), answers=(*node.answers, answer))
            yield (
                PipelineStep("redis", command.kind, f"for {node_name(index)}: {describe(command)}"),
                with_node(after, index, busy),
            )
    if state.orphans:
        command, *left = state.orphans
        after, _ = run(state, protocol, command)
        yield (
            PipelineStep("redis", command.kind, f"left by a dead connection: {describe(command)}"),
            after._replace(orphans=tuple(left)),
        )
    if protocol.wait_for_replica and state.replica != state.store:
        yield replication(state)


def replication(state: PipelineState) -> tuple[PipelineStep, PipelineState]:
    """The replica catches up with the master."""
    return PipelineStep("redis", "replicate"), state._replace(replica=state.store)


def flushing(state: PipelineState, protocol: Protocol, index: int, node: PipelineNode) -> Steps:
    """The timer flushes what the counter says is waiting. Resetting the counter in a second step is specimen B11."""
    actor = node_name(index)
    if node.timer_midway:
        reset = node._replace(timer_midway=False, buffered_count=0)
        yield PipelineStep(actor, "reset flush counter"), with_node(state, index, reset)
    elif node.buffered_count:
        flushed = node._replace(buffer=(), sent=node.sent + node.buffer)
        flushed = flushed._replace(buffered_count=0) if protocol.atomic_flush else flushed._replace(timer_midway=True)
        yield PipelineStep(actor, "flush by timer"), with_node(state, index, flushed)


def readable(state: PipelineState, protocol: Protocol, node: PipelineNode) -> bool:
    """Whether the oldest answer of ``node`` may count: with WAIT, only when the replica has what it tells of."""
    if not node.answers:
        return False
    answer = node.answers[0]
    waits = protocol.wait_for_replica and answer.status == "ok"
    return not waits or state.replica.version >= answer.version


def describe(command: StoreCommand) -> str:
    """What a reader of a witness wants to know of a command."""
    if command.kind == "save":
        return f"offset {command.offset}, " + ", ".join(f"m{message}" for message in command.messages)
    return f"after {command.sequence}" if command.kind == "fetch" else f"sequence {command.sequence}"


def run(state: PipelineState, protocol: Protocol, command: StoreCommand) -> tuple[PipelineState, StoreAnswer]:
    """Redis executes ``command`` on the master."""
    if command.kind != "remove" and not state.script_loaded:
        return state, StoreAnswer(command, "noscript")
    if command.kind == "save":
        return save(state, protocol, command)
    store = state.store
    if command.kind == "fetch":
        found = tuple(saved for saved in store.queue if saved.sequence > command.sequence)[: command.at_most]
        return state, StoreAnswer(command, "ok", found, store.version)
    gone = frozenset(saved.message for saved in store.queue if saved.sequence == command.sequence)
    if gone:
        queue = tuple(saved for saved in store.queue if saved.sequence != command.sequence)
        store = store._replace(queue=queue, version=store.version + 1)
        state = state._replace(store=store, removed=state.removed | gone)
    return state, StoreAnswer(command, "ok", (), store.version)


def save(state: PipelineState, protocol: Protocol, command: StoreCommand) -> tuple[PipelineState, StoreAnswer]:
    """Append the messages of the batch that the mark does not already cover."""
    store = state.store
    known = max(store.mark - command.offset, 0) if protocol.idempotent_save else 0
    fresh = command.messages[known:]
    if not fresh:
        again = tuple(saved for saved in store.queue if saved.message in command.messages)
        return state, StoreAnswer(command, "ok", again, store.version)
    if state.migrating:
        state = state._replace(migrating=False)
        if protocol.atomic_save:
            return state, StoreAnswer(command, "error")
        torn = appended(store, fresh[:-1], store.mark)
        return state._replace(store=torn, torn=len(fresh) > 1), StoreAnswer(command, "error")
    after = appended(store, fresh, max(store.mark, command.offset + len(command.messages)))
    return state._replace(store=after), StoreAnswer(command, "ok", after.queue[len(store.queue) :], after.version)


def appended(store: StoreContent, messages: tuple[int, ...], mark: int) -> StoreContent:
    """``store`` with ``messages`` at its end, under the next sequences."""
    last = store.last_sequence
    fresh = tuple(SavedMessage(last + 1 + index, message) for index, message in enumerate(messages))
    return StoreContent(last + len(messages), store.queue + fresh, mark, store.version + 1)


def begin_session(state: PipelineState, protocol: Protocol, scope: PipelineScope, index: int) -> PipelineState:
    """The subscriber's new connection reaches node ``index``, which starts the replay."""
    connection = state.connection + 1
    if protocol.takeover_waits:
        for other, node in enumerate(state.nodes):
            state = with_node(state, other, node._replace(session=None))
    state = state._replace(connection=connection, connected=True, to_acknowledge=())
    node = state.nodes[index]._replace(session=SessionState(connection))
    return with_node(state, index, write(node, fetch_command(node, protocol, scope), scope))


def fetch_command(node: PipelineNode, protocol: Protocol, scope: PipelineScope) -> StoreCommand:
    """Read on after the cursor: as much as the window allows (pull), or all there is (push)."""
    session = node.session
    assert session is not None
    pulls = protocol.delivery is DeliveryMode.PULL
    count = scope.receive_maximum - len(session.inflight) if pulls else scope.messages * 2
    return StoreCommand("fetch", sequence=session.cursor, at_most=count, connection=session.connection)


def hand_over(state: PipelineState, protocol: Protocol, scope: PipelineScope, answer: StoreAnswer) -> PipelineState:
    """A save was answered: wake every session (pull), or give it the messages (push)."""
    if protocol.online_decided_at_save and not answer.command.online:
        return state
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is None:
            continue
        if protocol.delivery is DeliveryMode.PULL:
            session = session._replace(awake=True)
        elif protocol.delivery is DeliveryMode.PUSH_HELD and session.fetching:
            session = session._replace(held=session.held + answer.saved)
        else:
            session = push(session, protocol, scope, answer.saved)
        state = with_node(state, index, node._replace(session=session))
    return state


def push(
    session: SessionState, protocol: Protocol, scope: PipelineScope, saved: tuple[SavedMessage, ...]
) -> SessionState:
    """Put on the socket what the session has not sent yet; hold back, or drop, what the window has no room for."""
    waiting = session.held + saved
    session = session._replace(held=())
    for index, one in enumerate(waiting):
        if one.sequence <= session.cursor and protocol.delivery is not DeliveryMode.PUSH:
            continue
        if len(session.inflight) >= scope.receive_maximum:
            return session if protocol.drop_over_window else session._replace(held=waiting[index:])
        session = send(session, one)
    return session


def send(session: SessionState, saved: SavedMessage) -> SessionState:
    """One PUBLISH leaves on the socket."""
    return session._replace(
        cursor=max(session.cursor, saved.sequence),
        inflight=(*session.inflight, saved.sequence),
        socket=(*session.socket, saved),
    )


def answer_fetch(
    state: PipelineState, protocol: Protocol, scope: PipelineScope, index: int, answer: StoreAnswer
) -> PipelineState:
    """The replay's page arrives: send it, then what was held; read on if there may be more."""
    node = state.nodes[index]
    session = node.session
    if session is None or session.connection != answer.command.connection:
        return state
    held = session.held
    session = push(session._replace(fetching=False, held=()), protocol, scope, answer.saved + held)
    if answer.saved:
        session = session._replace(awake=protocol.delivery is DeliveryMode.PULL)
    return with_node(state, index, node._replace(session=session))


def delivering(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> Steps:
    """Connect, read on, receive, acknowledge."""
    if not state.connected and state.connection < 2:
        for index in range(len(state.nodes)):
            after = begin_session(state, protocol, scope, index)
            yield PipelineStep("subscriber", "connect", f"to {node_name(index)}"), after
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is None:
            continue
        if session.awake and not session.fetching and len(session.inflight) < scope.receive_maximum:
            asking = node._replace(session=session._replace(awake=False, fetching=True))
            after = with_node(state, index, write(asking, fetch_command(asking, protocol, scope), scope))
            yield PipelineStep(node_name(index), "read the store", f"after {session.cursor}"), after
        if session.socket:
            saved, *rest = session.socket
            delivered = Delivered(saved.message, saved.sequence, session.connection)
            received = with_node(state, index, node._replace(session=session._replace(socket=tuple(rest))))
            yield (
                PipelineStep("subscriber", "receive", f"m{saved.message} from {node_name(index)}"),
                received._replace(
                    delivered=(*state.delivered, delivered), to_acknowledge=(*state.to_acknowledge, delivered)
                ),
            )
    if state.to_acknowledge:
        yield acknowledge(state, protocol, scope)


def acknowledge(state: PipelineState, protocol: Protocol, scope: PipelineScope) -> tuple[PipelineStep, PipelineState]:
    """The subscriber acknowledges the oldest PUBLISH; its node removes the message from the store."""
    delivered, *rest = state.to_acknowledge
    after = state._replace(to_acknowledge=tuple(rest))
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is not None and session.connection == delivered.connection:
            inflight = tuple(one for one in session.inflight if one != delivered.sequence)
            session = push(session._replace(inflight=inflight), protocol, scope, ())
            node = node._replace(session=session)
            remove = StoreCommand("remove", sequence=delivered.sequence)
            after = with_node(after, index, write(node, remove, scope))
    return PipelineStep("subscriber", "acknowledge", f"m{delivered.message}"), after


def initial(protocol: Protocol, scope: PipelineScope) -> PipelineState:
    """The state in which nothing is published; the subscriber is connected to the first node if the scope says so."""
    state = PipelineState(nodes=tuple(PipelineNode() for _ in range(scope.nodes)), faults_left=scope.fault_budget)
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


def unanswered(node: PipelineNode) -> tuple[StoreCommand, ...]:
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
        fresh = PipelineNode(position=state.committed, generation=node.generation)
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
