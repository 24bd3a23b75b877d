"""Commands about the node: time, settings, facts, and the table of its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orderlab.sim.redis import config, notifications
from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.reloading import describe_object, reload
from orderlab.sim.redis.memory import MemoryAccount, usage
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import c_integer, command, find
from orderlab.sim.redis.replies import (
    OK,
    SYNTAX_ERROR,
    BigNumber,
    ErrorReply,
    RepeatedKeys,
    RepeatedMembers,
    Reply,
    Status,
    Verbatim,
    mapping,
)
from orderlab.sim.redis.scanning import glob
from orderlab.sim.redis.server_facts import UnknownKeys, command_documents, command_rows, help_pages, key_places
from orderlab.sim.redis.unsupported import (
    DEBUG_LACKING,
    SERVER_COMMANDS,
    SERVER_DIRECTIVES,
    SERVER_SUBCOMMANDS,
    UnsupportedCommand,
    check_lacking,
)
from orderlab.sim.redis.versions import came_later


@command("time", 1, "loading stale fast")
def time(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """TIME: seconds and microseconds of the virtual clock."""
    seconds, ms = divmod(node.now_ms, 1000)
    return [b"%d" % seconds, b"%d" % (ms * 1000 + node.now_us)]


@command("config|get", -3, "admin noscript loading stale")
def config_get(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CONFIG GET pattern [pattern ...]."""
    facts: dict[bytes, tuple[bytes, bytes]] = {}  # each once, by the name that it was asked for first
    own: Any = None if node.server is None else node.server.server_settings
    for pattern in argv[2:]:
        lower = pattern.lower()
        if not any(byte in b"[*?" for byte in pattern):
            if lower in config.DIRECTIVES:
                facts.setdefault(lower, (pattern, config.DIRECTIVES[lower].show(node.config)))
            elif own is not None and own.show(lower) is not None:
                facts.setdefault(lower, (pattern, own.show(lower)))
            elif lower in SERVER_DIRECTIVES:
                raise UnsupportedCommand(f"CONFIG GET {lower.decode()}")
            continue
        matches = glob(lower)
        for name, directive in config.DIRECTIVES.items():
            if matches(name):
                facts.setdefault(name, (name, directive.show(node.config)))
        for name in own.names() if own is not None else ():
            if matches(name):
                facts.setdefault(name, (name, own.show(name)))
    return mapping(node.resp, [part for fact in facts.values() for part in fact])


