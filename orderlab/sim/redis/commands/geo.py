"""Places on the Earth: sorted sets whose scores are geohashes of 52 bits (``geo.c``, ``geohash_helper.c``).

A search reads the nine squares around its centre, in the server's order, so that replies without ASC or DESC come in
that order too. Doubles are those of C; where C gives NaN, Python would raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orderlab.sim.redis.arguments import double, integer, option
from orderlab.sim.redis.commands.sets import store_result
from orderlab.sim.redis.commands.sorted_sets import zadd
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import shortest_text
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, decimals
from orderlab.sim.redis.values import SortedSet

_STEPS: Final = 26
_LONGITUDE: Final = (-180.0, 180.0)
_LATITUDE: Final = (-85.05112878, 85.05112878)
_EARTH_RADIUS_M: Final = 6372797.560856
_MERCATOR_MAX: Final = 20037726.37
_METRES: Final = {b"M": 1.0, b"KM": 1000.0, b"FT": 0.3048, b"MI": 1609.34}
_ALPHABET: Final = b"0123456789bcdefghjkmnpqrstuvwxyz"
_NO_MEMBER: Final = ErrorReply(b"ERR could not decode requested zset member")
_FOUND_WORK: Final = 60
"""Units of looking at one member."""
Place = tuple[float, float]
"""Longitude and latitude, in degrees."""


def _radians(degrees: float) -> float:
    return degrees * (math.pi / 180.0)


def _degrees(radians: float) -> float:
    return radians / (math.pi / 180.0)


def _cos(angle: float) -> float:
    return math.cos(angle) if math.isfinite(angle) else math.nan


def _over(value: float, divisor: float) -> float:
    return value / divisor if divisor else math.nan if not value else math.copysign(math.inf, value)


def distance_m(start: Place, other: Place) -> float:
    """Metres along a great circle (haversine)."""
    v = math.sin((_radians(other[0]) - _radians(start[0])) / 2)
    if v == 0.0:
        return _latitude_distance_m(start[1], other[1])
    first, second = _radians(start[1]), _radians(other[1])
    u = math.sin((second - first) / 2)
    a = u * u + math.cos(first) * math.cos(second) * v * v
    return 2.0 * _EARTH_RADIUS_M * math.asin(math.sqrt(a)) if a <= 1 else math.nan


def _latitude_distance_m(start: float, other: float) -> float:
    return _EARTH_RADIUS_M * abs(_radians(other) - _radians(start))


# -- geohashes -----------------------------------------------------------------------------------------------


def _spread(value: int) -> int:
    """The bits of a number at the even places of one that is twice as long."""
    value &= 0xFFFFFFFF
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):  # fmt: skip
        value = (value | value << shift) & mask
    return value


def _gather(value: int) -> int:
    value &= 0x5555555555555555
    for shift, mask in (
        (1, 0x3333333333333333), (2, 0x0F0F0F0F0F0F0F0F), (4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF),
        (16, 0x00000000FFFFFFFF),
    ):  # fmt: skip
        value = (value | value >> shift) & mask
    return value


def _encode(place: Place, steps: int, latitudes: tuple[float, float] = _LATITUDE) -> int:
    """The square that a place lies in, of 4 to the power of ``steps`` squares."""
    longitude = (place[0] - _LONGITUDE[0]) / (_LONGITUDE[1] - _LONGITUDE[0])
    latitude = (place[1] - latitudes[0]) / (latitudes[1] - latitudes[0])
    return _spread(int(latitude * (1 << steps))) | _spread(int(longitude * (1 << steps))) << 1


def _square(bits: int, steps: int) -> tuple[float, float, float, float]:
    """Least and greatest longitude, and latitude, of a square."""
    across, up, scale = _gather(bits >> 1), _gather(bits), float(1 << steps)
    width, height = _LONGITUDE[1] - _LONGITUDE[0], _LATITUDE[1] - _LATITUDE[0]
    return (
        _LONGITUDE[0] + (across * 1.0 / scale) * width,
        _LONGITUDE[0] + ((across + 1) * 1.0 / scale) * width,
        _LATITUDE[0] + (up * 1.0 / scale) * height,
        _LATITUDE[0] + ((up + 1) * 1.0 / scale) * height,
    )


def _unsigned(score: float) -> int:
    """What a C cast to ``uint64_t`` makes of a double on a 64-bit machine."""
    if math.isnan(score) or score < -(2.0**63):
        return 1 << 63
    if score >= 2.0**64:
        return 0
    return int(score) & (1 << 64) - 1


def _signed(score: float) -> int:
    return int(score) if -(2.0**63) <= score < 2.0**63 else -(1 << 63)


def place_of(score: float) -> Place:
    """The middle of the square that a score stands for."""
    west, east, south, north = _square(_unsigned(score), _STEPS)
    longitude, latitude = (west + east) / 2, (south + north) / 2
    return (
        min(max(longitude, _LONGITUDE[0]), _LONGITUDE[1]),
        min(max(latitude, _LATITUDE[0]), _LATITUDE[1]),
    )


def _moved(bits: int, steps: int, east: int, north: int) -> int:
    """The square beside another one."""
    odd, even = 0xAAAAAAAAAAAAAAAA >> 64 - 2 * steps, 0x5555555555555555 >> 64 - 2 * steps
    x, y = bits & 0xAAAAAAAAAAAAAAAA, bits & 0x5555555555555555
    if east:
        x = (x + even + 1 if east > 0 else (x | even) - even - 1) & odd
    if north:
        y = (y + odd + 1 if north > 0 else (y | odd) - odd - 1) & even
    return x | y


# -- searches ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _SearchArea:
    """What is searched: a circle, or a box whose sides run north and east."""

    centre: Place = (0.0, 0.0)
    unit_m: float = 1.0
    radius: float = 0.0
    width: float = 0.0
    height: float = 0.0
    is_box: bool = False

    def distance_within(self, place: Place) -> float | None:
        """Metres from the centre; None outside."""
        if not self.is_box:
            distance = distance_m(self.centre, place)
            return None if distance > self.radius * self.unit_m else distance
        if _latitude_distance_m(place[1], self.centre[1]) > self.height * self.unit_m / 2:
            return None
        if distance_m(place, (self.centre[0], place[1])) > self.width * self.unit_m / 2:
            return None
        return distance_m(self.centre, place)

    def bounds(self) -> tuple[float, float, float, float]:
        """Least and greatest longitude and latitude of the box around it (``geohashBoundingBox``)."""
        longitude, latitude = self.centre
        height = self.unit_m * (self.height / 2 if self.is_box else self.radius)
        width = self.unit_m * (self.width / 2 if self.is_box else self.radius)
        up = _degrees(height / _EARTH_RADIUS_M)
        nearer_pole = latitude - up if latitude < 0 else latitude + up
        across = _degrees(_over(width / _EARTH_RADIUS_M, _cos(_radians(nearer_pole))))
        return longitude - across, longitude + across, latitude - up, latitude + up

    def reach_m(self) -> float:
        """Metres from the centre to what is farthest."""
        if not self.is_box:
            return self.radius * self.unit_m
        return math.sqrt((self.width / 2) * (self.width / 2) + (self.height / 2) * (self.height / 2)) * self.unit_m


def _steps_for(reach_m: float, latitude: float) -> int:
    if reach_m == 0:
        return _STEPS
    steps = 1
    while reach_m < _MERCATOR_MAX:
        reach_m *= 2
        steps += 1
    steps -= 2
    if abs(latitude) > 66:
        steps -= 1 + (abs(latitude) > 80)
    return min(max(steps, 1), _STEPS)


_AROUND: Final = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
"""East and north, in the order in which a server looks."""


def _squares(shape: _SearchArea) -> Iterator[tuple[int, int]]:
    """The squares that may hold what is searched, with their steps (``geohashCalculateAreasByShapeWGS84``)."""
    min_longitude, max_longitude, min_latitude, max_latitude = shape.bounds()
    steps = _steps_for(shape.reach_m(), shape.centre[1])
    centre = _encode(shape.centre, steps)
    around = [_square(_moved(centre, steps, east, north), steps) for east, north in _AROUND[1:5]]
    too_small = (
        around[0][3] < max_latitude
        or around[1][2] > min_latitude
        or around[2][1] < max_longitude
        or around[3][0] > min_longitude
    )
    if steps > 1 and too_small:
        steps -= 1
        centre = _encode(shape.centre, steps)
    west, east, south, north = _square(centre, steps)
    last: int | None = None
    for across, up in _AROUND:
        if steps >= 2 and (
            (up < 0 and south < min_latitude)
            or (up > 0 and north > max_latitude)
            or (across < 0 and west < min_longitude)
            or (across > 0 and east > max_longitude)
        ):
            continue
        square = _moved(centre, steps, across, up)
        if square != last:
            yield square, steps
        last = square


@dataclass(frozen=True, slots=True)
class _PlaceFound:
    member: bytes
    score: float
    place: Place
    distance_m: float


def _search(node: NodeState, value: SortedSet, shape: _SearchArea, limit: int) -> list[_PlaceFound]:
    """What lies within, in the order of squares; no more than ``limit``, unless that is 0."""
    places: list[_PlaceFound] = []
    for square, steps in _squares(shape):
        if limit and len(places) >= limit:
            break
        shift = 52 - 2 * steps
        first = value.position(float(square << shift), b"")
        last = value.position(float(square + 1 << shift), b"")
        node.spend(_FOUND_WORK * max(0, last - first))
        for at in range(first, last):
            score = value.order_scores[at]
            place = place_of(score)
            distance = shape.distance_within(place)
            if distance is not None:
                places.append(_PlaceFound(value.order_members[at], score, place, distance))
                if limit and len(places) >= limit:
                    break
    return places


# -- arguments -----------------------------------------------------------------------------------------------


def _unit(word: bytes) -> float:
    unit = _METRES.get(option(word))
    if unit is None:
        raise ErrorReply(b"ERR unsupported unit provided. please use M, KM, FT, MI")
    return unit


def _place(longitude: bytes, latitude: bytes) -> Place:
    place = double(longitude), double(latitude)
    if not (_LONGITUDE[0] <= place[0] <= _LONGITUDE[1] and _LATITUDE[0] <= place[1] <= _LATITUDE[1]):
        raise ErrorReply(b"ERR invalid longitude,latitude pair %f,%f" % place)
    return place


def _member_place(value: SortedSet, member: bytes) -> Place:
    score = value.scores.get(member)
    if score is None:
        raise _NO_MEMBER
    return place_of(score)


@dataclass(slots=True)
class _PlaceSearch:
    """A search as it was asked for."""

    shape: _SearchArea
    name: bytes
    is_search: bool
    may_store: bool
    store: bytes | None = None
    stores_distance: bool = False
    with_distance: bool = False
    with_hash: bool = False
    with_place: bool = False
    any: bool = False
    order: int = 0
    count: int = 0
    from_what: bytes = b""
    by_what: bytes = b""

    def read_options(self, words: Sequence[bytes], value: SortedSet | None) -> None:
        """Take in the options of a call. Raises ErrorReply."""
        at = 0
        while at < len(words):
            word, left = option(words[at]), len(words) - 1 - at
            if word in (b"WITHDIST", b"WITHHASH", b"WITHCOORD", b"ANY", b"ASC", b"DESC"):
                self._flag(word)
            elif word == b"COUNT" and left >= 1:
                at += 1
                self.count = integer(words[at])
                if self.count <= 0:
                    raise ErrorReply(b"ERR COUNT must be > 0")
            elif word in (b"STORE", b"STOREDIST") and left >= 1 and self.may_store and not self.is_search:
                at += 1
                self.store, self.stores_distance = words[at], word == b"STOREDIST"
            elif word == b"STOREDIST" and self.is_search and self.may_store:
                self.stores_distance = True
            elif self.is_search:
                at += self._read_shape(word, words[at + 1 :], value)
            else:
                raise ErrorReply(SYNTAX_ERROR)
            at += 1

    def _flag(self, word: bytes) -> None:
        self.with_distance |= word == b"WITHDIST"
        self.with_hash |= word == b"WITHHASH"
        self.with_place |= word == b"WITHCOORD"
        self.any |= word == b"ANY"
        if word in (b"ASC", b"DESC"):
            self.order = 1 if word == b"ASC" else -1

    def _read_shape(self, word: bytes, words: Sequence[bytes], value: SortedSet | None) -> int:
        """How many words an option of GEOSEARCH takes after its own."""
        shape = self.shape
        if word == b"FROMMEMBER" and words and self.from_what != b"FROMLONLAT":
            self.from_what = word
            if value is not None:
                shape.centre = _member_place(value, words[0])
            return 1
        if word == b"FROMLONLAT" and len(words) >= 2 and self.from_what != b"FROMMEMBER":
            shape.centre = _place(words[0], words[1])
            self.from_what = word
            return 2
        if word == b"BYRADIUS" and len(words) >= 2 and self.by_what != b"BYBOX":
            self.read_radius(words)
            self.by_what = word
            return 2
        if word == b"BYBOX" and len(words) >= 3 and self.by_what != b"BYRADIUS":
            shape.width, shape.height = (
                double(words[0], b"ERR need numeric width"),
                double(words[1], b"ERR need numeric height"),
            )
            if shape.width < 0 or shape.height < 0:
                raise ErrorReply(b"ERR height or width cannot be negative")
            shape.unit_m, shape.is_box = _unit(words[2]), True
            self.by_what = word
            return 3
        raise ErrorReply(SYNTAX_ERROR)

    def read_radius(self, words: Sequence[bytes]) -> None:
        """Take in a radius and its unit. Raises ErrorReply."""
        self.shape.radius = double(words[0], b"ERR need numeric radius")
        if self.shape.radius < 0:
            raise ErrorReply(b"ERR radius cannot be negative")
        self.shape.unit_m = _unit(words[1])

    def check(self) -> None:
        """Raises ErrorReply where options do not go together."""
        if self.store is not None and (self.with_distance or self.with_hash or self.with_place):
            what = b"GEOSEARCHSTORE" if self.is_search else b"STORE option in GEORADIUS"
            raise ErrorReply(b"ERR %b is not compatible with WITHDIST, WITHHASH and WITHCOORD options" % what)
        if self.is_search and not self.from_what:
            raise ErrorReply(b"ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %b" % self.name)
        if self.is_search and not self.by_what:
            raise ErrorReply(b"ERR exactly one of BYRADIUS and BYBOX can be specified for %b" % self.name)
        if self.any and not self.count:
            raise ErrorReply(b"ERR the ANY argument requires COUNT argument")

    def answer(self, node: NodeState, value: SortedSet | None) -> Reply:
        """Search, and reply or store."""
        self.check()
        places = [] if value is None else _search(node, value, self.shape, self.count if self.any else 0)
        if self.order or (self.count and not self.any):
            node.spend(_FOUND_WORK * len(places))
            places.sort(key=lambda each: each.distance_m, reverse=self.order < 0)
        if self.count:
            places = places[: self.count]
        unit_m = self.shape.unit_m
        if self.store is not None:
            scores = {each.member: each.distance_m / unit_m if self.stores_distance else each.score for each in places}
            return store_result(node, self.store, SortedSet.of(scores, node.encoding_limits))
        if not (self.with_distance or self.with_hash or self.with_place):
            return [each.member for each in places]
        rows: list[Reply] = []
        for each in places:
            row: list[Reply] = [each.member]
            if self.with_distance:
                row.append(b"%.4f" % (each.distance_m / unit_m))
            if self.with_hash:
                row.append(_signed(each.score))
            if self.with_place:
                row.append(_shown(node, each.place))
            rows.append(row)
        return rows


def _shown(node: NodeState, place: Place) -> Reply:
    texts = list(map(shortest_text if node.version.has((8, 0)) else decimals, place))
    return list(map(float, texts)) if node.resp == 3 else texts


def _radius_keys(argv: Sequence[bytes]) -> Sequence[bytes]:
    stores = [argv[at + 1] for at in range(5, len(argv) - 1) if argv[at].upper() in (b"STORE", b"STOREDIST")]
    return [argv[1], *stores[-1:]]


def _around_place(may_store: bool) -> Callable[[NodeState, Sequence[bytes]], Reply]:
    def georadius(node: NodeState, argv: Sequence[bytes]) -> Reply:
        """GEORADIUS key longitude latitude radius unit [option ...]."""
        value = node.lookup_as(argv[1], SortedSet)
        query = _PlaceSearch(_SearchArea(_place(argv[2], argv[3])), argv[0], False, may_store)
        query.read_radius(argv[4:])
        query.read_options(argv[6:], value)
        return query.answer(node, value)

    return georadius


def _around_member(may_store: bool) -> Callable[[NodeState, Sequence[bytes]], Reply]:
    def georadiusbymember(node: NodeState, argv: Sequence[bytes]) -> Reply:
        """GEORADIUSBYMEMBER key member radius unit [option ...]."""
        value = node.lookup_as(argv[1], SortedSet)
        query = _PlaceSearch(_SearchArea(), argv[0], False, may_store)
        if value is not None:
            query.shape.centre = _member_place(value, argv[2])
            query.read_radius(argv[3:])
        query.read_options(argv[5:], value)
        return query.answer(node, value)

    return georadiusbymember


command("georadius", -6, "write denyoom movablekeys", _radius_keys, positions=(1, 1, 1))(_around_place(True))
command("georadius_ro", -6, "readonly", (1, 1, 1))(_around_place(False))
command("georadiusbymember", -5, "write denyoom movablekeys", _radius_keys, positions=(1, 1, 1))(_around_member(True))
command("georadiusbymember_ro", -5, "readonly", (1, 1, 1))(_around_member(False))


@command("geosearch", -7, "readonly", (1, 1, 1))
def geosearch(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height unit
    [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]."""
    value = node.lookup_as(argv[1], SortedSet)
    query = _PlaceSearch(_SearchArea(), argv[0], True, False)
    query.read_options(argv[2:], value)
    return query.answer(node, value)


