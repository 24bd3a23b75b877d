"""What Redis 7.0 has and the kernel lacks, commands and settings: asking is a clear error, not a wrong reply."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.errors import InputError
from orderlab.sim.redis.registry import COMMANDS
from orderlab.sim.redis.versions import DEFAULT, ServerVersion, came_later

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

SERVER_DIRECTIVES = frozenset(
    b"""
    acl-pubsub-default aclfile acllog-max-len active-defrag-cycle-max active-defrag-cycle-min
    active-defrag-ignore-bytes active-defrag-max-scan-fields active-defrag-threshold-lower
    active-defrag-threshold-upper active-expire-effort activedefrag activerehashing always-show-logo
    aof-disable-auto-gc aof-load-truncated aof-rewrite-incremental-fsync aof-timestamp-enabled
    aof-use-rdb-preamble aof_rewrite_cpulist appenddirname appendfilename appendfsync appendonly
    auto-aof-rewrite-min-size auto-aof-rewrite-percentage bgsave_cpulist bind bind-source-addr bio_cpulist
    busy-reply-threshold client-output-buffer-limit client-query-buffer-limit
    cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down cluster-allow-replica-migration
    cluster-announce-bus-port cluster-announce-hostname cluster-announce-ip cluster-announce-port
    cluster-announce-tls-port cluster-config-file cluster-enabled cluster-link-sendbuf-limit
    cluster-migration-barrier cluster-node-timeout cluster-port cluster-preferred-endpoint-type
    cluster-replica-no-failover cluster-replica-validity-factor cluster-require-full-coverage
    cluster-slave-no-failover cluster-slave-validity-factor crash-log-enabled crash-memcheck-enabled daemonize
    databases dbfilename dir disable-thp dynamic-hz enable-debug-command enable-module-command
    enable-protected-configs hash-max-listpack-entries hash-max-listpack-value hash-max-ziplist-entries
    hash-max-ziplist-value hll-sparse-max-bytes hz ignore-warnings io-threads io-threads-do-reads
    jemalloc-bg-thread latency-monitor-threshold latency-tracking latency-tracking-info-percentiles
    lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del
    lazyfree-lazy-user-flush lfu-decay-time lfu-log-factor list-compress-depth list-max-listpack-size
    list-max-ziplist-size logfile loglevel lua-time-limit masterauth masteruser maxclients maxmemory
    maxmemory-clients maxmemory-eviction-tenacity maxmemory-policy maxmemory-samples min-replicas-max-lag
    min-replicas-to-write min-slaves-max-lag min-slaves-to-write no-appendfsync-on-rewrite
    notify-keyspace-events oom-score-adj oom-score-adj-values pidfile port proc-title-template
    propagation-error-behavior protected-mode proto-max-bulk-len rdb-del-sync-files rdb-save-incremental-fsync
    rdbchecksum rdbcompression repl-backlog-size repl-backlog-ttl repl-disable-tcp-nodelay repl-diskless-load
    repl-diskless-sync repl-diskless-sync-delay repl-diskless-sync-max-replicas repl-ping-replica-period
    repl-ping-slave-period repl-timeout replica-announce-ip replica-announce-port replica-announced
    replica-ignore-disk-write-errors replica-ignore-maxmemory replica-lazy-flush replica-priority
    replica-read-only replica-serve-stale-data replicaof requirepass sanitize-dump-payload save server_cpulist
    set-max-intset-entries set-proc-title shutdown-on-sigint shutdown-on-sigterm shutdown-timeout
    slave-announce-ip slave-announce-port slave-ignore-maxmemory slave-lazy-flush slave-priority slave-read-only
    slave-serve-stale-data slaveof slowlog-log-slower-than slowlog-max-len socket-mark-id
    stop-writes-on-bgsave-error stream-node-max-bytes stream-node-max-entries supervised syslog-enabled
    syslog-facility syslog-ident tcp-backlog tcp-keepalive timeout tls-auth-clients tls-ca-cert-dir
    tls-ca-cert-file tls-cert-file tls-ciphers tls-ciphersuites tls-client-cert-file tls-client-key-file
    tls-client-key-file-pass tls-cluster tls-dh-params-file tls-key-file tls-key-file-pass tls-port
    tls-prefer-server-ciphers tls-protocols tls-replication tls-session-cache-size tls-session-cache-timeout
    tls-session-caching tracking-table-max-keys unixsocket unixsocketperm zset-max-listpack-entries
    zset-max-listpack-value zset-max-ziplist-entries zset-max-ziplist-value
    """.split()
)
"""The names of ``CONFIG GET *`` of Redis 7.0.15."""

DEBUG_LACKING = frozenset(
    b"""
    SEGFAULT PANIC RESTART CRASH-AND-RECOVER ASSERT LOG LEAK LOADAOF DROP-CLUSTER-PACKET-FILTER LISTPACK QUICKLIST
    POPULATE DIGEST DIGEST-VALUE QUICKLIST-PACKED-THRESHOLD SET-SKIP-CHECKSUM-VALIDATION AOF-FLUSH-SLEEP ERROR
    STRUCTSIZE HTSTATS HTSTATS-KEY STRINGMATCH-LEN CONFIG-REWRITE-FORCE-ALL CLIENT-EVICTION PAUSE-CRON REPLYBUFFER
    MALLCTL MALLCTL-STR CLIENT-ENFORCE-REPLY-LIST
    """.split()
)
"""Subcommands of DEBUG, which has none in the table of commands, that the kernel lacks (DEBUG HELP of Redis 7.0.15)."""

_REFUSED_TO_SCRIPTS = b"""
    bgrewriteaof:1 bgsave:-1 client|caching:3
    client|tracking:-3 cluster|reset:-2
    config|rewrite:2 failover:-1 module|list:2 module|load:-3
    module|loadex:-3 module|unload:3 psync:-3 replconf:-1
    replicaof:3 save:1 shutdown:-1 slaveof:3 sync:1
