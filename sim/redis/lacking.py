"""Commands that Redis 7.0 has and the kernel lacks: asking for one is a clear error, not a wrong reply."""

from __future__ import annotations

from collections.abc import Sequence

from model.errors import InputError
from sim.redis.registry import COMMANDS

SERVER_COMMANDS = frozenset(
    b"""
    acl append asking auth bgrewriteaof bgsave bitcount bitfield bitfield_ro bitop bitpos blmove blmpop blpop
    brpop brpoplpush bzmpop bzpopmax bzpopmin client cluster command config copy dbsize debug decr decrby del
    discard dump echo eval eval_ro evalsha evalsha_ro exec exists expire expireat expiretime failover fcall
    fcall_ro flushall flushdb function geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
    georadiusbymember_ro geosearch geosearchstore get getbit getdel getex getrange getset hdel hello hexists
    hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hstrlen hvals incr
    incrby incrbyfloat info keys lastsave latency lcs lindex linsert llen lmove lmpop lolwut lpop lpos lpush
    lpushx lrange lrem lset ltrim memory mget migrate module monitor move mset msetnx multi object persist
    pexpire pexpireat pexpiretime pfadd pfcount pfdebug pfmerge pfselftest ping psetex psubscribe psync pttl
    publish pubsub punsubscribe quit randomkey readonly readwrite rename renamenx replconf replicaof reset
    restore restore-asking role rpop rpoplpush rpush rpushx sadd save scan scard script sdiff sdiffstore select
    set setbit setex setnx setrange shutdown sinter sintercard sinterstore sismember slaveof slowlog smembers
    smismember smove sort sort_ro spop spublish srandmember srem sscan ssubscribe strlen subscribe substr sunion
    sunionstore sunsubscribe swapdb sync time touch ttl type unlink unsubscribe unwatch wait watch xack xadd
    xautoclaim xclaim xdel xgroup xinfo xlen xpending xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard
    zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin
    zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank
    zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion zunionstore
    """.split()
)
"""The names of ``COMMAND LIST`` of Redis 7.0.15."""

SERVER_SUBCOMMANDS = {
    container: frozenset(names.split())
    for container, names in {
        b"acl": b"cat deluser dryrun genpass getuser help list load log save setuser users whoami",
        b"client": b"caching getname getredir help id info kill list no-evict pause reply setname tracking trackinginfo"
        b" unblock unpause",
        b"cluster": b"addslots addslotsrange bumpepoch count-failure-reports countkeysinslot delslots delslotsrange"
        b" failover flushslots forget getkeysinslot help info keyslot links meet myid nodes replicas replicate reset"
        b" saveconfig set-config-epoch setslot shards slaves slots",
        b"command": b"count docs getkeys getkeysandflags help info list",
        b"config": b"get help resetstat rewrite set",
        b"function": b"delete dump flush help kill list load restore stats",
        b"latency": b"doctor graph help histogram history latest reset",
        b"memory": b"doctor help malloc-stats purge stats usage",
        b"module": b"help list load loadex unload",
        b"object": b"encoding freq help idletime refcount",
        b"pubsub": b"channels help numpat numsub shardchannels shardnumsub",
        b"script": b"debug exists flush help kill load",
        b"slowlog": b"get help len reset",
        b"xgroup": b"create createconsumer delconsumer destroy help setid",
        b"xinfo": b"consumers groups help stream",
    }.items()
}


class UnsupportedCommand(InputError):
    """The kernel lacks a command, or an option of one, that the server has. No script can catch it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: the kernel does not implement it; "
            "use --backend fakeredis (trusted scripts only) or --backend redis://HOST:PORT"
        )


def check_lacking(argv: Sequence[bytes]) -> None:
    """Raise UnsupportedCommand if a server knows the command that ``argv`` calls and the kernel does not."""
    name = argv[0].lower()
    if name not in SERVER_COMMANDS:
        return
    subcommands = SERVER_SUBCOMMANDS.get(name)
    if name not in COMMANDS and (subcommands is None or len(argv) < 2):
        raise UnsupportedCommand(name.decode().upper())
    if subcommands is not None and len(argv) > 1 and argv[1].lower() in subcommands:
        raise UnsupportedCommand(b" ".join(argv[:2]).decode().upper())
