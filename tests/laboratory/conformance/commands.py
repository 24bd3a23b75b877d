"""The forms of every command that is compared, by type of key, and what of a reply may differ."""

from __future__ import annotations

from tests.laboratory.conformance.grammar import KINDS, Template

RELATIVE = "[EX relative_s|PX relative_ms|KEEPTTL]"
ABSOLUTE = "[EXAT absolute_s|PXAT absolute_ms|KEEPTTL]"
CONDITION = "[NX|XX|GT|LT]"

STRING_FORMS = """
SET string_key value
SET string_key value [NX|XX] [GET]
GET string_key
GETDEL string_key
GETSET string_key value
GETRANGE string_key index index
SUBSTR string_key index index
SETRANGE string_key offset value
SETNX string_key value
APPEND string_key value
STRLEN string_key
INCR string_key
DECR string_key
INCRBY string_key integer
DECRBY string_key integer
INCRBYFLOAT string_key float
MGET string_key...
MSET (string_key value)...
MSETNX (string_key value)...
LCS string_key string_key [LEN|IDX] [MINMATCHLEN natural] [WITHMATCHLEN]
SETBIT string_key bit_offset bit
GETBIT string_key bit_offset
BITCOUNT string_key [index index|index index BYTE|index index BIT]
BITPOS string_key bit [index|index index|index index BIT|index index BYTE]
BITOP {AND|OR|XOR} string_key string_key...
BITOP NOT string_key string_key
BITFIELD string_key {GET bits bit_offset|{SET|INCRBY} bits bit_offset integer|OVERFLOW {SAT|FAIL|WRAP}}...
BITFIELD_RO string_key (GET bits bit_offset)...
"""

RELATIVE_TIME_FORMS = f"""
SET string_key value {RELATIVE} [NX|XX] [GET]
SETEX string_key relative_s value
PSETEX string_key relative_ms value
GETEX string_key [EX relative_s|PX relative_ms|PERSIST]
EXPIRE key relative_s {CONDITION}
PEXPIRE key relative_ms {CONDITION}
TTL key
PTTL key
PERSIST key
RANDOMKEY
"""
"""RANDOMKEY is here because it removes expired keys that it happens to hit; only absolute deadlines leave any."""

ABSOLUTE_TIME_FORMS = f"""
SET string_key value {ABSOLUTE} [NX|XX] [GET]
GETEX string_key [EXAT absolute_s|PXAT absolute_ms|PERSIST]
EXPIREAT key absolute_s {CONDITION}
PEXPIREAT key absolute_ms {CONDITION}
EXPIRETIME key
PEXPIRETIME key
TTL key
PTTL key
PERSIST key
TIME
HEXPIREAT hash_key absolute_s {CONDITION} FIELDS 1 field
HPEXPIREAT hash_key absolute_ms {CONDITION} FIELDS 2 field field
HEXPIRETIME hash_key FIELDS 1 field
HPEXPIRETIME hash_key FIELDS 2 field field
HPERSIST hash_key FIELDS 2 field field
HGETEX hash_key [EXAT absolute_s|PXAT absolute_ms|PERSIST] FIELDS 2 field field
HSETEX hash_key [FNX|FXX] [EXAT absolute_s|PXAT absolute_ms|KEEPTTL] FIELDS 1 field value
HGETDEL hash_key FIELDS 2 field field
"""

KEY_FORMS = """
DEL key...
UNLINK key...
EXISTS key...
TOUCH key...
TYPE key
KEYS pattern
DBSIZE
RENAME key key
RENAMENX key key
COPY key key [REPLACE] [DB database]
OBJECT ENCODING key
OBJECT REFCOUNT key
SCAN cursor [MATCH pattern] COUNT 1000 [TYPE type]
SORT list_key [BY NOSORT|BY sort_pattern] [LIMIT index count] [GET sort_pattern]... [ALPHA] [ASC|DESC]
SORT_RO set_key ALPHA [DESC]
SORT zset_key [LIMIT index count] ALPHA [STORE list_key]
"""

HASH_FORMS = """
HSET hash_key (field value)...
HMSET hash_key (field value)...
HSETNX hash_key field value
HGET hash_key field
HMGET hash_key field...
HDEL hash_key field...
HEXISTS hash_key field
HLEN hash_key
HSTRLEN hash_key field
HGETALL hash_key
HKEYS hash_key
HVALS hash_key
HINCRBY hash_key field integer
HINCRBYFLOAT hash_key field float
HSCAN hash_key cursor [MATCH pattern] COUNT 1000
HGETALL hash_key ; HRANDFIELD @1 [count|count WITHVALUES]
"""

