"""The servers that a node can be: which commands and options each has, and how its words differ from Redis 7.0's.

Everything else in this folder is written for Redis 7.0.15. Where another server differs, a table here says so, or the
code asks ``NodeState.version``. Sources: `notes/servers.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from orderlab.model.errors import InputError

ServerName = Literal["6.2", "7.0", "7.2", "7.4", "8.0", "valkey-8"]
"""The names of ``VERSIONS``, as files and settings take them."""
Release = tuple[int, int]
"""Major and minor number of a release of Redis."""


@dataclass(frozen=True, eq=False)
class ServerVersion:
    """A server that can be imitated."""

    name: str
    """As ``--server`` takes it."""
    follows: Release
    """The release of Redis whose commands it has."""
    number: bytes
    """Its own whole number."""
    product: str = "redis"
    words: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    """Texts of Redis 7.0 -> what this server says in their place."""
    further: frozenset[bytes] = frozenset()
    """Commands that it has and Redis 7.0 has not."""

    def __reduce__(self) -> tuple[Callable[[str], ServerVersion], tuple[str]]:
        """From one process to another by its name: there is one object of each."""
        return version_named, (self.name,)

    def __str__(self) -> str:
        return f"{self.product.capitalize()} {self.number.decode()}"

    def script_constants(self) -> dict[str, Any]:
        """Those of the table ``redis``."""
        constants: dict[str, Any] = {
            "LOG_DEBUG": 0, "LOG_VERBOSE": 1, "LOG_NOTICE": 2, "LOG_WARNING": 3,
            "REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3,
        }  # fmt: skip
        if self.has((7, 0)):
            constants |= {"REDIS_VERSION": self.as_redis, "REDIS_VERSION_NUM": version_number(self.as_redis)}
        if self.is_valkey:
            constants |= {"VALKEY_VERSION": self.number, "VALKEY_VERSION_NUM": version_number(self.number)}
            constants["SERVER_NAME"] = b"valkey"
        return constants

    def assumed(self) -> tuple[str, ...]:
        """For a verdict: which server it is, where that is not the default."""
        return () if self is DEFAULT else (f"the server is {self}",)

    @property
    def family(self) -> str:
        """How a real server of the kind describes itself, as far as it must agree: product and release."""
        major, minor, _ = self.number.decode().split(".")
        return f"{self.product} {major}." if self.is_valkey else f"{self.product} {major}.{minor}."

    @property
    def is_valkey(self) -> bool:
        """Whether it is Valkey, which left Redis at 7.2.4."""
        return self.product == "valkey"

    @property
    def as_redis(self) -> bytes:
        """What it calls itself where a Redis is expected."""
        return b"7.2.4" if self.is_valkey else self.number

    def unbalanced(self, of_group: bool) -> bytes:
        """What XREAD, or XREADGROUP, says of keys and identifiers that are not as many."""
        name, ids = b"XREAD", b"an ID or '$'"
        if self.has((7, 2)):
            name, ids = (b"'xreadgroup'", b"an ID or '>'") if of_group else (b"'xread'", ids)
        if self.has((8, 0)) and not of_group:
            ids = b"an ID, '+', or '$'"
        return b"ERR Unbalanced %b list of streams: for each stream key %b must be specified." % (name, ids)

    @property
    def title(self) -> str:
        """Product and release, for messages."""
        return f"Valkey {self.number.decode().split('.')[0]}" if self.is_valkey else release_title(self.follows)

    def has_option(self, name: str, word: bytes) -> bool:
        """Whether it knows an option, of those of ``OPTION_SINCE``."""
        return self.has(OPTION_SINCE[name, word]) or (self.is_valkey and (name, word) in IN_VALKEY)

    def has(self, since: Release) -> bool:
        """Whether it has what came with a release of Redis."""
        return self.follows >= since

    def text(self, message: bytes) -> bytes:
        """What it says where Redis 7.0 says ``message``."""
        if message.startswith(b"ERR unknown subcommand or wrong") and not self.has((7, 0)):
            return message.replace(b"unknown", b"Unknown", 1)
        if message.startswith(b"ERR at least 1 input key") and not self.has((7, 0)):
            return message.replace(b"'", b"").removesuffix(b" command")
        return self.words.get(message, message)


_BY_RELEASE: Final[dict[Release, str]] = {
    (3, 2): "TOUCH",
    (4, 0): "UNLINK",
    (5, 0): "ZPOPMIN ZPOPMAX XADD XACK XRANGE XREVRANGE XLEN XDEL XTRIM XREAD XREADGROUP XCLAIM XPENDING XINFO XGROUP",
    (6, 0): "LPOS",
    (6, 2): "COPY GETDEL GETEX LMOVE BLMOVE SMISMEMBER ZMSCORE ZRANGESTORE ZDIFF ZDIFFSTORE ZINTER ZUNION HRANDFIELD "
    "ZRANDMEMBER XAUTOCLAIM GEOSEARCH GEOSEARCHSTORE",
    (7, 0): "EXPIRETIME PEXPIRETIME LMPOP ZMPOP BLMPOP BZMPOP SINTERCARD ZINTERCARD LCS SPUBLISH SSUBSCRIBE "
    "SUNSUBSCRIBE FCALL FCALL_RO FUNCTION EVAL_RO EVALSHA_RO SORT_RO",
    (7, 2): "WAITAOF CLIENT|SETINFO CLIENT|NO-TOUCH",
    (7, 4): "HEXPIRE HEXPIREAT HPEXPIRE HPEXPIREAT HTTL HPTTL HEXPIRETIME HPEXPIRETIME HPERSIST",
    (8, 0): "HGETDEL HGETEX HSETEX",
}
SINCE: Final = {name: release for release, names in _BY_RELEASE.items() for name in names.split()}
"""Commands, subcommands as ``CONTAINER|NAME`` -> the first release of Redis that has them, where that is later than
3.0."""
OPTION_SINCE: Final[dict[tuple[str, bytes], Release]] = {
    ("SET", b"KEEPTTL"): (6, 0),
    ("SET", b"GET"): (6, 2),
    ("SET", b"PXAT"): (6, 2),
    ("SET", b"EXAT"): (6, 2),
    ("ZADD", b"GT"): (6, 2),
    ("ZADD", b"LT"): (6, 2),
    ("ZRANGE", b"BYSCORE"): (6, 2),
    ("ZRANGE", b"BYLEX"): (6, 2),
    ("ZRANGE", b"REV"): (6, 2),
    **{
        (name, b): (7, 0)
        for name in ("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT")
        for b in (b"NX", b"XX", b"GT", b"LT")
    },
    ("BITCOUNT", b"BIT"): (7, 0),
    ("BITPOS", b"BIT"): (7, 0),
    ("ZRANK", b"WITHSCORE"): (7, 2),
    ("ZREVRANK", b"WITHSCORE"): (7, 2),
    ("HSCAN", b"NOVALUES"): (7, 4),
    ("XREAD", b"+"): (7, 4),
}
"""The same of options. From 7.0 on these were asked of servers (6.2.14, 7.0.15, 7.4.1); that 7.2 has what stands beside
it is from its documentation."""
IN_VALKEY: Final = frozenset({("HSCAN", b"NOVALUES"), ("XREAD", b"+")})
"""Options that Valkey 8 has, though it left Redis before they came (8.1.8)."""
_WITH_MORE: Final = {(7, 2): -3, (7, 4): -3, (8, 0): -3}
NEW_ARITY: Final[dict[bytes, dict[Release, int]]] = {
    **{name: {(6, 2): 3} for name in (b"expire", b"expireat", b"pexpire", b"pexpireat", b"xsetid")},
    **dict.fromkeys((b"zrank", b"zrevrank"), _WITH_MORE),
}
"""Arities that are not those of Redis 7.0, by the release that a server follows (COMMAND of each)."""
WAITS_IN_SCRIPTS: Final = frozenset(b"wait blpop brpop blmove brpoplpush bzpopmin bzpopmax".split())
"""Commands that scripts may call from Redis 7.2 on, where they do not wait (COMMAND of 7.4.1)."""


def _words(lines: str) -> dict[bytes, bytes]:
    """Texts of Redis 7.0, each with what stands in its place on the line below."""
    texts = [line.strip().encode() for line in lines.strip().splitlines()]
    return dict(zip(texts[::2], texts[1::2], strict=True))


_SINCE_7_2: Final = """
    ERR redis.set_repl() requires two arguments.
    ERR redis.set_repl() requires one argument.
    ERR Invalid debug level.
    ERR Invalid log level.
