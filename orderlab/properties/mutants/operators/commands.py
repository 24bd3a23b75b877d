"""A command swapped for another of the same shape: it takes the same arguments and does something else."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk

TWINS: tuple[tuple[bytes, bytes], ...] = (
    (b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"),
    (b"ZRANGE", b"ZREVRANGE"),
    (b"ZREMRANGEBYSCORE", b"ZREMRANGEBYRANK"),
    (b"ZREMRANGEBYSCORE", b"ZCOUNT"),
    (b"ZREM", b"ZMSCORE"),
    (b"ZSCORE", b"ZRANK"),
    (b"ZRANK", b"ZREVRANK"),
    (b"ZPOPMIN", b"ZPOPMAX"),
    (b"ZCARD", b"EXISTS"),
    (b"HDEL", b"HMGET"),
    (b"HSET", b"HSETNX"),
    (b"HGET", b"HSTRLEN"),
    (b"HKEYS", b"HVALS"),
    (b"HKEYS", b"HGETALL"),
    (b"HLEN", b"EXISTS"),
    (b"SET", b"SETNX"),
    (b"SET", b"APPEND"),
    (b"GET", b"GETDEL"),
    (b"MGET", b"EXISTS"),
    (b"DEL", b"EXISTS"),
    (b"UNLINK", b"EXISTS"),
    (b"INCR", b"DECR"),
    (b"INCRBY", b"DECRBY"),
    (b"LPUSH", b"RPUSH"),
    (b"LPOP", b"RPOP"),
    (b"LREM", b"LSET"),
    (b"LRANGE", b"LTRIM"),
    (b"SADD", b"SREM"),
    (b"EXPIRE", b"PEXPIRE"),
    (b"EXPIREAT", b"PEXPIREAT"),
    (b"SETEX", b"PSETEX"),
    (b"TTL", b"PTTL"),
)
"""Each for the other. DEL and UNLINK do the same and are no twins; HSETNX takes one field alone."""


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each command as each of its twins, in the quotes that it stands in."""
    for command in chunk.commands():
        text = chunk.text(command.name_node)
        quote = text[:1]
        if quote not in (b"'", b'"'):
            continue
        for one, other in TWINS:
            for name, twin in ((one, other), (other, one)):
                if command.name == name:
                    yield chunk.replaced(
                        command.name_node, quote + twin + quote, f"{name.decode()} becomes {twin.decode()}"
                    )
