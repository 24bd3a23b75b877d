"""What can stop an operation on a real server, as faults of a backend, for explorer and machines.

A condition is a state of the node, not an injected answer: the error comes out at whichever ``redis.call`` a server
would raise it at, with the server's text. Which calls those are is written down in ``sim.redis.raisable``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from model.errors import InputError
from model.trace import Fault
from sim.redis.backends import Backend, KernelBackend, ServerBackend
from sim.redis.raisable import CONDITIONS, imposed
from sim.redis.replies import ErrorReply, Reply


class Kind(NamedTuple):
    """One kind of fault, under the name that operators use."""

    name: str
    meaning: str
    on_server: bool
    """Whether a real server outside of a cluster can be brought into this condition."""


KINDS = (
    Kind("wrong-type", "a key of the store holds a value of another type", True),
    Kind("out-of-memory", "used memory is above maxmemory and nothing can be evicted", True),
    Kind("read-only", "the node is a read-only replica", True),
    Kind("too-few-replicas", "fewer replicas than min-replicas-to-write are in touch", True),
    Kind("disk-error", "the last background save failed", False),
    Kind("slot-migrates", "the hash slot is moving to another node of the cluster", False),
    Kind("killed", "SCRIPT KILL before the given call", False),
    Kind("crashed", "the node crashes before the given call", False),
    Kind("client-dies", "the client ends after the given number of the operation's calls", True),
)
NAMES = tuple(kind.name for kind in KINDS)
NODE_CONDITIONS = ("out-of-memory", "read-only", "too-few-replicas", "disk-error", "slot-migrates")

PLANTED = {
    "string": (b"SET", b"planted"),
    "list": (b"RPUSH", b"planted"),
    "zset": (b"ZADD", b"0", b"planted"),
    "hash": (b"HSET", b"planted", b"planted"),
}
"""How a value of each type is put where the store does not expect it."""

ASIDE = b"\x00aside:"
"""Where the store's own value waits meanwhile."""

RAISABLE = {row.name: row for row in CONDITIONS}


@contextmanager
def condition(backend: Backend, fault: Fault) -> Iterator[None]:
    """Within it the backend is in the condition that ``fault`` names. Raises InputError for what it cannot be."""
    if fault.kind not in NAMES:
        raise InputError(f"fault {fault.kind!r}: unknown; one of {', '.join(NAMES)}")
    if fault.kind == "wrong-type":
        with _wrong_type(backend, fault):
            yield
    elif isinstance(backend, KernelBackend):
        with _kernel_condition(backend, fault):
            yield
    elif isinstance(backend, ServerBackend):
        with _server_condition(backend, fault):
            yield
    else:
        raise InputError(f"fault {fault.kind}: {backend.describe()} cannot be brought into it; use the kernel")


@contextmanager
def _wrong_type(backend: Backend, fault: Fault) -> Iterator[None]:
    """The key holds another type; what the operation left of that is taken away, the store's own value put back."""
    if fault.found not in PLANTED:
        raise InputError(f"fault wrong-type: found {fault.found!r}; one of {', '.join(PLANTED)}")
    key, aside = fault.key, ASIDE + fault.key
    if backend.execute(b"TYPE", key) == fault.found.encode():
        yield  # it is the store's own type: nothing would be raised
        return
    name, *arguments = PLANTED[fault.found]
    was_there = not isinstance(backend.execute(b"RENAME", key, aside), ErrorReply)
    backend.execute(name, key, *arguments)
    planted = value_of(backend, key)
    try:
        yield
    finally:
        if value_of(backend, key) == planted:
            backend.execute(b"DEL", key)
            if was_there:
                backend.execute(b"RENAME", aside, key)
        elif was_there:
            backend.execute(b"DEL", aside)


def value_of(backend: Backend, key: bytes) -> Reply:
    """Type and content of one key, comparable."""
    kind = backend.execute(b"TYPE", key)
    readers: dict[bytes, Sequence[bytes]] = {
        b"string": (b"GET", key),
        b"list": (b"LRANGE", key, b"0", b"-1"),
        b"zset": (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"),
        b"hash": (b"HGETALL", key),
        b"set": (b"SMEMBERS", key),
    }
    return (bytes(kind), backend.execute(*readers[kind]) if kind in readers else None)


@contextmanager
def _kernel_condition(backend: KernelBackend, fault: Fault) -> Iterator[None]:
    if fault.kind == "client-dies":
        yield
        return
    with imposed(backend.shard, RAISABLE[fault.kind], before_call=fault.at):
        yield


@contextmanager
def _server_condition(backend: ServerBackend, fault: Fault) -> Iterator[None]:
    if fault.kind == "client-dies":
        yield
        return
    raisable = RAISABLE[fault.kind]
    if not raisable.enter:
        raise InputError(f"fault {fault.kind}: a server that runs alone cannot be brought into it; use the kernel")
    for command in raisable.enter:
        backend.execute(*command)
    try:
        yield
    finally:
        for command in raisable.leave:
            backend.execute(*command)