@command("config|set", -4, "admin noscript loading stale")
def config_set(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CONFIG SET directive value [directive value ...]: all or none."""
    if len(argv) % 2:
        raise ErrorReply(SYNTAX_ERROR)
    own: Any = None if node.server is None else node.server.server_settings
    of_kernel: list[tuple[bytes, bytes]] = []
    of_server: dict[bytes, Callable[[], None]] = {}
    try:
        for name, value in zip(argv[2::2], argv[3::2], strict=True):
            lower = name.lower()
            if lower in config.DIRECTIVES or lower not in SERVER_DIRECTIVES:
                of_kernel.append((name, value))
            elif own is None or own.show(lower) is None:
                raise UnsupportedCommand(f"CONFIG SET {name.decode()}")
            elif lower in of_server:
                raise config.SettingError(
                    f"CONFIG SET failed (possibly related to argument '{lower.decode()}') - duplicate parameter"
                )
            else:
                of_server[lower] = own.prepare(lower, value)
        config.set_all(node.config, of_kernel)
    except config.SettingError as error:
        raise ErrorReply(b"ERR " + str(error).encode("latin1")) from None
    if any(name.lower() == b"notify-keyspace-events" for name, _ in of_kernel):
        notifications.follow(node)
    for set_ in of_server.values():
        set_()
    return OK


@command("config|resetstat", 2, "admin noscript loading stale")
def config_resetstat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """CONFIG RESETSTAT."""
    node.evicted_keys = node.expired_keys = 0
    if node.server is not None:
        node.server.statistics.reset()
    return OK


def used_memory(node: NodeState) -> int:
    """The estimate of ``used_memory`` (``memory``)."""
    if node.memory is None:
        node.memory = MemoryAccount(node)
        node.observe_changes()
    return node.memory.used()


@command("memory|usage", -3, "readonly", (2, 2, 1))
def memory_usage(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """MEMORY USAGE key [SAMPLES n]: an estimate; see ``memory``."""
    for at in range(3, len(argv), 2):
        if option(argv[at]) != b"SAMPLES" or at + 1 == len(argv) or integer(argv[at + 1]) < 0:
            raise ErrorReply(SYNTAX_ERROR)
    value = node.peek(argv[2])
    return None if value is None else usage(argv[2], value, node.string_encodings.get(argv[2]))


@command("role", 1, "noscript loading stale fast")
def role(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ROLE: of a master without its replicas' addresses, which a node does not know."""
    if node.is_replica:
        raise UnsupportedCommand("ROLE of a replica")
    return [b"master", 0, []]


@command("lastsave", 1, "loading stale fast")
def lastsave(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LASTSAVE: nothing is ever saved here; the node's own start counts, as on a server."""
    return node.started_ms // 1000


_DEBUG_ARITY = {
    b"SET-ACTIVE-EXPIRE": 3,
    b"SLEEP": 3,
    b"CHANGE-REPL-ID": 2,
    b"PROTOCOL": 3,
    b"SET-DISABLE-DENY-SCRIPTS": 3,
}
_BIG_NUMBER = b"1234567999999999999999999999999999999"
_PROTOCOL_TYPES = b"string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"


@command("debug", -2, "admin noscript loading stale")
def debug(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """DEBUG SET-ACTIVE-EXPIRE 0 | 1; SLEEP, which lets virtual time pass; PROTOCOL type; SET-DISABLE-DENY-SCRIPTS 0 |
    1; OBJECT key; RELOAD; HELP."""
    word = option(argv[1])
    if word == b"OBJECT" and len(argv) == 3:
        return describe_object(node, argv[2])
    if word == b"RELOAD":
        return reload(node, argv[2:])
    if word == b"HELP" and len(argv) == 2:
        return help_pages()["debug"]
    if word in DEBUG_LACKING:
        raise UnsupportedCommand(f"DEBUG {word.decode()}")
    if len(argv) != _DEBUG_ARITY.get(word):
        shown = argv[1].split(b"\0")[0][:128]
        raise ErrorReply(b"ERR unknown subcommand or wrong number of arguments for '%b'. Try DEBUG HELP." % shown)
    if word == b"SET-ACTIVE-EXPIRE":
        node.expire_cycle.is_enabled = c_integer(argv[2]) != 0
    elif word == b"SET-DISABLE-DENY-SCRIPTS":
        node.scripts_may_call_all = c_integer(argv[2]) != 0
    elif word == b"PROTOCOL":
        return _protocol_example(node, option(argv[2]))
    elif word == b"SLEEP":
        try:
            milliseconds = int(float(argv[2]) * 1000)
        except (ValueError, OverflowError):
            raise UnsupportedCommand("DEBUG SLEEP for anything but a plain number") from None
        node.now_ms += milliseconds
        node.slept_ms += milliseconds
    return OK


def _protocol_example(node: NodeState, kind: bytes) -> Reply:
    """A reply of one type of the protocol. The attribute that goes before one of them is not shown."""
    speaks_3 = node.resp == 3
    if kind == b"PUSH":
        if speaks_3:
            raise UnsupportedCommand("DEBUG PROTOCOL push")
        raise ErrorReply(b"ERR RESP2 is not supported by this command")
    examples: dict[bytes, Reply] = {
        b"STRING": b"Hello World",
        b"INTEGER": 12345,
        b"DOUBLE": 3.141 if speaks_3 else b"3.141",
        b"NULL": None,
        b"ARRAY": [0, 1, 2],
        b"BIGNUM": BigNumber(_BIG_NUMBER) if speaks_3 else _BIG_NUMBER,
        b"SET": {0, 1, 2} if speaks_3 else [0, 1, 2],
        b"MAP": {0: False, 1: True, 2: False} if speaks_3 else [0, 0, 1, 1, 2, 0],
        b"TRUE": True if speaks_3 else 1,
        b"FALSE": False if speaks_3 else 0,
        b"ATTRIB": b"Some real reply following the attribute",
        b"VERBATIM": (Verbatim if speaks_3 else bytes)(b"This is a verbatim\nstring"),
    }
    if kind not in examples:
        raise ErrorReply(b"ERR Wrong protocol type name. Please use one of the following: " + _PROTOCOL_TYPES)
    return examples[kind]


@command("command", -1, "loading stale")
def command_(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND: the server's commands, those that the kernel lacks included."""
    return [row for name, row in command_rows().items() if b"|" not in name]


@command("command|info", -2, "loading stale")
def command_info(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND INFO [command ...]."""
    return command_(node, argv) if len(argv) == 2 else [command_rows().get(name.lower()) for name in argv[2:]]


@command("command|docs", -2, "loading stale")
def command_docs(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND DOCS [command ...]: as the server documents them."""
    documents = command_documents()
    names = [name.lower() for name in argv[2:]] or [name for name in documents if b"|" not in name]
    return RepeatedKeys([part for name in names if name in documents for part in (name, documents[name])])


@command("command|getkeysandflags", -4, "loading stale")
def command_getkeysandflags(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND GETKEYSANDFLAGS command [argument ...]."""
    called = argv[2:]
    command_getkeys(node, argv)
    try:
        places = key_places(called)
    except UnknownKeys:
        raise UnsupportedCommand(f"COMMAND GETKEYSANDFLAGS of {called[0].decode('latin1')}") from None
    return [[called[place.at], RepeatedMembers(map(Status, place.flags))] for place in places]


@command("command|count", 2, "loading stale")
def command_count(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND COUNT: of the server's commands, those that the kernel lacks included."""
    return len(_commands_of(node))


def _commands_of(node: NodeState) -> frozenset[bytes]:
    version = node.version
    return frozenset(name for name in SERVER_COMMANDS if not came_later(name, version)) | version.further


@command("command|list", -2, "loading stale")
def command_list(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND LIST [FILTERBY PATTERN pattern], sorted."""
    subcommands = {b"%b|%b" % (name, sub) for name, subs in SERVER_SUBCOMMANDS.items() for sub in subs}
    names = sorted(_commands_of(node) | subcommands)
    if len(argv) == 2:
        return names
    if len(argv) != 5 or option(argv[2]) != b"FILTERBY" or option(argv[3]) not in (b"PATTERN", b"MODULE", b"ACLCAT"):
        raise ErrorReply(SYNTAX_ERROR)
    if option(argv[3]) == b"ACLCAT":
        rows: dict[bytes, Any] = dict(command_rows())
        return [name for name in names if b"@" + argv[4].lower() in rows[name][6]]
    if option(argv[3]) == b"MODULE":
        return []
    return list(filter(glob(argv[4].lower()), names))


@command("command|getkeys", -4, "loading stale")
def command_getkeys(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """COMMAND GETKEYS command [argument ...]."""
    called = argv[2:]
    found = find(called, node.spellings)
    if found is None:
        check_lacking(called, node.version)
        raise ErrorReply(b"ERR Invalid command specified")
    if not found.has_keys:
        raise ErrorReply(b"ERR The command has no key arguments")
    if not found.admits(len(called)):
        raise ErrorReply(b"ERR Invalid number of arguments specified for command")
    keys = list(found.find_keys(called))
    if not keys and "no_mandatory_keys" not in found.flags:
        raise ErrorReply(b"ERR Invalid arguments specified for command")
    return keys
