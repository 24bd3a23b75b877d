"""A file of users, as ``aclfile`` names it to a server: a line for each, ``user NAME RULE ...``.

It is taken whole or not at all, and what is wrong is said in the words of Redis 7.0.15 (``ACLLoadFromFile``). A
selector without an end, of which that server dies, is said to be unmatched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.sim.redis.permissions import Permissions
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.users import UNKNOWN_COMMAND, BadRule, User, default_user, join_selectors

_UNCHANGED: Final = b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
_NOT_SAVED: Final = b"ERR There was an error trying to save the ACLs. Please check the server logs for more information"


def read_users(file: bytes) -> dict[bytes, User]:
    """The users that a file names, by name; the default user as well, which may do everything if it is not named.
    Raises ErrorReply, with all that is wrong."""
    try:
        text = Path(os.fsdecode(file)).read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).encode()
        raise ErrorReply(b"ERR Error loading ACLs, opening file '%b': %b" % (file, why)) from None
    users: dict[bytes, User] = {}
    wrong: list[bytes] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.strip(b" \t\r\n").split(b" ")
        place = b"%b:%d" % (file, number)
        if words == [b""]:
            continue
        if words[0] != b"user" or len(words) < 2:
            wrong.append(b"%b should start with user keyword followed by the username. " % place)
        elif words[1] in users:
            wrong.append(b"WARNING: Duplicate user '%b' found on line %d. " % (words[1], number))
        else:
            users[words[1]] = user = User(words[1])
            wrong += _applied(user, words[2:], place)
    if wrong:
        raise ErrorReply(b"ERR " + b"".join(wrong) + _UNCHANGED)
    users.setdefault(b"default", default_user(b""))
    return users


def _applied(user: User, words: list[bytes], place: bytes) -> Iterable[bytes]:
    """Give a user its rules; what is wrong with them: each unknown command, and the first other mistake."""
    try:
        rules = join_selectors(words)
    except BadRule as error:
        yield b"%b: Unmatched parenthesis in selector definition starting at '%b'. " % (place, error.why)
        return
    is_told = False
    for rule in rules:
        try:
            user.apply(rule.strip(b"\t\r\n"))
        except BadRule as error:
            if error.why == UNKNOWN_COMMAND:
                yield b"%b: Error in applying operation '%b': %b. " % (place, rule, error.why)
            elif not is_told:
                is_told = True
                yield b"%b: %b. " % (place, error.why)


def save_users(permissions: Permissions, file: bytes) -> None:
    """Write the users, sorted. Raises ErrorReply."""
    lines = [user.describe() + b"\n" for user in permissions.by_name()]
    try:
        write_whole(Path(os.fsdecode(file)), b"".join(lines))
    except InputError:
        raise ErrorReply(_NOT_SAVED) from None