LIST_FORMS = """
RPUSH list_key value...
LPUSH list_key value...
RPUSHX list_key value...
LPUSHX list_key value...
LPOP list_key [count]
RPOP list_key [count]
LLEN list_key
LRANGE list_key index index
LINDEX list_key index
LSET list_key index value
LINSERT list_key {BEFORE|AFTER} value value
LREM list_key count value
LTRIM list_key index index
LPOS list_key value [RANK count] [COUNT natural] [MAXLEN natural]
LMOVE list_key list_key {LEFT|RIGHT} {LEFT|RIGHT}
RPOPLPUSH list_key list_key
LMPOP #list_key... {LEFT|RIGHT} [COUNT natural]
MULTI ; BLPOP list_key list_key 0.01 ; BRPOP list_key 0.01 ; EXEC
MULTI ; BLMOVE list_key list_key LEFT RIGHT 0.01 ; BLMPOP 0.01 #list_key... LEFT ; EXEC
MULTI ; BRPOPLPUSH list_key list_key 0.01 ; EXEC
"""

SET_FORMS = """
SADD set_key member...
SREM set_key member...
SISMEMBER set_key member
SMISMEMBER set_key member...
SCARD set_key
SMEMBERS set_key
SMOVE set_key set_key member
SINTER set_key...
SUNION set_key...
SDIFF set_key...
SINTERSTORE set_key set_key...
SUNIONSTORE set_key set_key...
SDIFFSTORE set_key set_key...
SINTERCARD #set_key... [LIMIT natural]
SSCAN set_key cursor [MATCH pattern] COUNT 1000
SMEMBERS set_key ; SRANDMEMBER @1 [count]
SMEMBERS set_key ; SPOP @1 [natural] ; SCARD @1 ; DEL @1
"""

ZSET_FORMS = """
ZADD zset_key (score member)...
ZADD zset_key [NX|XX] [GT|LT] [CH] (score member)...
ZADD zset_key [NX|XX] [GT|LT] [CH] INCR score member
ZINCRBY zset_key score member
ZREM zset_key member...
ZCARD zset_key
ZSCORE zset_key member
ZMSCORE zset_key member...
ZCOUNT zset_key score_bound score_bound
ZRANK zset_key member
ZREVRANK zset_key member
ZRANGE zset_key index index [REV] [WITHSCORES]
ZRANGE zset_key score_bound score_bound BYSCORE [REV] [LIMIT index count] [WITHSCORES]
ZRANGESTORE zset_key zset_key index index [REV]
ZRANGESTORE zset_key zset_key score_bound score_bound BYSCORE [REV] [LIMIT index count]
ZREVRANGE zset_key index index [WITHSCORES]
ZRANGEBYSCORE zset_key score_bound score_bound [WITHSCORES] [LIMIT index count]
ZREVRANGEBYSCORE zset_key score_bound score_bound [WITHSCORES] [LIMIT index count]
ZREMRANGEBYRANK zset_key index index
ZREMRANGEBYSCORE zset_key score_bound score_bound
ZPOPMIN zset_key [count]
ZPOPMAX zset_key [count]
ZMPOP #zset_key... {MIN|MAX} [COUNT natural]
MULTI ; BZPOPMIN zset_key zset_key 0.01 ; BZPOPMAX zset_key 0.01 ; BZMPOP 0.01 #zset_key... MAX COUNT 2 ; EXEC
ZUNION #zset_key... [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX] [WITHSCORES]
ZINTER #zset_key... [AGGREGATE SUM|AGGREGATE MIN|AGGREGATE MAX] [WITHSCORES]
ZUNION 2 zset_key set_key WEIGHTS float float [WITHSCORES]
ZDIFF #zset_key... [WITHSCORES]
ZUNIONSTORE zset_key #zset_key... [AGGREGATE MIN|AGGREGATE MAX]
ZINTERSTORE zset_key 2 zset_key zset_key WEIGHTS float float [AGGREGATE MAX]
ZDIFFSTORE zset_key #zset_key...
ZINTERCARD #zset_key... [LIMIT natural]
ZSCAN zset_key cursor [MATCH pattern] COUNT 1000
ZRANGE zset_key 0 -1 WITHSCORES ; ZRANDMEMBER @1 [count|count WITHSCORES]
"""

