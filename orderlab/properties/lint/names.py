"""Rules about names: globals, what is not there, arrays that begin at 1, commands that scripts have not."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.lint.rule import DEFAULT, ERROR, NOTE, LintSettings, Mention, rule
from orderlab.properties.lint.scopes import enclosing
from orderlab.properties.lint.values import ParsedScript, knows
from orderlab.properties.syntax import Change
from orderlab.sim.redis.unsupported import NOT_FROM_SCRIPTS, SERVER_COMMANDS
from orderlab.sim.redis.versions import IN_VALKEY, OPTION_SINCE, SINCE, WAITS_IN_SCRIPTS, release_title

GLOBALS = frozenset(
    b"""KEYS ARGV redis cjson cmsgpack struct bit string table math os assert collectgarbage coroutine error
    gcinfo getmetatable ipairs load loadstring next pairs pcall rawequal rawget rawset select setmetatable tonumber
    tostring type unpack xpcall _VERSION _G print newproxy""".split()
)
"""Names that a script finds (Redis 7)."""
MEMBERS = {
    b"os": frozenset([b"clock"]),
    b"redis": frozenset(
        b"""call pcall error_reply status_reply sha1hex log LOG_DEBUG LOG_VERBOSE LOG_NOTICE LOG_WARNING setresp
        set_repl REPL_ALL REPL_AOF REPL_REPLICA REPL_SLAVE REPL_NONE replicate_commands breakpoint debug
        acl_check_cmd register_function REDIS_VERSION REDIS_VERSION_NUM""".split()
    ),
}
"""What a server leaves of two tables (Redis 7)."""
SINCE_7_0 = frozenset(b"acl_check_cmd register_function REDIS_VERSION REDIS_VERSION_NUM".split())
"""Of those of ``redis`` (6.2.14 has none of them)."""
OF_VALKEY = frozenset(b"SERVER_NAME VALKEY_VERSION VALKEY_VERSION_NUM".split())
"""What Valkey has there beside (8.1.8)."""
DEPRECATED = {
    "GETSET": "SET with GET",
    "HMSET": "HSET",
    "RPOPLPUSH": "LMOVE",
    "SETNX": "SET with NX",
    "SETEX": "SET with EX",
    "PSETEX": "SET with PX",
    "SUBSTR": "GETRANGE",
    "ZRANGEBYSCORE": "ZRANGE with BYSCORE",
    "ZREVRANGE": "ZRANGE with REV",
    "ZREVRANGEBYSCORE": "ZRANGE with BYSCORE and REV",
    "ZRANGEBYLEX": "ZRANGE with BYLEX",
    "GEORADIUS": "GEOSEARCH",
}
"""Commands that Redis calls deprecated -> what it names in their place."""


@rule(
    "global-variable",
    ERROR,
    "Something is assigned to a global variable.",
    why="A server refuses it (`Attempt to modify a readonly table`): the script ends there. Say local.",
    bad="count = redis.call('INCR', KEYS[1])\nreturn count",
    good="local count = redis.call('INCR', KEYS[1])\nreturn count",
)
def global_variable(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    told = set()
    for node, variable in script.scopes.assigned_globals:
        if variable in told:
            continue
        told.add(variable)
        statement = next(enclosing(node, "assignment_statement", "function_declaration"), None)
        is_top = statement is not None and statement.parent is not None and statement.parent.type == "chunk"
        fix = None
        if statement is not None and is_top and statement.start_byte <= node.start_byte:
            fix = Change(statement.start_byte, statement.start_byte, b"local ", "local")
        yield Mention(node, f"{script.text(node)} is no local variable: the server ends the script here", fix)


@rule(
    "unknown-name",
    ERROR,
    "A global is read that a server has not.",
    why="Scripts have no os.time, no require, no print to a terminal; reading another global ends the script.",
    bad="return require('x')",
    good="return cjson.encode({})",
)
def unknown_name(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    assigned = {variable.name for _, variable in script.scopes.assigned_globals}
    told: set[bytes] = set()
    members = MEMBERS | {b"redis": MEMBERS[b"redis"] | OF_VALKEY} if settings.is_valkey else MEMBERS
    members |= {b"server": members[b"redis"]} if settings.is_valkey else {}
    assigned |= {b"server"} if settings.is_valkey else set()
    for node in script.chunk.nodes("dot_index_expression"):
        table, member = (script.chunk.text(part) for part in node.named_children[:2])
        if table not in members:
            continue
        if member not in members[table]:
            of_valkey = " (Valkey 8 has it)" if table == b"redis" and member in OF_VALKEY else ""
            yield Mention(node, f"there is no {script.text(node)} in a script{of_valkey}")
        elif member in SINCE_7_0 and settings.server < (7, 0):
            yield Mention(node, f"there is no {script.text(node)} in a script: it came with Redis 7.0")
    for node in script.chunk.nodes("identifier"):
        variable = script.scopes.variable(node)
        if variable is None or variable.kind != "global" or variable.name in GLOBALS | assigned | told:
            continue
        told.add(variable.name)
        of_valkey = " (Valkey 8 has it)" if variable.name == b"server" else ""
        yield Mention(node, f"there is no {script.text(node)} in a script: the server ends it here{of_valkey}")


@rule(
    "index-from-zero",
    ERROR,
    "KEYS and ARGV begin at 1.",
    why="KEYS[0] is nil, whatever is given.",
    bad="return redis.call('GET', KEYS[0])",
    good="return redis.call('GET', KEYS[1])",
)
def index_from_zero(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for node in script.chunk.nodes("bracket_index_expression"):
        table, at = node.named_children[0], node.named_children[-1]
        if script.chunk.text(table) in (b"KEYS", b"ARGV") and at.type == "number" and script.number(at) == 0:
            yield Mention(node, f"{script.text(table)} begins at 1: this is nil")


@rule(
    "command-refused",
    ERROR,
    "A command that scripts may not call, that no server has, or with a wrong number of arguments.",
    why="The server replies with an error, and the script ends there.",
    bad="return redis.call('WATCH', KEYS[1])",
    good="return redis.call('GET', KEYS[1])",
)
def command_refused(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for call in script.calls:
        name = call.command.name.lower()
        if settings.version is not None and name in settings.version.further:
            continue
        if name not in SERVER_COMMANDS and not knows(name):
            if settings.server > DEFAULT.server or call.name in SINCE:
                continue  # it may be one of those that came later, of which `newer-server` speaks
            yield Mention(
                call.command.name_node, f"no command is called {call.name} ({settings.title}, without modules)"
            )
        elif settings.server >= (7, 2) and name in WAITS_IN_SCRIPTS:
            continue
        elif name in NOT_FROM_SCRIPTS or (call.entry is not None and "noscript" in call.entry.flags):
            yield Mention(call.command.name_node, f"scripts may not call {call.name}")
        elif call.entry is not None and call.is_direct and not any(map(script.spreads, call.command.arguments[-1:])):
            count = 1 + len(call.command.arguments)
            if not call.entry.admits(count) and (settings.server < (7, 2) or name not in (b"zrank", b"zrevrank")):
                yield Mention(call.node, f"{call.name} does not take {count - 1} arguments")


@rule(
    "newer-server",
    ERROR,
    "A command or an option is newer than the server.",
    why="The server (--server) does not know it: the script ends there.",
    bad="return redis.call('GETDEL', KEYS[1])",
    good="return redis.call('GET', KEYS[1])",
    settings=LintSettings(server=(6, 0)),
)
def newer_server(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    if script.chunk.source.startswith(b"#!") and settings.server < (7, 0):
        yield Mention(script.chunk.root, "a first line #! came with Redis 7.0")
    for call in script.calls:
        needed = [(call.node, call.name, SINCE[call.name])] if call.name in SINCE else []
        for part in call.command.arguments:
            option = call.name, (script.string(part) or b"").upper()
            if part.type == "string" and option in OPTION_SINCE and not (settings.is_valkey and option in IN_VALKEY):
                needed.append((part, f"{call.name} with {option[1].decode()}", OPTION_SINCE[option]))
        for node, what, since in needed:
            if since > settings.server:
                came = f"{what} came with {release_title(since)}"
                yield Mention(node, f"{came}, and {settings.title} has not taken it" if settings.is_valkey else came)


@rule(
    "deprecated-command",
    NOTE,
    "A command that Redis calls deprecated.",
    why="It works; new servers that speak Redis's protocol may leave it out.",
    bad="return redis.call('HMSET', KEYS[1], 'a', '1')",
    good="return redis.call('HSET', KEYS[1], 'a', '1')",
)
def deprecated_command(script: ParsedScript, settings: LintSettings) -> Iterator[Mention]:
    for call in script.calls:
        if call.name in DEPRECATED:
            fix = None
            if call.name == "HMSET" and settings.server >= (4, 0):
                fix = script.chunk.replaced(call.command.name_node, b"'HSET'", "HSET in place of HMSET")
            yield Mention(call.command.name_node, f"{call.name} is deprecated: {DEPRECATED[call.name]}", fix)
