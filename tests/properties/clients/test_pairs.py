"""Right programs that must hold in every order, each with a neighbour that has one flaw of those that people report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race, scenario

Client = Callable[..., Any]


@dataclass(frozen=True)
class Pair:
    """A right program, its flawed neighbour, and the law that the flaw breaks."""

    name: str
    right: Any
    flawed: Any
    law: str
    trouble: int = 0


PAIRS: list[Pair] = []


def nothing(redis: Any) -> None:
    """What a scenario is called with at the end, where nothing is asked."""


def pair(name: str, law: str, right: Any, flawed: Any, trouble: int = 0) -> None:
    PAIRS.append(Pair(name, right, flawed, law, trouble))


# -- accounts: WATCH covers every key that the decision read -------------------------------------------------------


def withdraw(own: str, watched: tuple[str, ...]) -> Client:
    """The two accounts together must not go below zero."""

    def client(redis: Any) -> None:
        with redis.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(*watched)
                    if int(pipe.get("alice")) + int(pipe.get("bob")) >= 100:
                        pipe.multi()
                        pipe.decrby(own, 100)
                        pipe.execute()
                    return
                except redis_py.WatchError:
                    continue

    return client


def fill_accounts(redis: Any) -> None:
    redis.mset({"alice": 60, "bob": 60})


def accounts(watched: dict[str, tuple[str, ...]]) -> Any:
    @scenario(clients=[withdraw(own, keys) for own, keys in watched.items()], setup=fill_accounts)
    def total_is_not_negative(redis: Any) -> bool:
        return int(redis.get("alice")) + int(redis.get("bob")) >= 0

    return total_is_not_negative


BOTH = ("alice", "bob")
pair("accounts", "finally", accounts({"alice": BOTH, "bob": BOTH}), accounts({"alice": ("alice",), "bob": ("bob",)}))


# -- a limiter: one call a window --------------------------------------------------------------------------------

ADMIT = """
local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return n <= tonumber(ARGV[1]) and 1 or 0
"""


def within_limit(redis: Any) -> bool:
    return int(redis.get("admitted") or 0) <= 1


def limiter_right(redis: Any, at: Any) -> None:
    at.finally_(within_limit)
    if redis.eval(ADMIT, 1, "window", 1, 60_000):
        redis.incr("admitted")


def limiter_flawed(redis: Any, at: Any) -> None:
    at.finally_(within_limit)
    if int(redis.get("window") or 0) < 1:
        redis.incr("window")
        redis.expire("window", 60)
        redis.incr("admitted")


pair("limiter", "finally", scenario(clients=2)(limiter_right), scenario(clients=2)(limiter_flawed))


def window_ends(redis: Any) -> bool:
    return bool(redis.ttl("window") != -1)


def expiring_right(redis: Any, at: Any) -> None:
    at.finally_(window_ends)
    redis.eval(ADMIT, 1, "window", 2, 60_000)


def expiring_flawed(redis: Any, at: Any) -> None:
    at.finally_(window_ends)
    if redis.incr("window") == 1:
        redis.expire("window", 60)


pair(
    "limiter that dies", "finally", scenario(clients=2)(expiring_right), scenario(clients=2)(expiring_flawed), trouble=1
)


# -- a lease that ends while its holder works: who comes then gets the lock ----------------------


def working(redis: Any, at: Any, lease_ms: int) -> None:
    if redis.set("lock", at.client, nx=True, px=lease_ms):
        with at("critical", most=1):
            at.sleep(2)


def long_lease(redis: Any, at: Any) -> None:
    working(redis, at, 2_500)


def short_lease(redis: Any, at: Any) -> None:
    working(redis, at, 1_500)


pair("lease that ends", "at-most-1", scenario(clients=2)(long_lease), scenario(clients=2)(short_lease))


# -- a message to whoever listens: who comes late hears nothing ----------------------


def tells(redis: Any, at: Any) -> None:
    at.produced("m")
    redis.rpush("letters", "m")


def shouts(redis: Any, at: Any) -> None:
    at.produced("m")
    redis.publish("letters", "m")


def reads(redis: Any, at: Any) -> None:
    at.consumed(redis.blpop("letters", timeout=0)[1].decode())


def listens(redis: Any, at: Any) -> None:
    channel = redis.pubsub()
    channel.subscribe("letters")
    channel.get_message(timeout=1)
    message = channel.get_message(timeout=1)
    if message is not None:
        at.consumed(message["data"].decode())


pair("message", "no-loss", scenario(clients=[tells, reads])(nothing), scenario(clients=[shouts, listens])(nothing))


# -- a queue with leases: a job that is nobody's goes back --------------------------------------------------------

TAKE = """
local job = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
if job then redis.call('SET', 'lease:' .. job, ARGV[1], 'PX', 30000) end
return job
"""
GIVE_BACK = """
for _, job in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', 'lease:' .. job) == 0 then
    redis.call('LREM', KEYS[2], 1, job)
    redis.call('RPUSH', KEYS[1], job)
  end
