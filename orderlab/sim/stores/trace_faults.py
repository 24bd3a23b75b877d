"""Faults of a trace on any backend: the conditions of ``orderlab.sim.redis.error_conditions``, and what can befall a
client.

A fault is a condition of the node or of a key, not an injected answer: the error comes out at whichever call a server
would raise it at, with the server's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.errors import InputError
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.error_conditions import CONDITIONS, SLOT_MIGRATES, Moment
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Effect


@contextmanager
def scratch(backend: Backend) -> Iterator[None]:
    """Whatever happens to the keys within is undone at the end."""
    with aside(backend), backend.undone():
        yield


@contextmanager
def aside(backend: Backend) -> Iterator[None]:
    """What is executed within is not the store's own doing."""
    was, backend.is_aside = backend.is_aside, True
    try:
        yield
    finally:
        backend.is_aside = was


BY_NAME = {condition.name: condition for condition in CONDITIONS}
CLIENT_DIES = "client-dies"
"""The client ends after some of the calls of an operation."""

NODE_CONDITIONS = tuple(
    condition.name
    for condition in CONDITIONS
    if (condition.settings and condition.moment is not Moment.NO_WRITE_YET) or condition is SLOT_MIGRATES
)
"""Conditions of the node that can strike inside a script; others refuse it as a whole, or end it without effect."""

PLANTED = {
    "string": (b"SET", b"planted"),
    "list": (b"RPUSH", b"planted"),
    "zset": (b"ZADD", b"0", b"planted"),
    "hash": (b"HSET", b"planted", b"planted"),
}
"""How a value of each type is put where the store does not expect it."""

ASIDE = b"\x00aside:"
"""Where the store's own value waits meanwhile."""


def can_be_made_on_server(fault: Fault) -> bool:
    """Whether plain commands bring a server that runs alone into this condition."""
    return fault.kind in ("wrong-type", CLIENT_DIES) or bool(BY_NAME[fault.kind].enter)


@contextmanager
def condition(backend: Backend, fault: Fault) -> Iterator[None]:
    """Have the backend be in the condition that ``fault`` names, within this context. Raises InputError for what it
    cannot be."""
    if fault.kind == CLIENT_DIES:
        yield  # that is between the calls
        return
    if backend.trouble:
        with backend.befalling(fault):
            yield
        return
    if fault.kind not in BY_NAME:
        raise InputError(f"fault {fault.kind!r}: unknown; one of {', '.join([*BY_NAME, CLIENT_DIES])}")
    made = BY_NAME[fault.kind]
    if fault.kind == "wrong-type":
        with _wrong_type(backend, fault):
            yield
    else:
        with backend.imposed(made, before_call=fault.at):
            yield


@contextmanager
def _wrong_type(backend: Backend, fault: Fault) -> Iterator[None]:
    """The key holds another type; what the operation left of that is taken away, the store's own value put back."""
    if fault.found not in PLANTED:
        raise InputError(f"fault wrong-type: found {fault.found!r}; one of {', '.join(PLANTED)}")
    key, kept = fault.key, ASIDE + fault.key
    with aside(backend):
        is_expected = backend.execute(b"TYPE", key) == fault.found.encode()
    if is_expected:
        yield  # it is the store's own type: nothing would be raised
        return
    name, *arguments = PLANTED[fault.found]
    with aside(backend):
        moved = backend.execute(b"RENAME", key, kept)
        was_there = not isinstance(moved, ErrorReply)
        if isinstance(moved, ErrorReply) and moved.message.startswith(b"CROSSSLOT"):
            raise InputError(
                f"fault wrong-type: {backend.describe()} keeps {key!r} in another slot than its copy; use "
                "--backend kernel"
            )
        backend.execute(name, key, *arguments)
        planted = value_of(backend, key)
    try:
        yield
    finally:
        with aside(backend):
            if value_of(backend, key) == planted:
                backend.execute(b"DEL", key)
                if was_there:
                    backend.execute(b"RENAME", kept, key)
            elif was_there:
                backend.execute(b"DEL", kept)


def value_of(backend: Backend, key: bytes) -> Reply:
    """Type and content of one key, comparable."""
    kind = backend.execute(b"TYPE", key)
    readers: dict[bytes, Sequence[bytes]] = {
        b"string": (b"GET", key),
        b"list": (b"LRANGE", key, b"0", b"-1"),
        b"zset": (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"),
        b"hash": (b"HGETALL", key),
        b"set": (b"SMEMBERS", key),
        b"stream": (b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"),
    }
    return (bytes(kind), backend.execute(*readers[kind]) if kind in readers else None)


def is_expected_type(backend: Backend, fault: Fault, perform: Callable[[], object]) -> bool:
    """Tries the operation (``perform``) without the fault. Backends other than the kernel do not show its calls: there
    only what it makes tells."""
    with aside(backend):
        is_there = backend.execute(b"TYPE", fault.key) != b"none"
    if fault.found not in PLANTED or is_there:
        return False
    effects: list[Effect] = []
    with scratch(backend):
        with backend.noting(effects):
            perform()
        if backend.execute(b"TYPE", fault.key) == fault.found.encode():
            return True
    plain = (effect for effect in effects if not effect.argv[0].lower().startswith((b"eval", b"fcall")))
    calls = {effect.argv for effect in plain if fault.key in effect.keys}
    return any(_types_taken(backend, argv, fault.key) == {fault.found} for argv in sorted(calls))


def _types_taken(backend: Backend, argv: tuple[bytes, ...], key: bytes) -> set[str]:
    """Types of ``key`` with which a call does not end in WRONGTYPE."""
    taken: set[str] = set()
    for found, (name, *arguments) in PLANTED.items():
        with scratch(backend):
            backend.execute(b"DEL", key)
            backend.execute(name, key, *arguments)
            reply = backend.execute(*argv)
        if not (isinstance(reply, ErrorReply) and reply.message.startswith(b"WRONGTYPE")):
            taken.add(found)
    return taken
