"""Whether the type that the fault ``wrong-type`` is about to plant is the one that the store keeps there anyway.

Of a key that is there its type tells. Of one that is not, the operation does: a value of the type that it would make
there, or that its calls take there and no other, raises nothing on a server; it is data of nobody in the store's own
structure, which no fault brings about and which no store need clear away.
"""

from __future__ import annotations

from collections.abc import Callable

from orderlab.model.contracts.trace import Fault
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.faults import PLANTED
from orderlab.sim.stores.scratch import untouched


def is_right_type(backend: Backend, fault: Fault, perform: Callable[[], object]) -> bool:
    """Tries the operation (``perform``) without the fault. Backends other than the kernel do not show its calls: there
    only what it makes tells."""
    if fault.found not in PLANTED or backend.execute(b"TYPE", fault.key) != b"none":
        return False
    effects: list[Effect] = []
    with untouched(backend):
        if isinstance(backend, KernelBackend):
            noted, backend.shard.effects = backend.shard.effects, effects
        try:
            perform()
        finally:
            if isinstance(backend, KernelBackend):
                backend.shard.effects = noted
        if backend.execute(b"TYPE", fault.key) == fault.found.encode():
            return True
    plain = (effect for effect in effects if not effect.argv[0].lower().startswith((b"eval", b"fcall")))
    calls = {effect.argv for effect in plain if fault.key in effect.keys}
    return any(_types_taken(backend, argv, fault.key) == {fault.found} for argv in sorted(calls))


def _types_taken(backend: Backend, argv: tuple[bytes, ...], key: bytes) -> set[str]:
    """Types of ``key`` with which a call does not end in WRONGTYPE."""
    taken: set[str] = set()
    for found, (name, *arguments) in PLANTED.items():
        with untouched(backend):
            backend.execute(b"DEL", key)
            backend.execute(name, key, *arguments)
            reply = backend.execute(*argv)
        if not (isinstance(reply, ErrorReply) and reply.message.startswith(b"WRONGTYPE")):
            taken.add(found)
    return taken
