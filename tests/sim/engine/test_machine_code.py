"""The engine room in machine code and in Python: the same programs of calls, processes, connections, stations and packs
come out the same, to the last bit."""

import importlib.util
import random
import sys
from types import SimpleNamespace

import pytest
from simpy.core import EmptySchedule

from orderlab.sim.engine import clock, network, packs
from orderlab.sim.native import choose, install

PROGRAMS = 150


@pytest.fixture(name="plain")
def _plain(monkeypatch):
    """The three modules, and what they choose from, as they are without a compiler."""
    if choose.engine is None:
        pytest.skip("there is no machine code; run python -m orderlab.sim.native.build")
    monkeypatch.setattr(install, "extension", lambda text: None)
    loaded = {}
    for module in (choose, clock, packs, network):
        spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
        made = loaded[module.__name__.rpartition(".")[2]] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, made)
        spec.loader.exec_module(made)
    assert loaded["choose"].engine is None
    return SimpleNamespace(**loaded)


MACHINE_CODE = SimpleNamespace(clock=clock, packs=packs, network=network)


class Program:
    """Draws what it does from ``seed``, and notes what happens when."""

    def __init__(self, engine, seed):
        self.draw = random.Random(seed)
        self.call_at = engine.clock.call_at
        self.env = engine.clock.Clock()
        self.log = []
        self.left = 300
        rate = self.draw.choice((1.0, 1250.0, float("inf")))
        self.connections = [
            engine.network.Connection(self.env, lambda: self.draw.choice((0, 1, 40, 40.5, 700)), rate) for _ in range(3)
        ]
        self.host = engine.clock.Station(self.draw.randint(1, 5))
        self.stations = [self.host, engine.clock.Tenant(self.host), engine.clock.Station(self.draw.choice((1, 2, 7)))]
        self.waits = engine.clock.Waits()
        self.last_us = 0.0

    def note(self, *what):
        self.log.append((type(self.env.now).__name__, self.env.now, *what))

    def act(self):
        """Do a few things now."""
        for _ in range(self.draw.choice((0, 1, 1, 2, 3))):
            if self.left:
                self.left -= 1
                self.draw.choice(
                    (self.call, self.call, self.send, self.send, self.serve, self.sleep, self.disturb, self.wait)
                )(self.left)

    def call(self, number):
        at = self.env.now + self.draw.choice((-5, 0, 0.2, 1, 7, 7.5, 300))
        self.call_at(self.env, at, lambda: (self.note("called", number), self.act()))

    def send(self, number):
        connection = self.draw.choice(self.connections)
        departs = self.draw.choice((None, None, self.env.now + 3.25))
        held = self.draw.choice((None, lambda: self.note("held", number)))
        connection.send(
            self.draw.choice((0, 1, 999)), lambda: (self.note("arrived", number), self.act()), departs, on_held=held
        )

    def serve(self, number):
        station = self.draw.choice(self.stations)
        if self.draw.random() < 0.1:
            station.stall(self.env.now + self.draw.choice((0, 33.3)))
        done = station.serve_bursts(
            self.env.now, self.draw.randint(0, 30), self.draw.choice((1, 4, 100)), self.draw.choice((0.1, 1 / 3, 12))
        )
        self.note(
            "served",
            number,
            done,
            station.serve(self.env.now, 0.7),
            station.jobs,
            station.busy_us,
            station.waits.until(self.env.now),
        )

    def sleep(self, number):
        def process():
            got = yield self.env.timeout(self.draw.choice((0, 1, 5)), number)
            self.note("slept", got)
            self.act()

        self.env.process(process())

    def disturb(self, number):
        connection = self.draw.choice(self.connections)
        what = self.draw.choice(("cut", "heal", "heal", "reset"))
        getattr(connection, what)()
        self.note(what, number, connection.is_cut)

    def wait(self, number):
        self.last_us = max(self.last_us, self.env.now)
        self.waits.add(self.last_us, self.last_us + self.draw.choice((0.5, 10, 900)), self.draw.choice((1, 64)))
        self.note("waits", number, self.waits.until(self.env.now), self.waits.until(self.env.now + 20.5))

    def run(self):
        self.act(), self.call(-1), self.send(-2)
        for until in (10, 11.5, 400, 5_000):
            self.env.run(until=until)
            self.note("ran", self.env.peek())
        for _ in range(20):
            try:
                self.env.step()
            except EmptySchedule:
                self.note("empty")
                break
        self.env.run()
        self.note("over", self.env.peek(), self.env.scheduled)
        return self.log


def test_both_do_the_same(plain):
    happened = 0
    for seed in range(PROGRAMS):
        in_python, in_machine_code = Program(plain, seed).run(), Program(MACHINE_CODE, seed).run()
        assert repr(in_machine_code) == repr(in_python), seed  # 12 and 12.0 are the same number and not the same text
        happened += len(in_python)
    assert happened > 20 * PROGRAMS


