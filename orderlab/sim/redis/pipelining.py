"""Commands that arrive together: the replies of ``Shard.execute`` one by one, with what they share checked once."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.conditions import is_calm
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import GROWTH_MAX_BYTES, Shard

_KEY_COUNTS = {b"%d" % count: count for count in range(10)}


def execute_all(shard: Shard, commands: Sequence[Sequence[bytes]]) -> list[Reply]:
    """Run ``commands`` from the shard's own client. Raises as ``Shard.execute``.

    Calls of loaded scripts are carried out directly while nothing can refuse them: they cannot change that themselves.
    From the first other command on each command is checked for itself.
    """
    host, client = shard.lua_host, shard.client
    replies: list[Reply] = []
    is_plain = client.queue is None and not client.database and shard.interrupt is None and shard.effects is None
    if host is not None and is_plain and is_calm(shard):
        shard.caller, shard.resp, shard.sees_expired = client, client.resp, client.is_master
        shard.is_out_of_memory = False
        scripts, run = host.scripts, host.run
        for argv in commands:
            if argv[0] != b"EVALSHA" or len(argv) < 3:
                break
            script, key_count = scripts.get(argv[1]), _KEY_COUNTS.get(argv[2])
            if script is None or key_count is None or key_count > len(argv) - 3:
                break
            shard.growth_left = GROWTH_MAX_BYTES
            try:
                replies.append(run(script, key_count, argv[3:], False))
            except ErrorReply as error:
                replies.append(error)
    return replies + [shard.execute(argv) for argv in commands[len(replies) :]]
