"""A broker of amqtt on a port of the loopback interface, in memory: ``amqtt_broker.py PORT``."""

from __future__ import annotations

import asyncio
import sys


async def serve(port: int) -> None:
    """Until it is killed."""
    from amqtt.broker import Broker

    config = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    await Broker(config).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    asyncio.run(serve(int(sys.argv[1])))