def far_away(engine):
    """What happens when, of calls in all times."""
    env, seen = engine.clock.Clock(), []
    for at in (1e300, 2.0**60, 1e17, -1e300, -5.5, 4.2):
        engine.clock.call_at(env, at, lambda at=at: seen.append((at, env.now)))
    env.run(until=9)
    seen.append(env.peek())
    env.run()
    return seen


def test_both_call_long_ago_and_in_the_far_future_alike(plain):
    in_python = far_away(plain)
    assert in_python[:3] == [(-1e300, 0), (-5.5, 0), (4.2, 5)]
    assert repr(far_away(MACHINE_CODE)) == repr(in_python)


def odd_sends(engine):
    """What is left of a connection's state where a delay cannot be drawn, or an instant is no number."""
    env = engine.clock.Clock()
    for draw, departs in ((lambda: 1 / 0, None), (lambda: 1, float("nan")), (lambda: float("inf"), 3.5)):
        connection = engine.network.Connection(env, draw, 1.0)
        yield (
            told(lambda each=connection, at=departs: each.send(10, int, at)),
            connection._sent_us,
            connection._arrived_us,
        )


def test_both_leave_the_same_behind_where_a_connection_cannot_send(plain):
    assert repr(list(odd_sends(MACHINE_CODE))) == repr(list(odd_sends(plain)))


def test_both_group_alike(plain):
    draw = random.Random(3)
    for _ in range(300):
        keys = [draw.randrange(draw.choice((1, 5, 40))) for _ in range(draw.randrange(50))]
        values = draw.choice((range(len(keys)), [draw.random() for _ in keys]))
        one, other = packs.grouped(values, keys), plain.packs.grouped(values, keys)
        assert list(one.items()) == list(other.items())


def test_both_spread_alike(plain):
    draw = random.Random(4)
    for _ in range(300):
        size = draw.randint(0, 40)
        values, places, begin = (
            list(range(100, 100 + size)),
            draw.sample(range(size), draw.randint(0, size)),
            draw.randint(0, size),
        )
        outcomes = []
        for engine in (MACHINE_CODE, plain):
            target = [None] * size
            try:
                outcomes.append((engine.packs.spread(values, begin, target, places), target))
            except IndexError:
                outcomes.append(IndexError)
        assert outcomes[0] == outcomes[1]


class Unordered:
    """No dictionary takes it for a key."""

    __hash__ = None


def refusals(engine):
    """What neither takes."""
    env, connection, station = (
        engine.clock.Clock(),
        engine.network.Connection(engine.clock.Clock(), lambda: 1),
        engine.clock.Station(1),
    )

    def failing():
        raise LookupError("in a call")

    def process():
        yield env.timeout(1)
        raise LookupError("in a process")

    yield lambda: engine.clock.call_at(env, float("inf"), failing)
    yield lambda: engine.clock.call_at(env, float("nan"), failing)
    yield lambda: engine.clock.call_at(env, "soon", failing)
    yield lambda: env.run(until=-1)
    yield lambda: env.run(until=float("nan"))
    yield lambda: (engine.clock.call_at(env, 3, failing), env.run(until=9))
    yield lambda: (env.process(process()), env.run(until=99))
    yield lambda: engine.clock.Station(0)
    yield lambda: connection.send("much", failing)
    yield lambda: connection.send(1)
    yield lambda: connection.send(1, failing, there=2)
    yield lambda: engine.network.Connection(env, lambda: 1, 0)
    yield lambda: engine.network.Sender.__new__(engine.network.Sender).send(1, failing)
    yield lambda: station.serve_bursts(0, 1, 1, None)
    yield lambda: station.serve_bursts(0, 0, 0, 1)
    yield lambda: engine.packs.grouped([1, 2], [1])
    yield lambda: engine.packs.grouped([1], [1, 2])
    yield lambda: engine.packs.grouped([1], [Unordered()])
    yield lambda: engine.packs.spread([1], 0, [None], [1])
    yield lambda: engine.packs.spread([1], -1, [None], [0])


def told(what):
    try:
        what()
    except Exception as error:
        return type(error)
    return None


def test_both_refuse_alike(plain):
    in_python = [told(each) for each in refusals(plain)]
    assert None not in in_python
    assert [told(each) for each in refusals(MACHINE_CODE)] == in_python


def test_a_call_that_fails_leaves_the_rest_of_the_agenda():
    env, seen = clock.Clock(), []

    def fail():
        raise LookupError

    clock.call_at(env, 5, fail)
    clock.call_at(env, 5, lambda: seen.append(env.now))
    with pytest.raises(LookupError):
        env.run(until=10)
    env.run(until=10)
    assert seen == [5]
