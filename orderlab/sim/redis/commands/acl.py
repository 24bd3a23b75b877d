"""ACL: the users of a served node, and what they may do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

from orderlab.sim.redis.acl_file import read_users, save_users
from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.permissions import Denial, Permissions, refusal
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, ErrorReply, RepeatedMembers, Reply, mapping
from orderlab.sim.redis.server_facts import called_row
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.users import CATEGORIES, BadRule, Selector, User, has_spaces, join_selectors, of_category

_PASSWORD_BITS_MAX: Final = 4096
_NO_FILE: Final = (
    b"ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER "
    b"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store "
    b"users in the Redis configuration."
)
_REASONS: Final = {Denial.COMMAND: b"command", Denial.KEY: b"key", Denial.AUTH: b"auth", Denial.CHANNEL: b"channel"}


def _permissions(node: NodeState) -> Permissions:
    if node.server is None:
        raise UnsupportedCommand("ACL where nobody serves the node to clients")
    permissions: Permissions = node.server.permissions
    return permissions


def _check_length(argv: Sequence[bytes]) -> None:
    if len(argv) > 3:
        shown = argv[1].split(b"\0")[0][:128]
        raise ErrorReply(b"ERR unknown subcommand or wrong number of arguments for '%b'. Try ACL HELP." % shown)


@command("acl|whoami", 2, "noscript loading stale")
def acl_whoami(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL WHOAMI."""
    _permissions(node)
    name: bytes = node.caller.user.name
    return name


@command("acl|users", 2, "admin noscript loading stale")
def acl_users(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL USERS."""
    return [user.name for user in _permissions(node).by_name()]


@command("acl|list", 2, "admin noscript loading stale")
def acl_list(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL LIST."""
    return [user.describe() for user in _permissions(node).by_name()]


@command("acl|cat", -2, "noscript loading stale")
def acl_cat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL CAT [category]."""
    _check_length(argv)
    if len(argv) == 2:
        return list(CATEGORIES)
    try:
        return list(of_category(argv[2].lower()))
    except KeyError:
        raise ErrorReply(b"ERR Unknown category '%b'" % argv[2].split(b"\0")[0]) from None


@command("acl|genpass", -2, "noscript loading stale")
def acl_genpass(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL GENPASS [bits]: in hexadecimal digits."""
    _check_length(argv)
    bits = integer(argv[2]) if len(argv) == 3 else 256
    if not 0 < bits <= _PASSWORD_BITS_MAX:
        raise ErrorReply(
            b"ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
        )
    digits = (bits + 3) // 4
    return secrets.token_hex((digits + 1) // 2)[:digits].encode()


@command("acl|save", 2, "admin noscript loading stale")
def acl_save(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL SAVE: into the file that ``aclfile`` names."""
    save_users(_permissions(node), _file(node))
    return OK


@command("acl|load", 2, "admin noscript loading stale")
def acl_load(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL LOAD: all users of that file or none; connections of all others but the default one are closed."""
    permissions, users = _permissions(node), read_users(_file(node))
    before = permissions.install(users)
    node.server.rebind(permissions.default)
    for user in before:
        node.server.end_sessions(user, node.caller)
    return OK


def _file(node: NodeState) -> bytes:
    _permissions(node)
    file: bytes = node.server.server_settings.show(b"aclfile")
    if not file:
        raise ErrorReply(_NO_FILE)
    return file


@command("acl|setuser", -3, "admin noscript loading stale")
def acl_setuser(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL SETUSER name [rule ...]: all rules or none."""
    permissions, name = _permissions(node), argv[2]
    if has_spaces(name):
        raise ErrorReply(b"ERR Usernames can't contain spaces or null characters")
    user = permissions.users.get(name)
    changed = User(name) if user is None else user.copy()
    try:
        rules = join_selectors(argv[3:])
    except BadRule as error:
        raise ErrorReply(b"ERR Unmatched parenthesis in acl selector starting at '%b'." % error.why) from None
    for rule in rules:
        try:
            changed.apply(rule)
        except BadRule as error:
            shown = rule.split(b"\0")[0]
            raise ErrorReply(b"ERR Error in ACL SETUSER modifier '%b': %b" % (shown, error.why)) from None
    if user is None:
        permissions.users[name] = changed
        return OK
    user.take(changed)
    node.server.rebind(user)
    return OK


@command("acl|deluser", -3, "admin noscript loading stale")
def acl_deluser(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL DELUSER name [name ...]: their connections are closed."""
    permissions = _permissions(node)
    if b"default" in argv[2:]:
        raise ErrorReply(b"ERR The 'default' user cannot be removed")
    gone = [permissions.users.pop(name) for name in dict.fromkeys(argv[2:]) if name in permissions.users]
    for user in gone:
        node.server.end_sessions(user, node.caller)
    return len(gone)


@command("acl|getuser", 3, "admin noscript loading stale")
def acl_getuser(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL GETUSER name."""
    user = _permissions(node).users.get(argv[2])
    if user is None:
        return None
    flags = RepeatedMembers(user.flags())
    further = [mapping(node.resp, _facts(each)) for each in user.selectors[1:]]
    return mapping(node.resp, [
        b"flags", flags, b"passwords", list(user.passwords), *_facts(user.selectors[0]), b"selectors", further,
    ])  # fmt: skip


def _facts(selector: Selector) -> list[Reply]:
    return [
        b"commands", selector.describe_commands(), b"keys", selector.describe_keys(),
        b"channels", selector.describe_channels(),
    ]  # fmt: skip


@command("acl|dryrun", -4, "admin noscript loading stale")
def acl_dryrun(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL DRYRUN user command [argument ...]: OK, or why not."""
    user, called = _permissions(node).users.get(argv[2]), argv[3:]
    if user is None:
        raise ErrorReply(b"ERR User '%b' not found" % argv[2].split(b"\0")[0])
    row: Any = called_row(called)
    if row is None:
        raise ErrorReply(b"ERR Command '%b' not found" % called[0].split(b"\0")[0])
    if len(called) != row[1] and not 0 < -row[1] <= len(called):
        raise ErrorReply(b"ERR wrong number of arguments for '%b' command" % row[0])
    refused = refusal(user, called)
    return OK if refused is None else refused.explained(called, node.version)


@command("acl|log", -2, "admin noscript loading stale")
def acl_log(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ACL LOG [count | RESET]."""
    _check_length(argv)
    permissions, count = _permissions(node), 10
    if len(argv) == 3:
        if option(argv[2]) == b"RESET":
            permissions.log.clear()
            return OK
        count = max(0, integer(argv[2]))
    return [
        mapping(node.resp, [
            b"count", entry.count, b"reason", _REASONS[entry.why], b"context", entry.context, b"object", entry.what,
            b"username", entry.user, b"age-seconds", _seconds(node, node.now_ms - entry.at_ms),
            b"client-info", entry.client,
        ])
        for entry in permissions.log[:count]
    ]  # fmt: skip


def _seconds(node: NodeState, age_ms: int) -> Reply:
    return age_ms / 1000 if node.resp == 3 else b"%.17g" % (age_ms / 1000)