"""
NOT_FROM_SCRIPTS = {
    name: int(arity) for name, _, arity in (entry.partition(b":") for entry in _REFUSED_TO_SCRIPTS.split())
}
"""Those that no script may call (flag ``noscript``), with their arity: a call from a script is an error reply."""

NOT_IN_TRANSACTIONS = frozenset((b"psync", b"save", b"shutdown", b"sync"))
"""Those that no transaction may queue (flag ``no_multi``)."""


class UnsupportedCommand(InputError):
    """The kernel lacks a command, or an option of one, that the server has. No script can catch it."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}: the kernel does not implement it; "
            "use --backend fakeredis (trusted scripts only) or --backend redis://HOST:PORT"
        )

    def __reduce__(self) -> tuple[type[UnsupportedCommand], tuple[str]]:
        """From one process to another by the command alone: the sentence is made anew."""
        return UnsupportedCommand, (self.what,)


def refused_to_scripts(argv: Sequence[bytes]) -> int | None:
    """The arity of what ``argv`` calls, if the kernel lacks it and a server carries it out for no script."""
    name = argv[0].lower()
    return NOT_FROM_SCRIPTS.get(name) or NOT_FROM_SCRIPTS.get(b"|".join((name, *argv[1:2])).lower())


def check_lacking(argv: Sequence[bytes], version: ServerVersion = DEFAULT) -> None:
    """Raise UnsupportedCommand if a server knows the command that ``argv`` calls and the kernel does not."""
    name = argv[0].lower()
    if (name not in SERVER_COMMANDS and name not in version.further) or came_later(name, version):
        return
    subcommands = SERVER_SUBCOMMANDS.get(name)
    if name not in COMMANDS and (subcommands is None or len(argv) < 2):
        raise UnsupportedCommand(name.decode().upper())
    if subcommands is not None and len(argv) > 1 and argv[1].lower() in subcommands:
        raise UnsupportedCommand(b" ".join(argv[:2]).decode().upper())
