"""Sorted-set commands over several keys: union, intersection, difference. Plain sets count as scores of 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import double, integer, natural, option
from orderlab.sim.redis.commands.sets import store_result
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, WRONG_TYPE, ErrorReply, Reply, scored
from orderlab.sim.redis.values import Set, SortedSet
from orderlab.sim.redis.values.sorted_set import by_score

Scores = Mapping[bytes, float]
Aggregate = Callable[[float, float], float]
Combine = Callable[["AlgebraRequest"], dict[bytes, float]]


def _sum(total: float, score: float) -> float:
    total += score
    return total if total == total else 0.0  # inf + -inf


def _least(total: float, score: float) -> float:
    return score if score < total else total


def _greatest(total: float, score: float) -> float:
    return score if score > total else total


_AGGREGATES: dict[bytes, Aggregate] = {b"SUM": _sum, b"MIN": _least, b"MAX": _greatest}


@dataclass(slots=True)
class AlgebraRequest:
    """The inputs as member -> score, with their weights, and the options that follow the keys."""

    inputs: list[Scores]
    weights: list[float]
    aggregate: Aggregate = _sum
    with_scores: bool = False
    limit: int = 0

    def smallest_first(self) -> list[tuple[Scores, float]]:
        """Inputs and weights in the order in which the server combines them: it shows in sums of floats."""
        return sorted(zip(self.inputs, self.weights, strict=True), key=lambda pair: len(pair[0]))


def _read_inputs(node: NodeState, keys: Sequence[bytes]) -> list[Scores]:
    inputs: list[Scores] = []
    for key in keys:
        value = node.lookup(key)
        if value is None:
            inputs.append({})
        elif isinstance(value, SortedSet):
            inputs.append(value.scores)
        elif isinstance(value, Set):
            inputs.append(dict.fromkeys(value.in_order(), 1.0))
        else:
            raise ErrorReply(WRONG_TYPE)
    return inputs


def _parse(node: NodeState, argv: Sequence[bytes], count_at: int, allowed: frozenset[bytes]) -> AlgebraRequest:
    """Read ``numkeys key [key ...]`` at ``count_at`` and those options that are ``allowed``."""
    count = integer(argv[count_at])
    if count < 1:
        raise ErrorReply(b"ERR at least 1 input key is needed for '%s' command" % argv[0].lower())
    at = count_at + 1 + count
    if at > len(argv):
        raise ErrorReply(SYNTAX_ERROR)
    request = AlgebraRequest(_read_inputs(node, argv[count_at + 1 : at]), [1.0] * count)
    while at < len(argv):
        word = option(argv[at])
        following = len(argv) - at - 1
        if word not in allowed:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
        if word == b"WITHSCORES":
            request.with_scores = True
        elif word == b"WEIGHTS" and following >= count:
            request.weights = [double(text, b"ERR weight value is not a float") for text in argv[at : at + count]]
            at += count
        elif word == b"AGGREGATE" and following >= 1 and option(argv[at]) in _AGGREGATES:
            request.aggregate = _AGGREGATES[option(argv[at])]
            at += 1
        elif word == b"LIMIT" and following >= 1:
            request.limit = natural(argv[at], b"ERR LIMIT can't be negative")
            at += 1
        else:
            raise ErrorReply(SYNTAX_ERROR)
    return request


def _union(request: AlgebraRequest) -> dict[bytes, float]:
    result: dict[bytes, float] = {}
    aggregate = request.aggregate
    for scores, weight in request.smallest_first():
        for member, score in scores.items():
            score *= weight
            if score != score:
                score = 0.0  # inf * 0
            result[member] = aggregate(result[member], score) if member in result else score
    return result


def _intersection(request: AlgebraRequest) -> dict[bytes, float]:
    (first, first_weight), *others = request.smallest_first()
    result = {}
    for member, score in first.items():
        total = score * first_weight
        if total != total:
            total = 0.0
        for scores, weight in others:
            other = scores.get(member)
            if other is None:
                break
            total = request.aggregate(total, other * weight)
        else:
            result[member] = total
    return result


def _difference(request: AlgebraRequest) -> dict[bytes, float]:
    first, *others = request.inputs
    return {member: score for member, score in first.items() if not any(member in other for other in others)}


def _answer(node: NodeState, argv: Sequence[bytes], combine: Combine, allowed: frozenset[bytes]) -> Reply:
    request = _parse(node, argv, 1, allowed)
    scores = combine(request)
    members = by_score(scores)
    return (
        scored(node.resp, members, [scores[member] for member in members], node.double_text)
        if request.with_scores
        else members
    )


def _store(node: NodeState, argv: Sequence[bytes], combine: Combine, allowed: frozenset[bytes]) -> Reply:
    return store_result(node, argv[1], SortedSet.of(combine(_parse(node, argv, 2, allowed)), node.encoding_limits))


_STORE_OPTIONS = frozenset((b"WEIGHTS", b"AGGREGATE"))
_READ_OPTIONS = _STORE_OPTIONS | {b"WITHSCORES"}
_DIFF_OPTIONS = frozenset((b"WITHSCORES",))
_CARD_OPTIONS = frozenset((b"LIMIT",))


@command("zunion", -3, "readonly movablekeys", numbered_keys(1))
def zunion(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZUNION numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]."""
    return _answer(node, argv, _union, _READ_OPTIONS)


@command("zinter", -3, "readonly movablekeys", numbered_keys(1))
def zinter(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZINTER numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]."""
    return _answer(node, argv, _intersection, _READ_OPTIONS)


@command("zdiff", -3, "readonly movablekeys", numbered_keys(1))
def zdiff(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZDIFF numkeys key [key ...] [WITHSCORES]."""
    return _answer(node, argv, _difference, _DIFF_OPTIONS)


@command("zunionstore", -4, "write denyoom movablekeys", numbered_keys(2, 1), positions=(1, 1, 1))
def zunionstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZUNIONSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM|MIN|MAX]."""
    return _store(node, argv, _union, _STORE_OPTIONS)


@command("zinterstore", -4, "write denyoom movablekeys", numbered_keys(2, 1), positions=(1, 1, 1))
def zinterstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZINTERSTORE destination numkeys key [key ...] [WEIGHTS weight ...] [AGGREGATE SUM|MIN|MAX]."""
    return _store(node, argv, _intersection, _STORE_OPTIONS)


@command("zdiffstore", -4, "write denyoom movablekeys", numbered_keys(2, 1), positions=(1, 1, 1))
def zdiffstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZDIFFSTORE destination numkeys key [key ...]."""
    return _store(node, argv, _difference, frozenset())


@command("zintercard", -3, "readonly movablekeys", numbered_keys(1))
def zintercard(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZINTERCARD numkeys key [key ...] [LIMIT limit]."""
    request = _parse(node, argv, 1, _CARD_OPTIONS)
    size = len(_intersection(request))
    return min(size, request.limit) if request.limit else size
