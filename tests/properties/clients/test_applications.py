"""Programs as applications have them: a right one holds in every order, its neighbour with one flaw is told at the
default effort."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py
import redis.asyncio as aredis

from orderlab.clients import race, scenario

PAIRS: dict[str, tuple[Any, Any, str, int, tuple[str, ...]]] = {}


def pair(name: str, law: str, right: Any, flawed: Any, trouble: int = 0, faults: tuple[str, ...] = ()) -> None:
    PAIRS[name] = (right, flawed, law, trouble, faults)


def nothing(redis: Any) -> None:
    """What a scenario is called with at the end, where nothing is asked."""


# -- a lock whose holder renews it in a thread -------------------------------------------------------------------

RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class RenewedLock:
    """A lease that a thread makes longer while its holder works."""

    def __init__(self, client: Any, name: str, ttl: float, every: float) -> None:
        self.client, self.name, self.ttl, self.every = client, f"lock:{name}", ttl, every
        self.token = uuid.uuid4().hex
        self.stop = threading.Event()
        self.renew = client.register_script(RENEW)
        self.free = client.register_script(RELEASE)

    def __enter__(self) -> RenewedLock:
        while not self.client.set(self.name, self.token, nx=True, px=int(self.ttl * 1000)):
            time.sleep(0.5)
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()
        return self

    def _keep(self) -> None:
        while not self.stop.wait(self.every):
            if not self.renew(keys=[self.name], args=[self.token, int(self.ttl * 1000)]):
                return

    def __exit__(self, *_: Any) -> None:
        self.stop.set()
        self.thread.join()
        self.free(keys=[self.name], args=[self.token])


def renewing(every: float) -> Any:
    @scenario(clients=2)
    def nightly_report(redis: Any, at: Any) -> None:
        with RenewedLock(redis, "report", ttl=1, every=every), at("report"):
            time.sleep(1.6)

    return nightly_report


pair("renewed-lock", "at-most-1", renewing(0.4), renewing(1.2))


# -- one leader, whose writes carry its term ---------------------------------------------------------------------

ELECT = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end
return 0
"""
FENCED = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('RPUSH', KEYS[2], ARGV[1]) end"


def terms_grow(redis: Any) -> bool:
    written = [int(term) for term in redis.lrange("written", 0, -1)]
    return written == sorted(written)


def leads(is_fenced: bool) -> Callable[..., Any]:
    async def client(redis: Any, at: Any) -> None:
        at.finally_(terms_grow)
        await asyncio.sleep(0.9 * at.client)
        term = await redis.eval(ELECT, 2, "leader", "term", at.client, 1000)
        if not term:
            await asyncio.sleep(0.2)
            term = await redis.eval(ELECT, 2, "leader", "term", at.client, 1000)
        if not term:
            return
        await asyncio.sleep(0.5 if at.client else 1.05)
        if is_fenced:
            await redis.eval(FENCED, 2, "term", "written", term)
        elif await redis.get("leader") in (str(at.client).encode(), None):
            await redis.rpush("written", term)

    return client


def led(is_fenced: bool) -> Any:
    @scenario(clients=2)
    async def leaders(redis: Any, at: Any) -> None:
        await leads(is_fenced)(redis, at)

    return leaders


pair("leader", "finally", led(True), led(False), trouble=1, faults=("paused",))


# -- a sliding window in a sorted set, by WATCH ------------------------------------------------------------------


def allowed(client: Any, user: str, limit: int, window: float, watches_first: bool) -> bool:
    key = f"rate:{user}"
    with client.pipeline() as pipe:
        for _ in range(10):
            try:
                now = time.time()
                if watches_first:
                    pipe.watch(key)
                    count = pipe.zcount(key, now - window, "+inf")
                else:
                    count = client.zcount(key, now - window, "+inf")
                    pipe.watch(key)
                if count >= limit:
                    pipe.unwatch()
                    return False
                pipe.multi()
                pipe.zremrangebyscore(key, 0, now - window)
                pipe.zadd(key, {uuid.uuid4().hex: now})
                pipe.expire(key, int(window) + 1)
                pipe.execute()
                return True
            except redis_py.WatchError:
                continue
    return False


