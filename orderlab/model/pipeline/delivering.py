"""From the store to the subscriber: session actor, replay, inflight window, socket, acknowledgement."""

from __future__ import annotations

from orderlab.model.pipeline.driving import write
from orderlab.model.pipeline.protocol import Delivery, Protocol, Scope
from orderlab.model.pipeline.state import Answer, Command, Delivered, Node, Saved, Session, State
from orderlab.model.pipeline.step import Step, Steps, node_name, with_node


def begin_session(state: State, protocol: Protocol, scope: Scope, index: int) -> State:
    """The subscriber's new connection reaches node ``index``, which starts the replay."""
    connection = state.connection + 1
    if protocol.takeover_waits:
        for other, node in enumerate(state.nodes):
            state = with_node(state, other, node._replace(session=None))
    state = state._replace(connection=connection, connected=True, to_acknowledge=())
    node = state.nodes[index]._replace(session=Session(connection))
    return with_node(state, index, write(node, fetch_command(node, protocol, scope), scope))


def fetch_command(node: Node, protocol: Protocol, scope: Scope) -> Command:
    """Read on after the cursor: as much as the window allows (pull), or all there is (push)."""
    session = node.session
    assert session is not None
    pulls = protocol.delivery is Delivery.PULL
    count = scope.receive_maximum - len(session.inflight) if pulls else scope.messages * 2
    return Command("fetch", sequence=session.cursor, at_most=count, connection=session.connection)


def hand_over(state: State, protocol: Protocol, scope: Scope, answer: Answer) -> State:
    """A save was answered: wake every session (pull), or give it the messages (push)."""
    if protocol.online_decided_at_save and not answer.command.online:
        return state
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is None:
            continue
        if protocol.delivery is Delivery.PULL:
            session = session._replace(awake=True)
        elif protocol.delivery is Delivery.PUSH_HELD and session.fetching:
            session = session._replace(held=session.held + answer.saved)
        else:
            session = push(session, protocol, scope, answer.saved)
        state = with_node(state, index, node._replace(session=session))
    return state


def push(session: Session, protocol: Protocol, scope: Scope, saved: tuple[Saved, ...]) -> Session:
    """Put on the socket what the session has not sent yet; hold back, or drop, what the window has no room for."""
    waiting = session.held + saved
    session = session._replace(held=())
    for index, one in enumerate(waiting):
        if one.sequence <= session.cursor and protocol.delivery is not Delivery.PUSH:
            continue
        if len(session.inflight) >= scope.receive_maximum:
            return session if protocol.drop_over_window else session._replace(held=waiting[index:])
        session = send(session, one)
    return session


def send(session: Session, saved: Saved) -> Session:
    """One PUBLISH leaves on the socket."""
    return session._replace(
        cursor=max(session.cursor, saved.sequence),
        inflight=(*session.inflight, saved.sequence),
        socket=(*session.socket, saved),
    )


def answer_fetch(state: State, protocol: Protocol, scope: Scope, index: int, answer: Answer) -> State:
    """The replay's page arrives: send it, then what was held; read on if there may be more."""
    node = state.nodes[index]
    session = node.session
    if session is None or session.connection != answer.command.connection:
        return state
    held = session.held
    session = push(session._replace(fetching=False, held=()), protocol, scope, answer.saved + held)
    if answer.saved:
        session = session._replace(awake=protocol.delivery is Delivery.PULL)
    return with_node(state, index, node._replace(session=session))


def delivering(state: State, protocol: Protocol, scope: Scope) -> Steps:
    """Connect, read on, receive, acknowledge."""
    if not state.connected and state.connection < 2:
        for index in range(len(state.nodes)):
            after = begin_session(state, protocol, scope, index)
            yield Step("subscriber", "connect", f"to {node_name(index)}"), after
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is None:
            continue
        if session.awake and not session.fetching and len(session.inflight) < scope.receive_maximum:
            asking = node._replace(session=session._replace(awake=False, fetching=True))
            after = with_node(state, index, write(asking, fetch_command(asking, protocol, scope), scope))
            yield Step(node_name(index), "read the store", f"after {session.cursor}"), after
        if session.socket:
            saved, *rest = session.socket
            delivered = Delivered(saved.message, saved.sequence, session.connection)
            received = with_node(state, index, node._replace(session=session._replace(socket=tuple(rest))))
            yield (
                Step("subscriber", "receive", f"m{saved.message} from {node_name(index)}"),
                received._replace(
                    delivered=(*state.delivered, delivered), to_acknowledge=(*state.to_acknowledge, delivered)
                ),
            )
    if state.to_acknowledge:
        yield acknowledge(state, protocol, scope)


def acknowledge(state: State, protocol: Protocol, scope: Scope) -> tuple[Step, State]:
    """The subscriber acknowledges the oldest PUBLISH; its node removes the message from the store."""
    delivered, *rest = state.to_acknowledge
    after = state._replace(to_acknowledge=tuple(rest))
    for index, node in enumerate(state.nodes):
        session = node.session
        if session is not None and session.connection == delivered.connection:
            inflight = tuple(one for one in session.inflight if one != delivered.sequence)
            session = push(session._replace(inflight=inflight), protocol, scope, ())
            node = node._replace(session=session)
            remove = Command("remove", sequence=delivered.sequence)
            after = with_node(after, index, write(node, remove, scope))
    return Step("subscriber", "acknowledge", f"m{delivered.message}"), after