end
"""


def finish(redis: Any, at: Any, job: Any) -> None:
    if job is not None:
        at.once(job)
        redis.lrem("busy", 1, job)


def leased_right(redis: Any, at: Any) -> None:
    finish(redis, at, redis.eval(TAKE, 2, "jobs", "busy", at.client))


def leased_flawed(redis: Any, at: Any) -> None:
    job = redis.lmove("jobs", "busy", "RIGHT", "LEFT")
    if job is not None:
        redis.set(b"lease:" + job, at.client, px=30_000)
    finish(redis, at, job)


def reaper(redis: Any) -> None:
    redis.eval(GIVE_BACK, 2, "jobs", "busy")


def one_job(redis: Any) -> None:
    redis.rpush("jobs", "mail")


def leases(worker: Client) -> Any:
    return scenario(clients=[worker, worker, reaper], setup=one_job)(lambda redis: None)


pair("leased jobs", "at-most-once", leases(leased_right), leases(leased_flawed))


# -- streams with groups ------------------------------------------------------------------------------------------


def two_entries(redis: Any) -> None:
    redis.xgroup_create("feed", "workers", id="0", mkstream=True)
    redis.xadd("feed", {"n": 1}, id="1-1")
    redis.xadd("feed", {"n": 2}, id="2-1")


def group_right(redis: Any, at: Any) -> None:
    for _, entries in redis.xreadgroup("workers", at.client, {"feed": ">"}, count=1):
        for entry, _ in entries:
            at.once(entry)
            redis.xack("feed", "workers", entry)


def group_flawed(redis: Any, at: Any) -> None:
    pending = redis.xautoclaim("feed", "workers", at.client, min_idle_time=0, count=1)[1]  # from those who work on it
    entries = pending or [each for _, new in redis.xreadgroup("workers", at.client, {"feed": ">"}) for each in new]
    for entry, _ in entries:
        at.once(entry)
        redis.xack("feed", "workers", entry)


pair(
    "stream group", "at-most-once",
    scenario(clients=3, setup=two_entries)(group_right), scenario(clients=2, setup=two_entries)(group_flawed),
)  # fmt: skip


# -- fencing: who lost the lease must not write any more ----------------------------------------------------------

STORE = """
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or 0) then return 0 end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


def holder(write: Callable[[Any, int], Any]) -> Client:
    def client(redis: Any, at: Any) -> None:
        if redis.set("lease", at.client, nx=True, px=1_000):
            token = redis.incr("tokens")
            if at.client == 0:
                at.sleep(2)  # a collector, a page fault: the lease is over
            write(redis, token)
        at.finally_(lambda redis: redis.get("document") in (None, redis.get("newest")))

    return client


def write_fenced(redis: Any, token: int) -> None:
    if redis.eval(STORE, 2, "document", "fence", token, token):
        redis.set("newest", token)


def write_bare(redis: Any, token: int) -> None:
    if token >= int(redis.get("newest") or 0):
        redis.set("newest", token)
    redis.set("document", token)


def later(client: Client) -> Client:
    def run(redis: Any, at: Any) -> None:
        at.sleep(1.5)
        client(redis, at)

    return run


def fenced(write: Callable[[Any, int], Any]) -> Any:
    client = holder(write)

    @scenario(clients=[client, later(client)])
    def newest_is_kept(redis: Any) -> None:
        assert redis.get("document") == redis.get("newest")

    return newest_is_kept


pair("fencing", "finally", fenced(write_fenced), fenced(write_bare))


# -- wake-ups over a channel --------------------------------------------------------------------------------------


def waits_for_message(redis: Any) -> None:
    patient: Any = redis_py.Redis(socket_timeout=None)
    with patient.pubsub() as channel:
        channel.subscribe("ready")
        if redis.get("done"):
            return
        for message in channel.listen():
            if message["type"] == "message":
                return


def waits_too_late(redis: Any) -> None:
    if redis.get("done"):
        return
    patient: Any = redis_py.Redis(socket_timeout=None)
    with patient.pubsub() as channel:
        channel.subscribe("ready")
        for message in channel.listen():
            if message["type"] == "message":
                return


def says_ready(redis: Any) -> None:
    redis.set("done", 1)
    redis.publish("ready", 1)


def wakeup(waiter: Client) -> Any:
    @scenario(clients=[waiter, says_ready])
    def done(redis: Any) -> bool:
        return bool(redis.get("done") == b"1")

    return done


pair("wake-up", "no-deadlock", wakeup(waits_for_message), wakeup(waits_too_late))


# -- blocking pops ------------------------------------------------------------------------------------------------


