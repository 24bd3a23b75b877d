"""Sorted sets: members and scores, ranks, and taking from either end."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import double as parse_score
from orderlab.sim.redis.arguments import integer, integer_between, natural, option, timeout_ms_of
from orderlab.sim.redis.commands.lists import multiple_pop_arguments
from orderlab.sim.redis.commands.sorted_set_ranges import remove_slice
from orderlab.sim.redis.node_state import NEW_VALUE_BYTES, NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, parse_double
from orderlab.sim.redis.random_draws import draw, draw_positions
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, double, scored
from orderlab.sim.redis.scanning import page_of, parse_cursor, parse_options
from orderlab.sim.redis.values import SortedSet
from orderlab.sim.redis.values.sorted_set import Score

_ZADD_OPTIONS = frozenset((b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"))
_NO_OPTIONS: frozenset[bytes] = frozenset()


def _insert(node: NodeState, value: SortedSet, member: bytes, score: Score) -> None:
    """Add a new member, after the change of encoding that it asks for."""
    if not value.skiplist:
        value.make_room(member, node.encoding_limits, node.undo)
    value.insert(member, score, node.undo)


def _install_new(node: NodeState, key: bytes, member: bytes) -> SortedSet:
    """A new sorted set at ``key``, in the encoding that the server chooses by its first member."""
    node.grow(NEW_VALUE_BYTES)
    value = SortedSet()
    value.make_room(member, node.encoding_limits, None)
    node.install(key, value)
    return value


@command("zadd", -4, "write denyoom fast", (1, 1, 1))
def zadd(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]."""
    if len(argv) != 4:
        return _zadd_with_options(node, argv, _NO_OPTIONS)
    key, text, member = argv[1], argv[2], argv[3]
    score: Score = parse_double(text)
    if score is None:
        return _zadd_with_options(node, argv, _NO_OPTIONS)
    value = node.lookup_as(key, SortedSet)
    if value is None:
        value = _install_new(node, key, member)
    old = value.scores.get(member)
    if old is None:
        _insert(node, value, member, score)
        node.modified(key)
        return 1
    if old != score:
        value.move(member, old, score, node.undo)
        node.modified(key)
    return 0


