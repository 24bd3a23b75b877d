"""Who may do what on a node: its users, whether a call is within their rules, and what was denied (``acl.c`` of Redis
7.0.15)."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, cast

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.server_facts import UnknownKeys, called_row, key_places
from orderlab.sim.redis.subscriptions import PATTERN
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.users import READ, WRITE, Selector, User, default_user, password_hash
from orderlab.sim.redis.versions import ServerVersion

LOG_MAX: Final = 128
"""Entries of ACL LOG (``acllog-max-len``)."""
SAME_MS: Final = 60_000
"""Within it a denial like an earlier one is counted with it."""
_CHANNELS: Final = {
    b"publish": False, b"spublish": False, b"subscribe": False, b"ssubscribe": False, b"psubscribe": True,
}  # fmt: skip
"""Commands whose channels are asked for; whether these are patterns."""
_PUBLISHING: Final = (b"publish", b"spublish")
_WRITING: Final = frozenset((b"insert", b"delete", b"update"))


class Denial(IntEnum):
    """Why a call is denied. Of several selectors the greatest is told."""

    COMMAND = 1
    KEY = 2
    AUTH = 3
    CHANNEL = 4


_TO_CLIENT: Final = {
    Denial.KEY: b"NOPERM this user has no permissions to access one of the keys used as arguments",
    Denial.CHANNEL: b"NOPERM this user has no permissions to access one of the channels used as arguments",
}
_TO_SCRIPT: Final = {
    Denial.COMMAND: b"ERR The user executing the script can't run this command or subcommand",
    Denial.KEY: b"ERR The user executing the script can't access at least one of the keys mentioned in the command "
    b"arguments",
    Denial.CHANNEL: b"ERR The user executing the script can't publish to the channel mentioned in the command",
}
_TO_EXEC: Final = {
    Denial.COMMAND: b"no permission to execute the command or subcommand",
    Denial.KEY: b"no permission to touch the specified keys",
    Denial.CHANNEL: b"no permission to access one of the channels used as arguments to the command",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that no selector of its user allows."""

    why: Denial
    name: bytes
    """The command, or the subcommand with its container."""
    user: bytes
    at: int = 0
    """The argument that is denied: a key, or a channel."""

    def _in_new_words(self) -> bytes:
        """As servers from 7.2 on tell it, to clients and to scripts alike."""
        if self.why is Denial.COMMAND:
            return b"User %b has no permissions to run the '%b' command" % (self.user, self.name)
        return b"No permissions to access a key" if self.why is Denial.KEY else b"No permissions to access a channel"

    def to_client(self, version: ServerVersion) -> bytes:
        """What a client is told that calls it."""
        if version.has((7, 2)):
            return b"NOPERM " + self._in_new_words()
        usual = b"NOPERM this user has no permissions to run the '%b' command" % self.name
        return _TO_CLIENT.get(self.why, usual)

    def to_script(self, version: ServerVersion) -> bytes:
        """What a script is told."""
        if version.has((7, 2)):
            return b"ERR ACL failure in script: " + self._in_new_words()
        return _TO_SCRIPT[self.why]

    def to_exec(self) -> bytes:
        """What EXEC tells of a command that was allowed when it was queued."""
        return (
            b"NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This "
            b"command is no longer allowed for the following reason: " + _TO_EXEC[self.why]
        )

    def explained(self, argv: Sequence[bytes], version: ServerVersion) -> bytes:
        """What ACL DRYRUN replies."""
        who = b"User " + self.user if version.has((7, 2)) else b"This user"
        if self.why is Denial.COMMAND:
            return b"%b has no permissions to run the '%b' command" % (who, self.name)
        kind = b"key" if self.why is Denial.KEY else b"channel"
        return b"%b has no permissions to access the '%b' %b" % (who, argv[self.at], kind)


def refusal(user: User, argv: Sequence[bytes]) -> Refusal | None:
    """Why a user may not call this; None: it may. The kernel has the command."""
    row: Any = called_row(argv)
    if row is None:  # of a server later than the rows
        raise UnsupportedCommand(f"{argv[0].decode('latin1').upper()} for a user who may not do everything")
    name: bytes = row[0]
    worst: Refusal | None = None
    for selector in user.selectors:
        why, at = _denied(selector, row, argv)
        if why is None:
            return None
        if worst is None or (why, at) > (worst.why, worst.at):
            worst = Refusal(why, name, user.name, at)
    return worst


def _denied(selector: Selector, row: Sequence[Any], argv: Sequence[bytes]) -> tuple[Denial | None, int]:
    name = row[0]
    if b"no_auth" not in row[2] and not selector.may_call(name, argv):
        return Denial.COMMAND, 0
    for at, use in () if selector.all_keys else _keys(name, argv):
        if not selector.may_use(argv[at], use):
            return Denial.KEY, at
    if not selector.all_channels and name in _CHANNELS:
        for at in range(1, 2 if name in _PUBLISHING else len(argv)):
            if at < len(argv) and not selector.may_hear(argv[at], _CHANNELS[name]):
                return Denial.CHANNEL, at
    return None, 0