def sliding(watches_first: bool) -> Any:
    @scenario(clients=2)
    def sliding_window(redis: Any, at: Any) -> None:
        if allowed(redis, "ann", 1, 60, watches_first):
            at.once("call")

    return sliding_window


pair("sliding-window", "at-most-once", sliding(True), sliding(False))


# -- a fixed window ----------------------------------------------------------------------------------------------


def hit_right(client: Any, key: str) -> int:
    with client.pipeline() as pipe:
        pipe.set(key, 0, ex=60, nx=True)
        pipe.incr(key)
        return int(pipe.execute()[1])


def hit_flawed(client: Any, key: str) -> int:
    if not client.exists(key):
        client.set(key, 0, ex=60)
    return int(client.incr(key))


def fixed(hit: Callable[[Any, str], int]) -> Any:
    @scenario(clients=3)
    def fixed_window(redis: Any, at: Any) -> None:
        if hit(redis, "hits:10.0.0.1") <= 1:
            at.once("request")

    return fixed_window


pair("fixed-window", "at-most-once", fixed(hit_right), fixed(hit_flawed))


# -- consumers of a stream, and what their dead leave behind ------------------------------------------------------


def orders_stream(redis: Any) -> None:
    redis.xgroup_create("orders", "billing", id="0", mkstream=True)
    redis.xadd("orders", {"id": "42"})


def bills(min_idle: int) -> Any:
    @scenario(clients=2, setup=orders_stream)
    def consumer(redis: Any, at: Any) -> None:
        me = f"worker-{at.client}"
        _, claimed, _ = redis.xautoclaim("orders", "billing", me, min_idle_time=min_idle, start_id="0-0", count=10)
        fresh = redis.xreadgroup("billing", me, {"orders": ">"}, count=1)
        found = [*claimed, *(fresh[0][1] if fresh else ())]
        for entry, fields in found:
            at.once(fields[b"id"])
            time.sleep(0.3)
            redis.xack("orders", "billing", entry)

    return consumer


pair("stream-claims", "at-most-once", bills(60_000), bills(0))


# -- a charge that is asked for twice ----------------------------------------------------------------------------


def charge_right(client: Any, at: Any, key: str) -> str:
    if not client.set(f"idem:{key}", "pending", nx=True, ex=86_400):
        for _ in range(20):
            kept = client.get(f"idem:{key}")
            if kept != b"pending":
                return str(kept)
            time.sleep(0.1)
        return "409"
    at.once("charge")
    client.set(f"idem:{key}", "charged", xx=True, keepttl=True)
    return "charged"


def charge_flawed(client: Any, at: Any, key: str) -> str:
    kept = client.get(f"idem:{key}")
    if kept is not None:
        return str(kept)
    at.once("charge")
    client.set(f"idem:{key}", "charged", nx=True, ex=86_400)
    return "charged"


def charges(charge: Callable[..., str]) -> Any:
    @scenario(clients=2)
    def payment(redis: Any, at: Any) -> None:
        charge(redis, at, "8d1f")

    return payment


pair("idempotency", "at-most-once", charges(charge_right), charges(charge_flawed))


# -- a stock that is taken from, and given back where too much was taken ------------------------------------------

TAKE = """
local left = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if left < tonumber(ARGV[2]) then return -1 end
return redis.call('HINCRBY', KEYS[1], ARGV[1], -ARGV[2])
"""


def one_hat(redis: Any) -> None:
    redis.hset("stock", "hat", 1)


def takes_by_script(amount: int) -> Callable[[Any], bool]:
    def client(redis: Any) -> bool:
        return int(redis.eval(TAKE, 1, "stock", "hat", amount)) >= 0

    return client