def produces(redis: Any, at: Any) -> None:
    at.produced(b"letter")
    redis.rpush("letters", "letter", "end", "end")


def consumes(redis: Any, at: Any) -> None:
    patient: Any = redis_py.Redis(socket_timeout=None)
    while True:
        _, letter = patient.blpop("letters", timeout=0)
        if letter == b"end":
            return
        at.consumed(letter)


def consumes_by_length(redis: Any, at: Any) -> None:
    patient: Any = redis_py.Redis(socket_timeout=None)
    while redis.llen("letters"):  # somebody else may take it first
        _, letter = patient.blpop("letters", timeout=0)
        if letter != b"end":
            at.consumed(letter)


def letter_is_there(redis: Any) -> None:
    redis.rpush("letters", "letter")


pair(
    "blocking pops", "no-deadlock", scenario(clients=[produces, consumes, consumes])(lambda redis: None),
    scenario(clients=2, setup=letter_is_there)(consumes_by_length),
)  # fmt: skip


# -- the best score -----------------------------------------------------------------------------------------------


def best_is_kept(redis: Any) -> bool:
    return bool(redis.zscore("scores", "eve") == 11)


def score_right(redis: Any, at: Any) -> None:
    at.finally_(best_is_kept)
    redis.zadd("scores", {"eve": 10 + at.client}, gt=True)


def score_flawed(redis: Any, at: Any) -> None:
    at.finally_(best_is_kept)
    score = 10 + at.client
    if (redis.zscore("scores", "eve") or 0) < score:
        redis.zadd("scores", {"eve": score})


pair("leaderboard", "finally", scenario(clients=2)(score_right), scenario(clients=2)(score_flawed))


# -- a task is handed over in two phases --------------------------------------------------------------------------

ACCEPT = """
if redis.call('HGET', KEYS[1], 'state') ~= 'offered' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'accepted', 'owner', ARGV[1])
return 1
"""
WITHDRAW = """
if redis.call('HGET', KEYS[1], 'state') ~= 'offered' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'kept')
return 1
"""


def offered(redis: Any) -> None:
    redis.hset("task", mapping={"state": "offered", "owner": "giver"})


def accepts(redis: Any, at: Any) -> None:
    if redis.eval(ACCEPT, 1, "task", "taker"):
        with at("owner"):
            at.sleep(1)


def withdraws(redis: Any, at: Any) -> None:
    if redis.eval(WITHDRAW, 1, "task"):
        with at("owner"):
            at.sleep(1)


def withdraws_after_a_look(redis: Any, at: Any) -> None:
    if redis.hget("task", "state") == b"offered":
        redis.hset("task", "state", "kept")
        with at("owner"):
            at.sleep(1)


def handover(giver: Client) -> Any:
    @scenario(clients=[giver, accepts], setup=offered)
    def has_one_state(redis: Any) -> bool:
        return redis.hget("task", "state") in (b"kept", b"accepted")

    return has_one_state


pair("handover", "at-most-1", handover(withdraws), handover(withdraws_after_a_look))


# -- a semaphore of two places ------------------------------------------------------------------------------------

ENTER = """
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
return redis.call('ZADD', KEYS[1], 0, ARGV[2])
"""


def places_right(redis: Any, at: Any) -> None:
    if redis.eval(ENTER, 1, "places", 2, at.client):
        with at("room", most=2):
            at.sleep(1)


def places_flawed(redis: Any, at: Any) -> None:
    if redis.zcard("places") < 2:
        redis.zadd("places", {at.client: 0})
        with at("room", most=2):
            at.sleep(1)


pair("semaphore", "at-most-2", scenario(clients=3)(places_right), scenario(clients=3)(places_flawed))


# -- delayed jobs in a sorted set ---------------------------------------------------------------------------------


def due(redis: Any) -> None:
    redis.zadd("delayed", {"bill": 1, "mail": 2})


def delayed_right(redis: Any, at: Any) -> None:
    for job in redis.zrangebyscore("delayed", 0, 10):
        if redis.zrem("delayed", job):
            at.once(job)


def delayed_flawed(redis: Any, at: Any) -> None:
    for job in redis.zrangebyscore("delayed", 0, 10):
        redis.zrem("delayed", job)
        at.once(job)


pair(
    "delayed jobs", "at-most-once",
    scenario(clients=2, setup=due)(delayed_right), scenario(clients=2, setup=due)(delayed_flawed),
)  # fmt: skip


# -- a cache beside a table ---------------------------------------------------------------------------------------


def table(redis: Any) -> None:
    redis.set("table", "old")


def updates(redis: Any) -> None:
    redis.set("table", "new")
    redis.delete("cached")


def updates_watched(redis: Any) -> None:
    redis.set("table", "new")
    redis.pipeline(transaction=True).incr("version").delete("cached").execute()


