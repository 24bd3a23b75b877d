"""The session store as the pipeline sees it: save, fetch, remove, each atomic unless the protocol says otherwise."""

from __future__ import annotations

from orderlab.model.pipeline.protocol import Protocol
from orderlab.model.pipeline.state import Answer, Command, Saved, State, Store


def run(state: State, protocol: Protocol, command: Command) -> tuple[State, Answer]:
    """Redis executes ``command`` on the master."""
    if command.kind != "remove" and not state.script_loaded:
        return state, Answer(command, "noscript")
    if command.kind == "save":
        return save(state, protocol, command)
    store = state.store
    if command.kind == "fetch":
        found = tuple(saved for saved in store.queue if saved.sequence > command.sequence)[: command.at_most]
        return state, Answer(command, "ok", found, store.version)
    gone = frozenset(saved.message for saved in store.queue if saved.sequence == command.sequence)
    if gone:
        queue = tuple(saved for saved in store.queue if saved.sequence != command.sequence)
        store = store._replace(queue=queue, version=store.version + 1)
        state = state._replace(store=store, removed=state.removed | gone)
    return state, Answer(command, "ok", (), store.version)


def save(state: State, protocol: Protocol, command: Command) -> tuple[State, Answer]:
    """Append the messages of the batch that the mark does not already cover."""
    store = state.store
    known = max(store.mark - command.offset, 0) if protocol.idempotent_save else 0
    fresh = command.messages[known:]
    if not fresh:
        again = tuple(saved for saved in store.queue if saved.message in command.messages)
        return state, Answer(command, "ok", again, store.version)
    if state.migrating:
        state = state._replace(migrating=False)
        if protocol.atomic_save:
            return state, Answer(command, "error")
        torn = appended(store, fresh[:-1], store.mark)
        return state._replace(store=torn, torn=len(fresh) > 1), Answer(command, "error")
    after = appended(store, fresh, max(store.mark, command.offset + len(command.messages)))
    return state._replace(store=after), Answer(command, "ok", after.queue[len(store.queue) :], after.version)


def appended(store: Store, messages: tuple[int, ...], mark: int) -> Store:
    """``store`` with ``messages`` at its end, under the next sequences."""
    last = store.last_sequence
    fresh = tuple(Saved(last + 1 + index, message) for index, message in enumerate(messages))
    return Store(last + len(messages), store.queue + fresh, mark, store.version + 1)
