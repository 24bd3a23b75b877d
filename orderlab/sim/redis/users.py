"""Users of a node and the rules that say what each may do (``ACL SETUSER`` of Redis 7.0.15, in its order and with its
texts)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast

from orderlab.sim.redis.lua.host import split_arguments
from orderlab.sim.redis.scanning import glob
from orderlab.sim.redis.server_facts import LIKE, command_rows

CATEGORIES: Final = (
    b"keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin fast slow blocking "
    b"dangerous connection transaction scripting"
).split()
"""In the order in which ACL CAT lists them."""
READ: Final = 1
WRITE: Final = 2
_SPACES: Final = b" \t\n\v\f\r\0"
UNKNOWN_COMMAND: Final = b"Unknown command or category name in ACL"
_SYNTAX: Final = b"Syntax error"
_AFTER_ALL_KEYS: Final = (
    b"Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try "
    b"'resetkeys' to start with an empty list of patterns"
)
_AFTER_ALL_CHANNELS: Final = (
    b"Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try "
    b"'resetchannels' to start with an empty list of channels"
)
_NO_PASSWORD: Final = b"The password you are trying to remove from the user does not exist"
_BAD_HASH: Final = b"The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
_FIRST_OF_SUBCOMMAND: Final = b"Allowing first-arg of a subcommand is not supported"


class BadRule(Exception):
    """A rule is none; the message is the server's."""

    def __init__(self, why: bytes) -> None:
        self.why = why
        super().__init__(why.decode())


@cache
def command_names() -> frozenset[bytes]:
    """Of all commands and subcommands (``container|name``) that rules know."""
    return frozenset(command_rows())


def of_category(category: bytes) -> list[bytes]:
    """Names of the commands and subcommands in a category. Raises KeyError."""
    if category not in CATEGORIES:
        raise KeyError(category)
    return [name for name, row in command_rows().items() if b"@" + category in cast("list[Any]", row[6])]


@cache
def _members(category: bytes) -> frozenset[bytes]:
    """What a rule about a category concerns: subcommands go with their container."""
    return frozenset(each for name in of_category(category) for each in _with_subcommands(name))


def _with_subcommands(name: bytes) -> list[bytes]:
    return [name, *[row[0] for row in cast("list[Any]", command_rows()[name][9])]]


def has_spaces(text: bytes) -> bool:
    """Whether a name or a pattern has what would end it in a line of rules."""
    return any(byte in _SPACES for byte in text)