def looks_up_watched(redis: Any) -> None:
    with redis.pipeline() as pipe:
        pipe.watch("version", "cached")
        if pipe.get("cached") is None:
            value = redis.get("table")
            pipe.multi()
            pipe.set("cached", value)
            with suppress(redis_py.WatchError):  # what was read may be old: it is used once and not kept
                pipe.execute()


def looks_up(redis: Any) -> None:
    if redis.get("cached") is None:
        redis.set("cached", redis.get("table"))


def cache(reader: Client, writer: Client) -> Any:
    @scenario(clients=[reader, writer], setup=table)
    def is_fresh(redis: Any) -> bool:
        return redis.get("cached") in (None, redis.get("table"))

    return is_fresh


pair("cache", "finally", cache(looks_up_watched, updates_watched), cache(looks_up, updates))


# -- a counter that is drained ------------------------------------------------------------------------------------


def counts(redis: Any) -> None:
    redis.incr("clicks")


def drains(redis: Any) -> None:
    redis.incrby("total", int(redis.getdel("clicks") or 0))


def drains_in_two(redis: Any) -> None:
    clicks = redis.get("clicks")
    redis.delete("clicks")
    redis.incrby("total", int(clicks or 0))


def drained(drainer: Client) -> Any:
    @scenario(clients=[counts, counts, drainer])
    def nothing_is_lost(redis: Any) -> None:
        kept = int(redis.get("clicks") or 0) + int(redis.get("total") or 0)
        assert kept == 2, f"{kept} of 2 clicks are left"

    return nothing_is_lost


pair("drained counter", "finally", drained(drains), drained(drains_in_two))


# -- a list that is replaced --------------------------------------------------------------------------------------


def has_rows(redis: Any) -> bool:
    return bool(redis.llen("rows") == 2)


def rows(redis: Any) -> None:
    redis.rpush("rows", "a", "b")


def replaces(redis: Any, at: Any) -> None:
    at.always(has_rows)
    fresh = f"rows:{at.client}"
    redis.rpush(fresh, "c")
    redis.rpush(fresh, "d")
    redis.rename(fresh, "rows")


def replaces_in_place(redis: Any, at: Any) -> None:
    at.always(has_rows)
    redis.pipeline(transaction=False).delete("rows").rpush("rows", "c", "d").execute()


pair(
    "replaced list", "always",
    scenario(clients=2, setup=rows)(replaces), scenario(clients=2, setup=rows)(replaces_in_place),
)  # fmt: skip


# -- the last of a group goes on ----------------------------------------------------------------------------------


def last_right(redis: Any, at: Any) -> None:
    if redis.incr("arrived") == 2:
        at.once("callback")


def last_flawed(redis: Any, at: Any) -> None:
    redis.incr("arrived")
    if int(redis.get("arrived")) == 2:
        at.once("callback")


pair("barrier", "at-most-once", scenario(clients=2)(last_right), scenario(clients=2)(last_flawed))


# -- a lease is given back by the one who holds it ----------------------------------------------------------------


def leaving(release: Callable[[Any, Any, bytes], Any]) -> Any:
    """The holder of a short lease does nothing with it; those who hold it for long must be alone."""

    def short(redis: Any, at: Any) -> None:
        if redis.set("lock", b"short", nx=True, px=1_000):
            release(redis, at, b"short")

    def long(redis: Any, at: Any) -> None:
        at.sleep(1.5 if at.client == 1 else 2.2)
        if redis.set("lock", str(at.client), nx=True):
            with at("critical"):
                at.sleep(1)

    return scenario(clients=[short, long, long])(lambda redis: None)


def release_by_script(redis: Any, at: Any, token: bytes) -> None:
    at.sleep(2)
    redis.eval("if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end", 1, "lock", token)


def release_after_a_look(redis: Any, at: Any, token: bytes) -> None:
    if redis.get("lock") == token:
        at.sleep(2)  # on its way
        redis.delete("lock")


pair("release", "at-most-1", leaving(release_by_script), leaving(release_after_a_look))


# -----------------------------------------------------------------------------------------------------------------


COSTLY = ("semaphore", "limiter that dies", "leased jobs")


def as_case(each: Pair) -> Any:
    marks = [pytest.mark.exhaustive] if each.name in COSTLY else []
    return pytest.param(each, id=each.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("each", [as_case(each) for each in PAIRS])
def test_what_is_right_holds_and_its_neighbour_is_violated(each: Pair) -> None:
    verdict = race(each.right, trouble=each.trouble)
    assert (str(verdict.outcome), verdict.law) == ("holds", ""), verdict.what
    assert verdict.how_far.startswith("all ")
    found = race(each.flawed, trouble=each.trouble)
    assert (str(found.outcome), found.law) == ("violated", each.law), (found.what, found.how_far)
    assert found.steps
