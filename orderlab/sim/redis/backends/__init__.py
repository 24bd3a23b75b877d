"""The same operations on the kernel, on fakeredis and on a real server (``--backend``)."""

from __future__ import annotations

from difflib import get_close_matches

from orderlab.model.errors import InputError
from orderlab.sim.redis.backends.backend import Backend, KernelBackend
from orderlab.sim.redis.backends.server import ClusterBackend, ServerBackend

SPECS = ("kernel", "fakeredis", "auto", "redis://HOST:PORT")

__all__ = ["SPECS", "Backend", "ClusterBackend", "KernelBackend", "ServerBackend", "open_backend"]


def open_backend(spec: str) -> Backend:
    """The backend that ``spec`` names.

    ``kernel``; ``fakeredis`` (trusted scripts only); ``redis://HOST:PORT[/DB]`` for a server that runs already, or any
    master of a cluster; ``auto`` for a real server that is found, started on a free loopback port, and stopped on
    ``close``. Raises InputError when the spec is unknown or its server cannot be used.
    """
    if spec == "kernel":
        return KernelBackend()
    if spec == "fakeredis":
        from orderlab.sim.redis.backends.fakeredis import FakeredisBackend  # takes a third of a second to import

        return FakeredisBackend()
    if spec == "auto":
        return ServerBackend.start()
    if "://" in spec:
        node = ServerBackend.from_url(spec, allows_cluster=True)
        return ClusterBackend(node) if node.is_of_cluster else node
    near = get_close_matches(spec, SPECS[:3], n=1)
    hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(SPECS)}"
    raise InputError(f"--backend {spec}: unknown backend; {hint}")