def takes_and_gives_back(amount: int) -> Callable[[Any], bool]:
    def client(redis: Any) -> bool:
        if redis.hincrby("stock", "hat", -amount) >= 0:
            return True
        redis.hincrby("stock", "hat", amount)
        return False

    return client


pair(
    "inventory",
    "serializable",
    scenario(clients=[takes_by_script(2), takes_by_script(1)], setup=one_hat)(nothing),
    scenario(clients=[takes_and_gives_back(2), takes_and_gives_back(1)], setup=one_hat)(nothing),
)


# -- a cache in the process that is told of changes ----------------------------------------------------------------


def old_price(redis: Any) -> None:
    redis.set("price", "10")


def changes_price(redis: Any) -> None:
    redis.set("price", "12")
    redis.publish("changed", "price")


def changes_price_too_late(redis: Any) -> None:
    redis.publish("changed", "price")
    redis.set("price", "12")


def near_cache(redis: Any) -> Any:
    channel = redis.pubsub(ignore_subscribe_messages=True)
    channel.subscribe("changed")
    channel.get_message(timeout=1)
    local = {"price": redis.get("price")}
    while local["price"] != b"12":  # serves requests from its memory meanwhile
        message = channel.get_message(timeout=None)
        if message is not None:
            local[message["data"].decode()] = redis.get(message["data"])


pair(
    "near-cache",
    "no-deadlock",
    scenario(clients=[near_cache, changes_price], setup=old_price)(nothing),
    scenario(clients=[near_cache, changes_price_too_late], setup=old_price)(nothing),
)


# -- a fair semaphore --------------------------------------------------------------------------------------------

FAIR = """
local turn = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], turn, ARGV[1])
if redis.call('ZRANK', KEYS[1], ARGV[1]) < tonumber(ARGV[2]) then return 1 end
redis.call('ZREM', KEYS[1], ARGV[1])
return 0
"""


def acquire_at_once(client: Any, who: str, limit: int) -> bool:
    return bool(client.eval(FAIR, 2, "sem", "sem:turn", who, limit))


def acquire_in_two(client: Any, who: str, limit: int) -> bool:
    turn = client.incr("sem:turn")
    pipe = client.pipeline(True)
    pipe.zadd("sem", {who: turn})
    pipe.zrank("sem", who)
    if pipe.execute()[-1] < limit:
        return True
    client.zrem("sem", who)
    return False


def fair(acquire: Callable[[Any, str, int], bool]) -> Any:
    @scenario(clients=2)
    def downloads(redis: Any, at: Any) -> None:
        who = str(uuid.uuid4())
        if acquire(redis, who, 1):
            with at("download"):
                time.sleep(1)
            redis.zrem("sem", who)

    return downloads


pair("fair-semaphore", "at-most-1", fair(acquire_at_once), fair(acquire_in_two))


# -- sessions whose end slides -----------------------------------------------------------------------------------


def logged_in(redis: Any) -> None:
    redis.set("session:s1", json.dumps({"user": 7, "views": 0}), ex=1800)


def touches(xx: bool) -> Callable[[Any], None]:
    def client(redis: Any) -> None:
        raw = redis.getex("session:s1", ex=1800)
        if raw is None:
            return
        data = json.loads(raw)
        data["views"] += 1
        redis.set("session:s1", json.dumps(data), ex=1800, xx=xx)

    return client


def logs_out(redis: Any) -> None:
    redis.delete("session:s1")


def sessions(xx: bool) -> Any:
    @scenario(clients=[touches(xx), logs_out], setup=logged_in)
    def is_logged_out(redis: Any) -> bool:
        return not redis.exists("session:s1")

    return is_logged_out


pair("sliding-session", "finally", sessions(True), sessions(False))


# -- an outbox: the order and its event --------------------------------------------------------------------------