def _keys(name: bytes, argv: Sequence[bytes]) -> list[tuple[int, int]]:
    """The arguments that are keys, with what is done to them."""
    command = find(argv)
    if command is not None and (not command.admits(len(argv)) or not command.find_keys(argv)):
        return []
    try:
        places = key_places(argv)
    except UnknownKeys:
        raise UnsupportedCommand(f"{name.decode().upper()} under rules for keys") from None
    return [
        (place.at, (READ if b"access" in place.flags else 0) | (0 if _WRITING.isdisjoint(place.flags) else WRITE))
        for place in places
        if b"not_key" not in place.flags
    ]


@dataclass(slots=True)
class Denied:
    """One entry of ACL LOG."""

    why: Denial
    context: bytes
    what: bytes
    user: bytes
    client: bytes
    """Its line of CLIENT LIST."""
    at_ms: int
    count: int = 1


class Permissions:
    """The users of a node. A connection is bound to one of them: ``Client.user``, and ``Client.guard`` where that one
    may not do everything, so that nobody else pays for being asked."""

    def __init__(self, password: bytes, now_ms: Callable[[], int], describe: Callable[[Client], bytes]) -> None:
        self.default = default_user(password)
        self.users: dict[bytes, User] = {b"default": self.default}
        self.log: list[Denied] = []
        """The last first."""
        self._now_ms = now_ms
        self._describe = describe

    @property
    def asks_who(self) -> bool:
        """Whether a new connection has to say who it is."""
        return not (self.default.takes_any_password and self.default.is_on)

    def by_name(self) -> list[User]:
        """The users, sorted."""
        return [self.users[name] for name in sorted(self.users)]

    def install(self, users: dict[bytes, User]) -> list[User]:
        """Have these users in place of those that there were, which are returned without the default one: that one
        takes its new rules."""
        before = [user for user in self.users.values() if user is not self.default]
        self.default.take(users[b"default"])
        self.users = users | {b"default": self.default}
        return before

    def set_default_password(self, password: bytes) -> None:
        """CONFIG SET requirepass."""
        self.default.apply(b"resetpass")
        self.default.apply(b">" + password if password else b"nopass")

    def bind(self, client: Client, user: User) -> None:
        """Let a connection be this user."""
        client.user = user
        client.guard = None if user.is_unrestricted else self

    def authenticated(self, client: Client, name: bytes, password: bytes, word: bytes) -> User:
        """The user of that name and password; ``word`` is how it was said. Raises ErrorReply."""
        user = self.users.get(name)
        hashed = password_hash(password)
        if user is not None and user.is_on:
            fits = [hmac.compare_digest(each, hashed) for each in user.passwords]
            if user.takes_any_password or any(fits):
                return user
        self._note(client, Denied(Denial.AUTH, self._context(client), word, name, self._describe(client), 0))
        raise ErrorReply(b"WRONGPASS invalid username-password pair or user is disabled.")

    # -- calls ---------------------------------------------------------------------------------------------

    def refusal(self, client: Client, argv: Sequence[bytes], context: bytes = b"") -> Refusal | None:
        """Why a connection may not call this, noted in the log; None: it may."""
        refused = refusal(client.user, argv)
        if refused is not None:
            what = refused.name if refused.why is Denial.COMMAND else argv[refused.at]
            context = context or self._context(client)
            self._note(client, Denied(refused.why, context, what, client.user.name, self._describe(client), 0))
        return refused

    def may(self, client: Client, argv: Sequence[bytes]) -> bool:
        """Whether a connection may call this (``redis.acl_check_cmd``)."""
        return refusal(client.user, argv) is None

    def may_read_all(self, client: Client, argv: Sequence[bytes]) -> bool:
        """Whether a connection may call this and read every key (SORT by patterns)."""
        row = cast("list[Any]", called_row(argv))
        return any(
            _denied(selector, row, argv)[0] is None and (selector.all_keys or bool(selector.keys.get(b"*", 0) & READ))
            for selector in client.user.selectors
        )

    def _context(self, client: Client) -> bytes:
        return b"toplevel" if client.queue is None else b"multi"

    def _note(self, client: Client, denied: Denied) -> None:
        denied.at_ms = self._now_ms()
        for entry in self.log:
            is_same = (entry.why, entry.context, entry.what, entry.user) == (
                denied.why, denied.context, denied.what, denied.user,
            )  # fmt: skip
            if is_same and denied.at_ms - entry.at_ms <= SAME_MS:
                denied.count = entry.count + 1
                self.log.remove(entry)
                break
        self.log.insert(0, denied)
        del self.log[LOG_MAX:]


def may_stay_subscribed(user: User, client: Client) -> bool:
    """Whether a user may hear all that a connection is subscribed to, by one of its selectors
    (``ACLKillPubsubClientsIfNeeded``)."""
    return any(
        all(selector.may_hear(name, kind == PATTERN) for kind, names in client.subscriptions.items() for name in names)
        for selector in user.selectors
    )
