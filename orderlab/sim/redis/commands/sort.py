"""SORT: the elements of a list, set or sorted set by themselves or by other keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import strtod
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, WRONG_TYPE, ErrorReply, Reply
from orderlab.sim.redis.values import Hash, List, Set, SortedSet

_SPACES = b" \t\n\v\f\r"


@dataclass(slots=True)
class _Options:
    descending: bool = False
    alpha: bool = False
    start: int = 0
    count: int = -1
    by: bytes | None = None
    get: list[bytes] = field(default_factory=list)
    store: bytes | None = None


def _parse(node: NodeState, argv: Sequence[bytes], read_only: bool) -> _Options:
    options = _Options()
    at = 2
    while at < len(argv):
        word, left = option(argv[at]), len(argv) - 1 - at
        if word in (b"ASC", b"DESC"):
            options.descending = word == b"DESC"
        elif word == b"ALPHA":
            options.alpha = True
        elif word == b"LIMIT" and left >= 2:
            options.start, options.count = integer(argv[at + 1]), integer(argv[at + 2])
            at += 2
        elif word == b"STORE" and left >= 1 and not read_only:
            at += 1
            options.store = argv[at]
        elif word == b"BY" and left >= 1:
            at += 1
            options.by = argv[at]
            if node.slots is not None and not _is_constant(options.by):
                raise ErrorReply(b"ERR BY option of SORT denied in cluster mode.")
            if not _is_constant(options.by):
                _insist_on_all_keys(node, argv, b"BY")
        elif word == b"GET" and left >= 1:
            at += 1
            options.get.append(argv[at])
            if node.slots is not None:
                raise ErrorReply(b"ERR GET option of SORT denied in cluster mode.")
            _insist_on_all_keys(node, argv, b"GET")
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    return options


def _insist_on_all_keys(node: NodeState, argv: Sequence[bytes], word: bytes) -> None:
    """What a pattern leads to is known too late for rules about keys."""
    guard = node.caller.guard
    if guard is not None and not guard.may_read_all(node.caller, argv):
        raise ErrorReply(b"ERR %b option of SORT denied due to insufficient ACL permissions." % word)


def _is_constant(pattern: bytes) -> bool:
    return b"*" not in pattern.split(b"\0")[0]


def find_keys(argv: Sequence[bytes]) -> Sequence[bytes]:
    """The key, and the one behind the last STORE. Keys made from patterns are not known beforehand."""
    stored: list[bytes] = []
    at = 2
    while at < len(argv):
        word = option(argv[at])
        if word == b"STORE" and at + 1 < len(argv):
            stored = [argv[at + 1]]
        at += {b"LIMIT": 3, b"GET": 2, b"BY": 2, b"STORE": 2}.get(word, 1)
    return [argv[1], *stored]


def _by_pattern(node: NodeState, pattern: bytes, element: bytes) -> bytes | None:
    """The value that ``pattern`` leads to for ``element``: ``#`` is the element, ``*`` in a key is replaced by it, and
    ``->field`` looks into a hash."""
    if pattern == b"#":
        return element
    if _is_constant(pattern):
        return None
    before, _, after = pattern.partition(b"*")
    after, arrow, hash_field = after.partition(b"->")
    if not hash_field:
        after, hash_field = after + arrow, b""
    value = node.lookup(before + element + after)
    if hash_field:
        return value.fields.get(hash_field) if isinstance(value, Hash) else None
    return value if isinstance(value, bytes) else None


def _number(text: bytes) -> float:
    """A sort weight as C's strtod reads it."""
    digits = text.split(b"\0")[0]
    if not digits:
        return 0.0
    read = strtod(digits.lstrip(_SPACES))
    if read is None or read[1] or math.isnan(read[0]):
        raise ErrorReply(b"ERR One or more scores can't be converted into double")
    return read[0]


def _elements(node: NodeState, key: bytes) -> tuple[list[bytes], bool]:
    """The elements at ``key``, and whether they have an order of their own."""
    value = node.lookup(key)
    if value is None:
        return [], True
    if isinstance(value, List):
        return list(value), True
    if isinstance(value, SortedSet):
        if not value.skiplist:  # the server converts the value itself, and for good
            if node.undo is not None:
                node.undo.append((setattr, value, "skiplist", False))
            value.skiplist = True
        return list(value.order_members), True
    if isinstance(value, Set):
        return list(value.in_order()), False
    raise ErrorReply(WRONG_TYPE)


def _sorted(node: NodeState, elements: list[bytes], options: _Options) -> list[bytes]:
    by = options.by
    if options.alpha:
        if by is None:
            shown = {element: element for element in elements}
            keyed = [((True, _collated(shown[element], options)), element) for element in elements]
        else:
            keyed = []
            for element in elements:
                weight = _by_pattern(node, by, element)
                keyed.append(((weight is not None, _collated(weight or b"", options)), element))
        keyed.sort(key=lambda pair: pair[0], reverse=options.descending)
        return [element for _, element in keyed]
    scores = []
    for element in elements:
        weight = element if by is None else _by_pattern(node, by, element)
        scores.append((0.0 if weight is None else _number(weight), element))
    scores.sort(reverse=options.descending)
    return [element for _, element in scores]


def _collated(text: bytes, options: _Options) -> bytes:
    """What ALPHA compares: C strings under the C locale, unless the result is stored."""
    return text if options.store is not None else text.split(b"\0")[0]


def _page(elements: list[bytes], options: _Options) -> list[bytes]:
    start = max(options.start, 0)
    return elements[start:] if options.count < 0 else elements[start : start + options.count]


def _sort(node: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    options = _parse(node, argv, read_only)
    elements, is_ordered = _elements(node, argv[1])
    if options.by is not None and _is_constant(options.by):
        if is_ordered:
            elements = elements[::-1] if options.descending else elements
        else:
            # The order of a set is nobody's promise: sorted, as the server does it in scripts and for STORE.
            options.alpha, options.by = True, None
            elements = _sorted(node, elements, options)
    else:
        elements = _sorted(node, elements, options)
    page = _page(elements, options)
    replies: list[bytes | None] = list(page)
    if options.get:
        replies = [_by_pattern(node, pattern, element) for element in page for pattern in options.get]
    return replies if options.store is None else _store(node, options.store, replies)


def _store(node: NodeState, key: bytes, replies: list[bytes | None]) -> int:
    if replies:
        node.install(key, List(reply or b"" for reply in replies))
        if key in node.deadlines_ms:
            node.set_deadline(key, None)
        node.modified(key, len(replies))
    elif node.lookup(key) is not None:
        node.remove(key)
        node.modified(key)
    return len(replies)


@command("sort", -2, "write denyoom movablekeys", find_keys, positions=(1, 1, 1))
def sort(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SORT key [BY pattern] [LIMIT start count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]."""
    return _sort(node, argv, read_only=False)


@command("sort_ro", -2, "readonly movablekeys", (1, 1, 1))
def sort_ro(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SORT_RO: SORT without STORE."""
    return _sort(node, argv, read_only=True)