def has_event(redis: Any) -> bool:
    orders = redis.hlen("orders")
    return bool(orders == redis.llen("outbox") + redis.xlen("events"))


def places_right(redis: Any, at: Any) -> None:
    at.finally_(has_event)
    with redis.pipeline(transaction=True) as pipe:
        pipe.hset("orders", at.client, "new")
        pipe.lpush("outbox", at.client)
        pipe.execute()


def places_flawed(redis: Any, at: Any) -> None:
    at.finally_(has_event)
    with redis.pipeline(transaction=False) as pipe:
        pipe.hset("orders", at.client, "new")
        pipe.lpush("outbox", at.client)
        pipe.execute()


def relays(redis: Any, at: Any) -> None:
    for _ in range(2):
        head = redis.lindex("outbox", -1)
        if head is None:
            return
        with redis.pipeline() as pipe:
            try:
                pipe.watch("outbox")
                if pipe.lindex("outbox", -1) != head:
                    continue
                pipe.multi()
                pipe.xadd("events", {"order": head})
                pipe.rpop("outbox")
                pipe.execute()
            except redis_py.WatchError:
                continue


pair(
    "outbox",
    "finally",
    scenario(clients=[places_right, relays])(nothing),
    scenario(clients=[places_flawed, relays])(nothing),
    trouble=1,
    faults=("killed",),
)


# -- many ask for what one should make ----------------------------------------------------------------------------


async def render(at: Any) -> str:
    at.once("render")
    await asyncio.sleep(0.2)
    return "<p>"


def single_flight(looks_again: bool) -> Any:
    @scenario(clients=2)
    async def page(redis: Any, at: Any) -> None:
        async def fetch() -> Any:
            kept = await redis.get("page")
            if kept is not None:
                return kept
            async with redis.lock("page:lock", timeout=30, sleep=0.1):
                if looks_again:
                    kept = await redis.get("page")
                    if kept is not None:
                        return kept
                made = await render(at)
                await redis.set("page", made, ex=300)
                return made

        await fetch()

    return page


pair("single-flight", "at-most-once", single_flight(True), single_flight(False))


# -- counters that are flushed to a table -------------------------------------------------------------------------


def counts_one(redis: Any) -> None:
    redis.hincrby("views", "page", 1)


def flushes(is_unique: bool) -> Callable[[Any], int]:
    def client(redis: Any) -> int:
        aside = f"views:{uuid.uuid4().hex}" if is_unique else "views:flush"
        try:
            redis.rename("views", aside)
        except redis_py.ResponseError:
            return 0
        rows = redis.hgetall(aside)
        redis.delete(aside)
        for page, count in rows.items():
            redis.incrby(b"table:" + page, int(count))
        return 0

    return client


def flushed(is_unique: bool) -> Any:
    @scenario(clients=[counts_one, flushes(is_unique), flushes(is_unique)], setup=counts_one)
    def nothing_is_lost(redis: Any) -> bool:
        waiting = int(redis.hget("views", "page") or 0)
        return waiting + int(redis.get("table:page") or 0) == 2

    return nothing_is_lost


pair("flushed-counters", "finally", flushed(True), flushed(False))


# -- a job that is asked for once more while it runs ---------------------------------------------------------------


def first_version(redis: Any) -> None:
    redis.set("version", 1)
    redis.sadd("queued", "index")
    redis.rpush("queue", "index")


def edits(redis: Any) -> None:
    redis.incr("version")
    if redis.sadd("queued", "index"):
        redis.rpush("queue", "index")


def indexes(marks_first: bool) -> Callable[[Any], None]:
    def client(redis: Any) -> None:
        for _ in range(3):
            popped = redis.blpop("queue", timeout=1)
            if popped is None:
                return
            if marks_first:
                redis.srem("queued", popped[1])
            version = redis.get("version")
            redis.set("indexed", version)
            if not marks_first:
                redis.srem("queued", popped[1])

    return client