"""
_RANK_OF_ZERO: Final = (
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from "
    "the end of the list\n"
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second, ...\n"
)
WORDS: Final = {
    "6.2": """
    ERR Unknown Redis command called from script
    Unknown Redis command called from Lua script
    ERR Wrong number of args calling Redis command from script
    Wrong number of args calling Redis command From Lua script
    ERR This Redis command is not allowed from script
    This Redis command is not allowed from scripts
    ERR Please specify at least one argument for this redis lib call
    Please specify at least one argument for redis.call()
    ERR Lua redis lib command arguments must be strings or integers
    Lua redis() command arguments must be strings or integers
    ERR wrong number of arguments for 'xadd' command
    ERR wrong number of arguments for XADD
    ERR wrong number of arguments for 'mset' command
    ERR wrong number of arguments for MSET
    ERR wrong number of arguments for 'msetnx' command
    ERR wrong number of arguments for MSET
    ERR unsupported unit provided. please use M, KM, FT, MI
    ERR unsupported unit provided. please use m, km, ft, mi
    ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options
    ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORDS options
    ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options
    ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORDS options
    """
    + _RANK_OF_ZERO
    + "".join(
        f"ERR invalid expire time in '{name}' command\nERR invalid expire time in {name}\n"
        for name in ("set", "setex", "psetex", "getex", "expire", "pexpire", "expireat", "pexpireat")
    ),
    "7.2": _SINCE_7_2,
    "7.4": _SINCE_7_2,
    "8.0": _SINCE_7_2,
    "valkey-8": """
    ERR Unknown Redis command called from script
    ERR Unknown command called from script
    ERR Wrong number of args calling Redis command from script
    ERR Wrong number of args calling command from script
    ERR Please specify at least one argument for this redis lib call
    ERR Please specify at least one argument for this call
    ERR Lua redis lib command arguments must be strings or integers
    ERR Command arguments must be strings or integers
    ERR redis.set_repl() requires two arguments.
    ERR server.set_repl() requires one argument.
    ERR redis.setresp() requires one argument.
    ERR server.setresp() requires one argument.
    ERR redis.log() requires two arguments or more.
    ERR server.log() requires two arguments or more.
    ERR Invalid command passed to redis.acl_check_cmd()
    ERR Invalid command passed to server.acl_check_cmd()
    ERR Invalid debug level.
    ERR Invalid log level.
    NOSCRIPT No matching script. Please use EVAL.
    NOSCRIPT No matching script.
    """,
}
"""What scripts are told, by server, where that is not what Redis 7.0 says."""
_FURTHER: Final = {
    "6.2": "stralgo",
    "7.2": "waitaof",
    "7.4": "waitaof hexpire hexpireat hpexpire hpexpireat httl hpttl hexpiretime hpexpiretime hpersist",
    "8.0": "waitaof hexpire hexpireat hpexpire hpexpireat httl hpttl hexpiretime hpexpiretime hpersist hgetdel hgetex "
    "hsetex vadd vcard vdim vemb vgetattr vinfo vlinks vrandmember vrem vsetattr vsim",
    "valkey-8": "waitaof commandlog",
}
VERSIONS: Final = {
    version.name: replace(
        version,
        words=_words(WORDS.get(version.name, "")),
        further=frozenset(_FURTHER.get(version.name, "").encode().split()),
    )
    for version in (
        ServerVersion("6.2", (6, 2), b"6.2.14"),
        ServerVersion("7.0", (7, 0), b"7.0.15"),
        ServerVersion("7.2", (7, 2), b"7.2.4"),
        ServerVersion("7.4", (7, 4), b"7.4.1"),
        ServerVersion("8.0", (8, 0), b"8.0.0"),
        ServerVersion("valkey-8", (7, 2), b"8.1.8", "valkey"),
    )
}
DEFAULT: Final = VERSIONS["7.0"]


RELEASES: Final = tuple(sorted({(3, 0), *_BY_RELEASE}))
"""Those of Redis that the table tells apart."""


def release_title(release: Release) -> str:
    """A release of Redis, for messages."""
    return f"Redis {release[0]}.{release[1]}"


def version_named(name: str, place: str = "--server") -> ServerVersion:
    """The server of that name. Raises InputError."""
    if name not in VERSIONS:
        raise InputError(f"{place} {name}: not a server that is known; give one of {', '.join(VERSIONS)}")
    return VERSIONS[name]


def version_number(number: bytes) -> int:
    """A version as one number, a byte for each part."""
    major, minor, patch = map(int, number.split(b"."))
    return major << 16 | minor << 8 | patch


def came_later(name: bytes, version: ServerVersion) -> Release | None:
    """The release of Redis that brought the command, if a server is older than it."""
    since = SINCE.get(name.decode("latin1").upper())
    return None if since is None or version.has(since) else since