@dataclass(slots=True)
class Selector:
    """Commands, keys and channels that go together: a call has to fit one selector of its user whole."""

    commands: set[bytes] = field(default_factory=set)
    has_future: bool = False
    """Whether commands that a later server has are allowed: what was begun with +@all."""
    first_arguments: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Of commands that are not allowed: first arguments with which they are."""
    all_keys: bool = False
    keys: dict[bytes, int] = field(default_factory=dict)
    """Pattern to what its keys may be used for (READ, WRITE)."""
    all_channels: bool = False
    channels: list[bytes] = field(default_factory=list)

    def copy(self) -> Selector:
        """Another with the same rules."""
        first = {name: list(words) for name, words in self.first_arguments.items()}
        keys, channels = dict(self.keys), list(self.channels)
        return Selector(set(self.commands), self.has_future, first, self.all_keys, keys, self.all_channels, channels)

    @property
    def allows_all(self) -> bool:
        """Whether there is nothing that it denies."""
        return self.all_keys and self.all_channels and len(self.commands) == len(command_names())

    # -- rules ---------------------------------------------------------------------------------------------

    def apply(self, rule: bytes) -> None:
        """Change by one rule. Raises BadRule."""
        word = rule.lower()
        if word in (b"allkeys", b"~*", b"resetkeys"):
            self.all_keys, self.keys = word != b"resetkeys", {}
        elif word in (b"allchannels", b"&*", b"resetchannels"):
            self.all_channels, self.channels = word != b"resetchannels", []
        elif word in (b"allcommands", b"+@all", b"nocommands", b"-@all"):
            self.has_future = word in (b"allcommands", b"+@all")
            self.commands = set(command_names()) if self.has_future else set()
            self.first_arguments = {}
        elif rule[:1] in (b"~", b"%"):
            self._add_keys(rule)
        elif rule[:1] == b"&":
            self._add_channels(rule[1:])
        elif rule[:2] in (b"+@", b"-@"):
            if word[2:] not in CATEGORIES:
                raise BadRule(UNKNOWN_COMMAND)
            self._change(_members(word[2:]), word[:1] == b"+")
        elif rule[:1] == b"-":
            self._change(_with_subcommands(_known(word[1:])), False)
        elif rule[:1] == b"+":
            self._allow(rule[1:])
        else:
            raise BadRule(_SYNTAX)

    def _add_keys(self, rule: bytes) -> None:
        if self.all_keys:
            raise BadRule(_AFTER_ALL_KEYS)
        use, pattern = READ | WRITE, rule[1:]
        if rule[:1] == b"%":
            words, tilde, pattern = pattern.partition(b"~")
            letters = words.upper()
            if not letters or not set(letters) <= set(b"RW") or len(set(letters)) < len(letters):
                raise BadRule(_SYNTAX)
            if not tilde:
                pattern = b""
            use = (READ if b"R" in letters else 0) | (WRITE if b"W" in letters else 0)
        if has_spaces(pattern):
            raise BadRule(_SYNTAX)
        self.keys[pattern] = self.keys.get(pattern, 0) | use

    def _add_channels(self, pattern: bytes) -> None:
        if self.all_channels:
            raise BadRule(_AFTER_ALL_CHANNELS)
        if has_spaces(pattern):
            raise BadRule(_SYNTAX)
        if pattern not in self.channels:
            self.channels.append(pattern)

    def _allow(self, called: bytes) -> None:
        """``+command``, ``+container|subcommand``, ``+command|first-argument``."""
        before, bar, last = called.rpartition(b"|")
        name = called.lower()
        if bar:
            container = _known(before.lower())
            if b"|" in container:
                raise BadRule(_FIRST_OF_SUBCOMMAND)
            if not last:
                raise BadRule(_SYNTAX)
            if len(_with_subcommands(container)) == 1:
                words = self.first_arguments.setdefault(container, [])
                if last.lower() not in [word.lower() for word in words]:
                    words.append(last)
                return
        self._change(_with_subcommands(_known(name)), True)

    def _change(self, names: Sequence[bytes] | frozenset[bytes], is_allowed: bool) -> None:
        if is_allowed:
            self.commands.update(names)
        else:
            self.commands.difference_update(names)
        for name in names:
            self.first_arguments.pop(name, None)

    # -- what it says --------------------------------------------------------------------------------------

    def may_call(self, name: bytes, argv: Sequence[bytes]) -> bool:
        """Whether it allows a command by name, or by its first argument."""
        if LIKE.get(name, name) in self.commands:
            return True
        at = 2 if b"|" in name else 1
        return len(argv) > at and argv[at].lower() in [word.lower() for word in self.first_arguments.get(name, ())]

    def may_use(self, key: bytes, use: int) -> bool:
        """Whether it allows a key for READ, WRITE or both."""
        return self.all_keys or any(use & ~can == 0 and glob(pattern)(key) for pattern, can in self.keys.items())

    def may_hear(self, channel: bytes, is_pattern: bool) -> bool:
        """Whether it allows a channel; a pattern must be among its own."""
        if self.all_channels or is_pattern:
            return self.all_channels or channel in self.channels
        return any(glob(pattern)(channel) for pattern in self.channels)

    def describe_keys(self) -> bytes:
        """Patterns of keys, as rules."""
        if self.all_keys:
            return b"~*"
        marks = {READ | WRITE: b"~", READ: b"%R~", WRITE: b"%W~", 0: b"~"}
        return b" ".join(marks[use] + pattern for pattern, use in self.keys.items())

    def describe_channels(self) -> bytes:
        """Patterns of channels, as rules."""
        return b"&*" if self.all_channels else b" ".join(b"&" + pattern for pattern in self.channels)

    def describe_commands(self) -> bytes:
        """Rules that give its commands: categories that fit best, then single commands (where a server's order is that
        of a hash)."""
        described, left = Selector(), Selector(set(self.commands))
        described.apply(b"+@all" if self.has_future else b"-@all")
        rules = [b"+@all" if self.has_future else b"-@all"]
        add, take = (b"-@", b"+@") if self.has_future else (b"+@", b"-@")
        unused = list(CATEGORIES)
        while (best := self._best_category(left, unused)) is not None:
            described.apply(add + best)
            left.apply(take + best)
            rules.append(add + best)
            unused.remove(best)
        for name in command_rows():
            if (name in self.commands) != (name in described.commands):
                rules.append((b"+" if name in self.commands else b"-") + name)
                described.apply(rules[-1])
            if name not in self.commands:
                rules += [b"+%b|%b" % (name, word) for word in self.first_arguments.get(name, ())]
        return b" ".join(rules)

    def _best_category(self, left: Selector, unused: Sequence[bytes]) -> bytes | None:
        best, least, most = None, 1 << 31, 0
        for category in unused:
            names = of_category(category)
            on = len(left.commands.intersection(names))
            same, other = (len(names) - on, on) if self.has_future else (on, len(names) - on)
            if same > other and (other < least or (other == least and same > most)):
                best, least, most = category, other, same
        return best

    def describe(self) -> bytes:
        """All of it in one line."""
        channels = self.describe_channels()
        parts = [
            self.describe_keys(),
            channels if self.all_channels else b" ".join(filter(None, (b"resetchannels", channels))),
            self.describe_commands(),
        ]
        return b" ".join(filter(None, parts))


def _known(name: bytes) -> bytes:
    if name not in command_rows():
        raise BadRule(UNKNOWN_COMMAND)
    return name


def password_hash(password: bytes) -> bytes:
    """As rules show a password."""
    return hashlib.sha256(password).hexdigest().encode()


@dataclass(eq=False, slots=True)
class User:
    """Who a connection may say it is. A new one may do nothing."""

    name: bytes
    is_on: bool = False
    takes_any_password: bool = False
    payloads: bytes = b""
    """What was said of RESTORE's payloads, as the rule for it."""
    passwords: list[bytes] = field(default_factory=list)
    """SHA-256 of each, in hexadecimal."""
    selectors: list[Selector] = field(default_factory=lambda: [Selector()])

    @property
    def is_unrestricted(self) -> bool:
        """Whether it may do all that there is: nothing needs to be asked."""
        return any(selector.allows_all for selector in self.selectors)

    def copy(self) -> User:
        """Another with the same rules."""
        made = User(self.name)
        made.take(self)
        return made

    def take(self, other: User) -> None:
        """Have the rules of another from now on."""
        self.is_on, self.takes_any_password = other.is_on, other.takes_any_password
        self.payloads = other.payloads
        self.passwords = list(other.passwords)
        self.selectors = [each.copy() for each in other.selectors]

    def apply(self, rule: bytes) -> None:
        """Change by one rule. Raises BadRule."""
        word = rule.lower()
        if word in (b"on", b"off"):
            self.is_on = word == b"on"
        elif word in (b"nopass", b"resetpass"):
            self.takes_any_password, self.passwords = word == b"nopass", []
        elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
            self.payloads = word
        elif rule[:1] in (b">", b"#", b"<", b"!"):
            self._change_password(rule[:1], rule[1:])
        elif rule[:1] == b"(" and rule[-1:] == b")":
            self._add_selector(rule[1:-1])
        elif word == b"clearselectors":
            del self.selectors[1:]
        elif word == b"reset":
            self.take(User(self.name, payloads=b"sanitize-payload"))
        elif rule:
            self.selectors[0].apply(rule)

    def _change_password(self, mark: bytes, text: bytes) -> None:
        if mark in b"#!" and not re.fullmatch(rb"[0-9a-f]{64}", text):
            raise BadRule(_BAD_HASH)
        hashed = text if mark in b"#!" else password_hash(text)
        if mark in b">#":
            if hashed not in self.passwords:
                self.passwords.append(hashed)
            self.takes_any_password = False
        elif hashed in self.passwords:
            self.passwords.remove(hashed)
        else:
            raise BadRule(_NO_PASSWORD)

    def _add_selector(self, rules: bytes) -> None:
        selector = Selector()
        for rule in split_arguments(rules) or ():
            selector.apply(rule)
        self.selectors.append(selector)

    def flags(self) -> list[bytes]:
        """As ACL GETUSER shows them."""
        flags = [b"on" if self.is_on else b"off"]
        flags += [b"nopass"] if self.takes_any_password else []
        return flags + ([self.payloads] if self.payloads else [])

    def describe(self) -> bytes:
        """Its line of ACL LIST."""
        selectors = [each.describe() for each in self.selectors]
        further = [b"(%b)" % each for each in selectors[1:]]
        return b" ".join([
            b"user", self.name, *self.flags(), *[b"#" + each for each in self.passwords], selectors[0], *further,
        ])  # fmt: skip


def default_user(password: bytes) -> User:
    """The one that connections begin as: it may do anything."""
    user = User(b"default")
    for rule in (b"on", b"+@all", b"~*", b"&*", b">" + password if password else b"nopass"):
        user.apply(rule)
    return user


def join_selectors(rules: Sequence[bytes]) -> list[bytes]:
    """Rules with what stands in parentheses, over several arguments, as one. Raises BadRule with the rule that begins
    what has no end."""
    joined: list[bytes] = []
    opened: list[bytes] = []
    for rule in rules:
        if opened:
            opened.append(rule)
        elif rule[:1] == b"(" and rule[-1:] != b")":
            opened = [rule]
            continue
        else:
            joined.append(rule)
        if opened and rule[-1:] == b")":
            joined.append(b" ".join(opened))
            opened = []
    if opened:
        raise BadRule(opened[0])
    return joined