def indexed(marks_first: bool) -> Any:
    @scenario(clients=[edits, indexes(marks_first)], setup=first_version)
    def is_up_to_date(redis: Any) -> bool:
        return redis.get("indexed") == redis.get("version") or redis.llen("queue") > 0

    return is_up_to_date


pair("coalesced-jobs", "finally", indexed(True), indexed(False))


# -- readers and a writer ------------------------------------------------------------------------------------------


def reads_file(flags_first: bool) -> Callable[..., None]:
    def client(redis: Any, at: Any) -> None:
        if not flags_first and redis.get("writer"):
            return
        redis.incr("readers")
        if flags_first and redis.get("writer"):
            redis.decr("readers")
            return
        with at("file"):
            time.sleep(0.1)
        redis.decr("readers")

    return client


def writes_file(flags_first: bool) -> Callable[..., None]:
    def client(redis: Any, at: Any) -> None:
        if not flags_first and int(redis.get("readers") or 0):
            return
        if not redis.set("writer", "1", nx=True):
            return
        if not flags_first or not int(redis.get("readers") or 0):
            with at("file"):
                time.sleep(0.1)
        redis.delete("writer")

    return client


pair(
    "readers-and-writer",
    "at-most-1",
    scenario(clients=[reads_file(True), writes_file(True)])(nothing),
    scenario(clients=[reads_file(False), writes_file(False)])(nothing),
)


# -- workers of one process that share a pool ----------------------------------------------------------------------


def moves_with_threads(is_atomic: bool) -> Any:
    def jobs(redis: Any) -> None:
        redis.rpush("todo", "a", "b")

    @scenario(clients=1, setup=jobs)
    def pool(redis: Any, at: Any) -> None:
        shared = redis_py.Redis(connection_pool=redis_py.ConnectionPool())

        def work() -> None:
            while True:
                if is_atomic:
                    job = shared.lmove("todo", "doing", "LEFT", "RIGHT")
                    if job is None:
                        return
                else:
                    job = shared.lindex("todo", 0)
                    if job is None:
                        return
                    shared.lrem("todo", 1, job)
                    shared.rpush("doing", job)
                at.once(job)
                shared.lrem("doing", 1, job)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return pool


pair("pool-of-threads", "at-most-once", moves_with_threads(True), moves_with_threads(False))


# -- tokens that are refreshed: an async client of its own -----------------------------------------------------------


def refreshes(compares: bool) -> Any:
    def expired(redis: Any) -> None:
        redis.hset("token", mapping={"access": "a0", "refresh": "r0"})

    async def use(at: Any, client: Any) -> None:
        seen = await client.hgetall("token")
        async with client.lock("token:lock", timeout=10, blocking_timeout=30):
            now = await client.hgetall("token") if compares else seen
            if now[b"access"] != b"a0":
                return
            at.once(now[b"refresh"])  # the issuer takes a refresh token once
            await client.hset("token", mapping={"access": "a1", "refresh": "r1"})

    @scenario(clients=1, setup=expired)
    def refresh(redis: Any, at: Any) -> None:
        async def main() -> None:
            client = aredis.Redis.from_url("redis://localhost:6379/0")
            try:
                await asyncio.gather(use(at, client), use(at, client))
            finally:
                await client.aclose()

        asyncio.run(main())

    return refresh


pair("token-refresh", "at-most-once", refreshes(True), refreshes(False))


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_right_holds_and_its_neighbour_is_violated(name: str) -> None:
    right, flawed, law, trouble, faults = PAIRS[name]
    verdict = race(right, trouble=trouble, faults=faults)
    assert (str(verdict.outcome), verdict.law) == ("holds", ""), (verdict.what, verdict.how_far)
    assert verdict.how_far.startswith("all ")
    found = race(flawed, trouble=trouble, faults=faults)
    assert (str(found.outcome), found.law) == ("violated", law), (found.what, found.how_far)
