"""The commonest calls of scripts once more, the short way: words as parameters, not as a list, and only what is usual.

``call.c`` asks here first. A function gives the reply of its command in the words that follow the name, or
NotImplemented before it has done anything: then the command itself is called. None of them looks at errors, options, or
what follows changes beside the keyspace. A key that is not there has no deadline: it is looked for in one dictionary
alone, as each look into a large one waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from orderlab.sim.redis.arguments import SMALL_INTEGERS
from orderlab.sim.redis.commands.sorted_set_ranges import slice_of_ranks
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.replies import OK, scored
from orderlab.sim.redis.values import SortedSet
from orderlab.sim.redis.values.sorted_set import Score

_SHORT: Final = 1000
"""Elements of a sorted set up to which its commands count no work (``work``)."""
_REMEMBERED_MAX: Final = 256
_DIGITS_MAX: Final = 15
_SCORES: dict[bytes, Score] = {b"%d" % value: float(value) for value in range(1000)}
_MILLISECONDS: dict[bytes, int] = {}
"""By texts of seconds."""


def get(node: NodeState, key: bytes) -> Any:
    """GET key."""
    value = node.data.get(key)
    if value is None:
        return None
    if not isinstance(value, bytes) or node.access is not None or node.is_expired(key):
        return NotImplemented
    return value


def set_(node: NodeState, key: bytes, value: bytes) -> Any:
    """SET key value."""
    data = node.data
    if not node.is_bare() or (key in data and key in node.deadlines_ms):
        return NotImplemented
    data[key] = value
    node.modified(key)
    return OK


def set_for_seconds(node: NodeState, key: bytes, value: bytes, word: bytes, seconds: bytes) -> Any:
    """SET key value EX seconds."""
    milliseconds = _MILLISECONDS.get(seconds)
    if milliseconds is None:
        if (
            not seconds.isdigit()
            or seconds[0] == 48
            or len(seconds) > _DIGITS_MAX
            or len(_MILLISECONDS) >= _REMEMBERED_MAX
        ):
            return NotImplemented
        milliseconds = _MILLISECONDS[seconds] = int(seconds) * 1000
    if word != b"EX" or not node.is_bare():
        return NotImplemented
    node.data[key] = value
    node.deadlines_ms[key] = milliseconds + node.now_ms
    node.modified(key)
    return OK


def del_(node: NodeState, key: bytes) -> Any:
    """DEL key."""
    data, deadlines_ms = node.data, node.deadlines_ms
    if not node.is_bare():
        return NotImplemented
    if key not in data:
        return 0
    deadline_ms = deadlines_ms.get(key)
    if deadline_ms is not None:
        if node.now_ms - node.slept_ms > deadline_ms and not node.sees_expired:
            return NotImplemented
        del deadlines_ms[key]
    del data[key]
    node.modified(key)
    return 1


def zadd(node: NodeState, key: bytes, text: bytes, member: bytes) -> Any:
    """ZADD key score member."""
    score = _SCORES.get(text)
    if score is None or not node.is_bare():
        return NotImplemented
    value = node.data.get(key)
    if value is None:
        value = SortedSet()
        node.data[key] = value
    elif not isinstance(value, SortedSet) or key in node.deadlines_ms or len(value) > _SHORT or member in value.scores:
        return NotImplemented
    if not value.skiplist:
        value.make_room(member, node.encoding_limits, None)
    value.insert(member, score, None)
    node.modified(key)
    return 1


def zrem(node: NodeState, key: bytes, member: bytes) -> Any:
    """ZREM key member."""
    if not node.is_bare():
        return NotImplemented
    value = node.data.get(key)
    if value is None:
        return 0
    if not isinstance(value, SortedSet) or key in node.deadlines_ms or len(value) > _SHORT:
        return NotImplemented
    if value.only != member and (value.only is not None or member not in value.scores):
        return 0
    if len(value) == 1:
        del node.data[key]
    else:
        value.discard(member, None)
    node.modified(key)
    return 1


def zcard(node: NodeState, key: bytes) -> Any:
    """ZCARD key."""
    value = node.data.get(key)
    if value is None:
        return 0
    if not isinstance(value, SortedSet) or node.access is not None or key in node.deadlines_ms:
        return NotImplemented
    return len(value)


def zrevrange(node: NodeState, key: bytes, first: bytes, last: bytes, word: bytes) -> Any:
    """ZREVRANGE key start stop WITHSCORES."""
    start, stop = SMALL_INTEGERS.get(first), SMALL_INTEGERS.get(last)
    if start is None or stop is None or word != b"WITHSCORES":
        return NotImplemented
    value = node.data.get(key)
    if value is None:
        return []
    if not isinstance(value, SortedSet) or node.access is not None or key in node.deadlines_ms:
        return NotImplemented
    begin, end = slice_of_ranks(start, stop, len(value.scores), True)
    members, scores = value.order_members[begin:end], value.order_scores[begin:end]
    members.reverse()
    scores.reverse()
    return scored(node.resp, members, scores)


SHORT_WAYS: dict[bytes, dict[int, Callable[..., Any]]] = {
    b"get": {2: get},
    b"set": {3: set_, 5: set_for_seconds},
    b"del": {2: del_},
    b"zadd": {4: zadd},
    b"zrem": {3: zrem},
    b"zcard": {2: zcard},
    b"zrevrange": {5: zrevrange},
}
"""By the name of the command, and how many words a call has, its name among them."""