@command("geosearchstore", -8, "write denyoom", (1, 2, 1))
def geosearchstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEOSEARCHSTORE destination source FROMMEMBER ... [STOREDIST]."""
    value = node.lookup_as(argv[2], SortedSet)
    query = _PlaceSearch(_SearchArea(), argv[0], True, True, argv[1])
    query.read_options(argv[3:], value)
    return query.answer(node, value)


@command("geoadd", -5, "write denyoom", (1, 1, 1))
def geoadd(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]: ZADD of geohashes."""
    at = 2
    words = []
    while at < len(argv) and option(argv[at]) in (b"NX", b"XX", b"CH"):
        words.append(option(argv[at]))
        at += 1
    if (len(argv) - at) % 3 or (b"NX" in words and b"XX" in words):
        raise ErrorReply(SYNTAX_ERROR)
    scored = []
    for start in range(at, len(argv), 3):
        place = _place(argv[start], argv[start + 1])
        scored += [b"%d" % _encode(place, _STEPS), argv[start + 2]]
    return zadd(node, [b"zadd", argv[1], *words, *scored])


@command("geodist", -4, "readonly", (1, 1, 1))
def geodist(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEODIST key member1 member2 [M | KM | FT | MI]."""
    unit_m = _unit(argv[4]) if len(argv) == 5 else 1.0
    if len(argv) > 5:
        raise ErrorReply(SYNTAX_ERROR)
    value = node.lookup_as(argv[1], SortedSet)
    scores = [] if value is None else [value.scores.get(member) for member in argv[2:4]]
    if None in scores or not scores:
        return None
    start, other = map(place_of, scores)
    return b"%.4f" % (distance_m(start, other) / unit_m)


@command("geohash", -2, "readonly", (1, 1, 1))
def geohash(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEOHASH key [member ...]: as geohash.org spells it, from latitudes of -90 to 90."""
    value = node.lookup_as(argv[1], SortedSet)
    reply: list[Reply] = []
    for member in argv[2:]:
        score = None if value is None else value.scores.get(member)
        if score is None:
            reply.append(None)
            continue
        bits = _encode(place_of(score), _STEPS, (-90.0, 90.0))
        letters = [_ALPHABET[bits >> 52 - 5 * (at + 1) & 31] for at in range(10)]
        reply.append(bytes(letters) + b"0")
    return reply


@command("geopos", -2, "readonly", (1, 1, 1))
def geopos(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GEOPOS key [member ...]."""
    value = node.lookup_as(argv[1], SortedSet)
    scores = [None if value is None else value.scores.get(member) for member in argv[2:]]
    return [None if score is None else _shown(node, place_of(score)) for score in scores]