LEX_FORMS = """
ZADD lex_key (0 member)...
ZADD lex_key (0 member)...
ZREM lex_key member
ZLEXCOUNT lex_key lex_bound lex_bound
ZRANGE lex_key lex_bound lex_bound BYLEX [REV] [LIMIT index count]
ZRANGESTORE lex_key lex_key lex_bound lex_bound BYLEX [LIMIT index count]
ZRANGEBYLEX lex_key lex_bound lex_bound [LIMIT index count]
ZREVRANGEBYLEX lex_key lex_bound lex_bound [LIMIT index count]
ZREMRANGEBYLEX lex_key lex_bound lex_bound
"""
"""Between members of unequal scores the server leaves lexical ranges open, so these have keys of their own."""

ADDING = (
    "[MAXLEN natural|MAXLEN = natural|MAXLEN ~ natural|MAXLEN ~ natural LIMIT natural|MINID old_id|MINID = "
    "old_id|MINID ~ old_id]"
)
STREAM_FORMS = f"""
XADD stream_key new_id (field value)...
XADD stream_key new_id (field value)...
XADD stream_key new_id field value ; XADD @1 new_id field value ; XADD @1 new_id field value
XADD stream_key [NOMKSTREAM] {ADDING} new_id (field value)...
XADD stream_key half_new_id (field value)...
XADD late_key 9999999999999-1 field value ; XADD @1 * (field value)... ; XADD @1 MAXLEN ~ natural * field value
XLEN stream_key
XLEN late_key
XRANGE stream_key id_bound id_bound [COUNT count]
XRANGE stream_key - + [COUNT natural]
XREVRANGE stream_key id_bound id_bound [COUNT count]
XREVRANGE late_key + - [COUNT natural]
XDEL stream_key old_id...
XDEL stream_key old_id...
XTRIM stream_key {{MAXLEN|MINID}} natural
XTRIM stream_key MAXLEN {{=|~}} natural [LIMIT natural]
XTRIM stream_key MINID {{=|~}} old_id [LIMIT natural]
XSETID stream_key old_id [ENTRIESADDED read] [MAXDELETEDID old_id]
XREAD [COUNT natural] STREAMS stream_key old_id
XREAD [COUNT natural] STREAMS stream_key stream_key old_id {{old_id|$}}
XINFO STREAM stream_key
XINFO STREAM stream_key FULL [COUNT natural]
XINFO GROUPS stream_key
XINFO CONSUMERS stream_key group
XGROUP CREATE stream_key group {{old_id|0|$}} [MKSTREAM] [ENTRIESREAD read]
XGROUP CREATE stream_key group 0 MKSTREAM
XGROUP SETID stream_key group {{old_id|0|-|$}} [ENTRIESREAD read]
XGROUP DESTROY stream_key group
XGROUP CREATECONSUMER stream_key group consumer
XGROUP DELCONSUMER stream_key group consumer
XREADGROUP GROUP group consumer [COUNT natural] [NOACK] STREAMS stream_key >
XREADGROUP GROUP group consumer [COUNT natural] STREAMS stream_key >
XREADGROUP GROUP group consumer [COUNT natural] STREAMS stream_key {{old_id|0}}
XREADGROUP GROUP group consumer [COUNT natural] STREAMS stream_key stream_key {{>|0}} {{>|old_id}}
XACK stream_key group old_id...
XPENDING stream_key group
XPENDING stream_key group [IDLE idle] id_bound id_bound count [consumer]
XPENDING stream_key group - + natural [consumer]
XCLAIM stream_key group consumer idle old_id... [IDLE natural|TIME natural] [RETRYCOUNT natural] [FORCE] [JUSTID] [LASTID old_id]
XCLAIM stream_key group consumer 0 old_id old_id old_id [FORCE]
XGROUP CREATE stream_key group 0 MKSTREAM
XCLAIM stream_key group consumer 0 old_id old_id RETRYCOUNT natural [FORCE] [JUSTID]
XAUTOCLAIM stream_key group consumer idle id_bound [COUNT natural] [JUSTID]
DEL stream_key ; XADD @1 new_id field value ; XADD @1 new_id field value ; XDEL @1 old_id ; XSETID @1 old_id [MAXDELETEDID old_id] ; XADD @1 old_id field value
XTRIM stream_key MINID old_id ; XSETID @1 old_id ; XADD @1 half_new_id field value ; XRANGE @1 - +
MULTI ; XREAD BLOCK 1 STREAMS stream_key $ ; XREADGROUP GROUP group consumer BLOCK 1 STREAMS stream_key > ; EXEC
XADD stream_key new_id field value ; XGROUP CREATE @1 group 0 ; XREADGROUP GROUP group consumer STREAMS @1 > ; XDEL @1 old_id ; XREADGROUP GROUP group consumer STREAMS @1 0
"""  # noqa: E501

