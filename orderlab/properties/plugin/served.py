"""What the fixture ``orderlab_redis`` gives to a test: served nodes of its own, and their faults."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.redis.versions import DEFAULT, version_named
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_cluster import ServedCluster
from orderlab.sim.redis.wire.served_faults import BadFault
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings


class ServedRedis:
    """Simulated Redis of one test: empty at its begin, gone at its end."""

    def __init__(
        self, cluster: int = 0, password: str = "", virtual_clock: bool = False, server: str = DEFAULT.name
    ) -> None:
        """``cluster``: so many masters; 0: one node outside of a cluster. ``server``: as ``orderlab serve --server``
        takes it. Raises InputError."""
        self.password = password
        self._background = InBackground()
        version = version_named(server, "server")
        settings = ServeSettings(password=password.encode(), virtual_clock=virtual_clock, version=version)
        if cluster:
            self.nodes = self._background.serve(lambda: ServedCluster(cluster, settings)).nodes
        else:
            self.nodes = [self._background.serve(lambda: ServedNode(settings))]
        self.host = settings.host

    @property
    def port(self) -> int:
        """Of the first node."""
        return self.nodes[0].port

    @property
    def url(self) -> str:
        """As clients take it."""
        user = f":{self.password}@" if self.password else ""
        return f"redis://{user}{self.host}:{self.port}/0"

    def fault(self, line: str, node: int = 0) -> None:
        """Let a fault happen, as ``ORDERLAB line`` does: ``stall 300``, ``kill 100``, ``noscript``.

        Raises InputError for a line that names none.
        """
        chosen = self.nodes[node]
        try:
            self._background.call(lambda: chosen.faults.strike(line.lower().split()))
        except BadFault as error:
            raise InputError(str(error)) from None

    def client(self, **options: Any) -> Any:
        """A client of redis-py, of the cluster where there is one."""
        import redis

        options.setdefault("password", self.password or None)
        if len(self.nodes) > 1 or self.nodes[0].shard.slots is not None:
            return redis.RedisCluster(host=self.host, port=self.port, **options)
        return redis.Redis(host=self.host, port=self.port, **options)

    def close(self) -> None:
        """End it; idempotent."""
        self._background.stop()

    def __enter__(self) -> ServedRedis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