@command("zincrby", 4, "write denyoom fast", (1, 1, 1))
def zincrby(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZINCRBY key increment member."""
    return _zadd_with_options(node, argv, frozenset((b"INCR",)))


def _zadd_with_options(node: NodeState, argv: Sequence[bytes], implied: frozenset[bytes]) -> Reply:
    key = argv[1]
    options = set(implied)
    at = 2
    while at < len(argv) and (word := option(argv[at])) in _ZADD_OPTIONS:
        options.add(word)
        at += 1
    members_count, odd = divmod(len(argv) - at, 2)
    if odd or not members_count:
        raise ErrorReply(SYNTAX_ERROR)
    _check_options(options, members_count)
    scores = [parse_score(text) for text in argv[at::2]]
    value = node.lookup_as(key, SortedSet)
    if value is None:
        if b"XX" in options:
            return None if b"INCR" in options else 0
        value = _install_new(node, key, argv[at + 1])
    if b"INCR" in options:
        score = _increment(node, key, value, argv[at + 1], scores[0], options)
        return None if score is None else double(node.resp, score, node.double_text)
    added, updated = _put_all(node, value, scores, argv[at + 1 :: 2], options)
    if added or updated:
        node.modified(key, added + updated)
    return added + updated if b"CH" in options else added


def _check_options(options: set[bytes], members_count: int) -> None:
    if b"NX" in options and b"XX" in options:
        raise ErrorReply(b"ERR XX and NX options at the same time are not compatible")
    if len(options & {b"GT", b"LT", b"NX"}) > 1:
        raise ErrorReply(b"ERR GT, LT, and/or NX options at the same time are not compatible")
    if b"INCR" in options and members_count > 1:
        raise ErrorReply(b"ERR INCR option supports a single increment-element pair")


def _put_all(
    node: NodeState, value: SortedSet, scores: list[float], members: Sequence[bytes], options: set[bytes]
) -> tuple[int, int]:
    """Put members and scores; how many members were added, and how many got another score."""
    no_new, no_old = b"XX" in options, b"NX" in options
    only_greater, only_less = b"GT" in options, b"LT" in options
    current = value.scores
    added = updated = 0
    for score, member in zip(scores, members, strict=True):
        old = current.get(member)
        if old is None:
            if not no_new:
                _insert(node, value, member, score)
                added += 1
        elif old != score and not (no_old or (only_less and score > old) or (only_greater and score < old)):
            value.move(member, old, score, node.undo)
            updated += 1
    return added, updated


def _increment(
    node: NodeState, key: bytes, value: SortedSet, member: bytes, increment: float, options: set[bytes]
) -> float | None:
    """Add to a member's score; the new one, or None if an option forbids it."""
    old = value.scores.get(member)
    if old is None:
        if b"XX" in options:
            return None
        _insert(node, value, member, increment)
        node.modified(key)
        return increment
    if b"NX" in options:
        return None
    score: float = old + increment
    if score != score:
        raise ErrorReply(b"ERR resulting score is not a number (NaN)")
    if (b"LT" in options and score >= old) or (b"GT" in options and score <= old):
        return None
    if score != old:
        value.move(member, old, score, node.undo)
        node.modified(key)
    return score


@command("zrem", -3, "write fast", (1, 1, 1))
def zrem(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREM key member [member ...]."""
    key = argv[1]
    value = node.lookup_as(key, SortedSet)
    if value is None:
        return 0
    removed = 0
    for member in argv[2:]:
        if value.discard(member, node.undo):
            removed += 1
    if removed:
        if not value.scores:
            node.remove(key)
        node.modified(key, removed)
    return removed


@command("zcard", 2, "readonly fast", (1, 1, 1))
def zcard(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZCARD key."""
    value = node.lookup_as(argv[1], SortedSet)
    return 0 if value is None else len(value.scores)


@command("zscore", 3, "readonly fast", (1, 1, 1))
def zscore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZSCORE key member."""
    value = node.lookup_as(argv[1], SortedSet)
    score = None if value is None else value.scores.get(argv[2])
    return None if score is None else double(node.resp, score, node.double_text)


@command("zmscore", -3, "readonly fast", (1, 1, 1))
def zmscore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZMSCORE key member [member ...]."""
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return [None] * (len(argv) - 2)
    scores = map(value.scores.get, argv[2:])
    return [None if score is None else double(node.resp, score, node.double_text) for score in scores]


@command("zrank", 3, "readonly fast", (1, 1, 1))
def zrank(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANK key member [WITHSCORE]."""
    value = node.lookup_as(argv[1], SortedSet)
    rank = None if value is None else value.rank(argv[2])
    return rank if len(argv) == 3 else _with_score(node, argv, value, rank)


@command("zrevrank", 3, "readonly fast", (1, 1, 1))
def zrevrank(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANK key member [WITHSCORE]."""
    value = node.lookup_as(argv[1], SortedSet)
    rank = None if value is None else value.rank(argv[2])
    reverse = None if rank is None else len(value) - 1 - rank
    return reverse if len(argv) == 3 else _with_score(node, argv, value, reverse)


def _with_score(node: NodeState, argv: Sequence[bytes], value: SortedSet | None, rank: int | None) -> Reply:
    """A rank, with its score where that is asked for (Redis 7.2)."""
    if len(argv) > 4:
        raise ErrorReply(b"ERR wrong number of arguments for '%b' command" % argv[0].lower())
    if option(argv[3]) != b"WITHSCORE":
        raise ErrorReply(SYNTAX_ERROR)
    if rank is None or value is None:
        return None
    return [rank, double(node.resp, value.scores[argv[2]], node.double_text)]


@command("zrandmember", -2, "readonly", (1, 1, 1))
def zrandmember(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANDMEMBER key [count [WITHSCORES]]."""
    if len(argv) == 2:
        value = node.lookup_as(argv[1], SortedSet)
        return None if value is None else value.order_members[draw(node, len(value))]
    count = integer_between(argv[2], -INTEGER_MAX, INTEGER_MAX)
    with_scores = len(argv) == 4 and option(argv[3]) == b"WITHSCORES"
    if len(argv) > 3 and not with_scores:
        raise ErrorReply(SYNTAX_ERROR)
    if with_scores and not -INTEGER_MAX // 2 < count <= INTEGER_MAX // 2:
        raise ErrorReply(b"ERR value is out of range")
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return []
    positions = draw_positions(node, len(value), count)
    members = [value.order_members[at] for at in positions]
    return (
        scored(node.resp, members, [value.order_scores[at] for at in positions], node.double_text)
        if with_scores
        else members
    )


@command("zscan", -3, "readonly", (1, 1, 1))
def zscan(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZSCAN key cursor [MATCH pattern] [COUNT count]."""
    cursor = parse_cursor(argv[2], node.version.has((7, 2)))
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return [b"0", []]
    options = parse_options(argv, 3)
    order = value.scan_order() if value.skiplist else value.order_members
    following, members = page_of(order, not value.skiplist, cursor, options)
    flat: list[Reply] = []
    for member in members:
        score = value.scores[member]
        flat += (member, node.double_text(score) if value.skiplist else _listpack_text(node, score))
    return [following, flat]


_LISTPACK_INTEGER_MAX = float(1 << 62)


def _listpack_text(node: NodeState, score: float) -> bytes:
    """A score as a listpack holds it, and ZSCAN shows it: whole numbers up to 2**62 as integers."""
    if abs(score) <= _LISTPACK_INTEGER_MAX and score == int(score):
        return b"%d" % int(score)
    return node.double_text(score)


def _take(node: NodeState, key: bytes, value: SortedSet, least: bool, count: int) -> tuple[list[bytes], list[float]]:
    """Remove up to ``count`` members from the end of the least or the greatest score."""
    size = len(value)
    start, stop = (0, min(count, size)) if least else (max(size - count, 0), size)
    members, scores = value.order_members[start:stop], value.order_scores[start:stop]
    if not least:
        members.reverse()
        scores.reverse()
    remove_slice(node, key, value, start, stop)
    return members, scores


def _pop(node: NodeState, argv: Sequence[bytes], least: bool) -> Reply:
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    count = 1
    if len(argv) == 3:
        count = natural(argv[2]) if node.version.has((7, 0)) else max(integer(argv[2]), 0)
    key = argv[1]
    if not count and not node.version.has((7, 0)):
        return []
    value = node.lookup_as(key, SortedSet)
    if value is None or count == 0:
        return []
    members, scores = _take(node, key, value, least, count)
    if len(argv) == 2:
        return [members[0], double(node.resp, scores[0], node.double_text)]
    return scored(node.resp, members, scores, node.double_text)


@command("zpopmin", -2, "write fast", (1, 1, 1))
def zpopmin(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZPOPMIN key [count]."""
    return _pop(node, argv, True)


@command("zpopmax", -2, "write fast", (1, 1, 1))
def zpopmax(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZPOPMAX key [count]."""
    return _pop(node, argv, False)


def _first_present(node: NodeState, keys: Sequence[bytes]) -> tuple[bytes, SortedSet] | None:
    """The first of ``keys`` that holds a sorted set; WRONGTYPE if another type comes first."""
    for key in keys:
        value = node.lookup_as(key, SortedSet)
        if value is not None:
            return key, value
    return None


def _blocking_pop(node: NodeState, argv: Sequence[bytes], least: bool) -> Reply:
    deadline_ms = timeout_ms_of(argv[-1], node.now_ms)

    def serve(key: bytes) -> Reply:
        if node.effects is not None:
            node.rewritten = (b"ZPOPMIN" if least else b"ZPOPMAX", key)
        [member], [score] = _take(node, key, node.lookup_as(key, SortedSet), least, 1)
        return [key, member, double(node.resp, score, node.double_text)]

    found = _first_present(node, argv[1:-1])
    if found is None:
        return node.wait_for(SortedSet, argv[1:-1], deadline_ms, serve, argv)
    return serve(found[0])


@command("bzpopmin", -3, "write noscript blocking fast", (1, -2, 1))
def bzpopmin(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZPOPMIN key [key ...] timeout."""
    return _blocking_pop(node, argv, True)


@command("bzpopmax", -3, "write noscript blocking fast", (1, -2, 1))
def bzpopmax(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZPOPMAX key [key ...] timeout."""
    return _blocking_pop(node, argv, False)


def _multiple_pop(node: NodeState, argv: Sequence[bytes], count_at: int) -> Reply:
    keys, least, count = multiple_pop_arguments(argv, count_at, (b"MIN", b"MAX"))
    deadline_ms = timeout_ms_of(argv[1], node.now_ms) if count_at == 2 else 0

    def serve(key: bytes) -> Reply:
        if node.effects is not None:
            node.rewritten = (b"ZPOPMIN" if least else b"ZPOPMAX", key, b"%d" % count)
        members, scores = _take(node, key, node.lookup_as(key, SortedSet), least, count)
        return [
            key,
            [
                [member, double(node.resp, score, node.double_text)]
                for member, score in zip(members, scores, strict=True)
            ],
        ]

    found = _first_present(node, keys)
    if found is not None:
        return serve(found[0])
    return node.wait_for(SortedSet, keys, deadline_ms, serve, argv) if count_at == 2 else None


@command("zmpop", -4, "write movablekeys", numbered_keys(1))
def zmpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZMPOP numkeys key [key ...] MIN|MAX [COUNT count]."""
    return _multiple_pop(node, argv, 1)


@command("bzmpop", -5, "write blocking movablekeys", numbered_keys(2))
def bzmpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZMPOP timeout numkeys key [key ...] MIN|MAX [COUNT count]."""
    return _multiple_pop(node, argv, 2)