GEO_FORMS = """
GEOADD geo_key (longitude latitude member)...
GEOADD geo_key (longitude latitude member)...
GEOADD geo_key (longitude latitude member)...
GEOADD geo_key [NX|XX] [CH] (longitude latitude member)...
GEODIST geo_key member member [unit]
GEOHASH geo_key member...
GEOPOS geo_key member...
GEOSEARCH geo_key {FROMMEMBER member|FROMLONLAT longitude latitude} {BYRADIUS radius unit|BYBOX radius radius unit} {ASC|DESC} [COUNT natural [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
GEOSEARCH geo_key {FROMMEMBER member|FROMLONLAT longitude latitude} {BYRADIUS radius unit|BYBOX radius radius unit} [COUNT natural ANY] [WITHCOORD] [WITHDIST] [WITHHASH]
GEOSEARCHSTORE zset_key geo_key FROMLONLAT longitude latitude {BYRADIUS radius unit|BYBOX radius radius unit} [STOREDIST] [ASC|DESC]
GEORADIUS geo_key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT natural ANY]
GEORADIUS geo_key longitude latitude radius unit {STORE|STOREDIST} zset_key
GEORADIUS_RO geo_key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH]
GEORADIUSBYMEMBER geo_key member radius unit [WITHDIST] [STORE zset_key]
GEORADIUSBYMEMBER_RO geo_key member radius unit [WITHDIST] [ASC|DESC]
"""  # noqa: E501

HYPERLOGLOG_FORMS = """
PFADD loglog_key element...
PFADD loglog_key element...
PFADD loglog_key element... ; PFADD @1 element... ; PFADD @1 element... ; PFCOUNT @1 ; GET @1
PFADD loglog_key
PFCOUNT loglog_key...
PFCOUNT loglog_key
PFMERGE loglog_key loglog_key...
GET loglog_key
STRLEN loglog_key
OBJECT ENCODING loglog_key
SETRANGE loglog_key 4 header ; PFADD @1 value ; PFCOUNT @1 ; DEL @1
"""

DATABASE_FORMS = """
SELECT database
SELECT database
SELECT database
MOVE key database
MOVE key database
COPY key key DB database [REPLACE]
SWAPDB database database
WATCH key... ; SWAPDB database database ; MULTI ; SELECT database ; EXEC
FLUSHDB [ASYNC|SYNC]
FLUSHALL [ASYNC|SYNC]
"""

CONNECTION_FORMS = """
PING
PING value
ECHO value
SELECT 0
SELECT junk
MULTI
EXEC
DISCARD
WATCH key...
UNWATCH
MULTI ; SET string_key value ; INCR string_key ; EXEC
WATCH key ; MULTI ; GET string_key ; EXEC
MULTI ; SET string_key ; EXEC
MULTI ; GET string_key ; DISCARD
SCRIPT EXISTS value
SCRIPT LOAD junk
EVALSHA value 0
PUBLISH key value
SPUBLISH key value
"""

TABLE = {
    "strings": STRING_FORMS,
    "keys": KEY_FORMS,
    "hashes": HASH_FORMS,
    "lists": LIST_FORMS,
    "sets": SET_FORMS,
    "sorted sets": ZSET_FORMS,
    "lexical ranges": LEX_FORMS,
    "streams": STREAM_FORMS,
    "places": GEO_FORMS,
    "hyperloglogs": HYPERLOGLOG_FORMS,
    "databases": DATABASE_FORMS,
    "connections": CONNECTION_FORMS,
    "relative times": RELATIVE_TIME_FORMS,
    "absolute times": ABSOLUTE_TIME_FORMS,
}

UNORDERED = frozenset(b"keys scan sunion sinter sdiff sort_ro".split())
"""Replies whose order the server leaves open, whatever the value."""
UNORDERED_WHEN_LARGE = frozenset(b"hgetall hkeys hvals hscan smembers sscan zscan".split())
"""Replies whose order is left open once the value has left its compact encoding."""
SAMPLED = frozenset(b"srandmember spop hrandfield zrandmember randomkey".split())
"""Replies drawn at random: compared in shape and size, and against the collection that the step has read before."""
AGED = frozenset(b"xinfo xpending".split())
"""Replies that hold times, or how long ago something was: those are not compared."""
TIMED = frozenset(b"ttl pttl expiretime pexpiretime time".split())
"""Replies that depend on the moment: equal within a tolerance when they are numbers."""


def templates(table: dict[str, str] = TABLE) -> dict[str, list[Template]]:
    """The templates of each group, in the order of the table."""
    return {group: [Template(line, KINDS) for line in forms.strip().splitlines()] for group, forms in table.items()}
