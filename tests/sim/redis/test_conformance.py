"""The kernel against a real server, in bulk: generated sequences, and whether they would find a fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orderlab.sim.live import ServerProcess, find_server
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.registry import COMMANDS, SPELLINGS, load_commands
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.comparison import FOLLOWED, agree, bearable, explanation, same_but_for_digits
from tests.laboratory.conformance.judge import Judge, Tally, render, shrink
from tests.laboratory.conformance.run import gaps, run
from tests.laboratory.conformance.sequences import CommandSequence, Generator, SeededDraw, in_transaction
from tests.laboratory.conformance.subjects import KernelSubject

pytestmark = pytest.mark.server
COMMANDS_COMPARED = 110_000


@pytest.fixture(scope="module", autouse=True)
def judge_of_the_right_product() -> None:
    """Any Redis 7 judges; ``versions`` says what it may do otherwise. Nobody else can, and that is no pass."""
    found = find_server()
    if found.product != "redis" or found.version[0] != 7:
        pytest.fail(
            f"not compared: the kernel follows Redis 7.0, and {found} is no judge of it; install redis-server 7"
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Connection]:
    with ServerProcess() as process:
        yield Connection(process.host, process.port)


@pytest.fixture
def judge(server: Connection) -> Judge:
    return Judge(server, KernelSubject())


def test_the_kernel_agrees_with_the_server() -> None:
    report = run("kernel", COMMANDS_COMPARED, seed=2026)
    assert not report.disagreements, "\n\n".join(map(render, report.examples.values()))
    assert report.compared >= COMMANDS_COMPARED
    if find_server().version[:2] == FOLLOWED:
        assert not report.tally.by_version
        assert not list(gaps(report.tally, 30))


class HypothesisDraw:
    """Choices that Hypothesis makes, and shrinks."""

    def __init__(self, source: random.Random) -> None:
        self.serial = 0
        self.random = source.random
        self._source = source

    def randrange(self, stop: int) -> int:
        return self._source.randrange(stop)


@given(st.randoms(use_true_random=False))
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_hypothesis_finds_no_sequence_that_tells_them_apart(judge: Judge, source: random.Random) -> None:
    load_commands()
    found = judge.compare(Generator(COMMANDS).sequence(HypothesisDraw(source), length=12))
    assert found is None, render(found)


# -- would a fault be found? ---------------------------------------------------------------------------------

Fault = Callable[[Shard, Sequence[bytes], Reply], Reply]


def _wrong_reply(shard: Shard, argv: Sequence[bytes], reply: Reply) -> Reply:
    return reply + 1


def _keeps_deadline(shard: Shard, argv: Sequence[bytes], reply: Reply) -> Reply:
    shard.set_deadline(argv[1], 4_000_000_000_000)
    return reply


def _bulk_for_status(shard: Shard, argv: Sequence[bytes], reply: Reply) -> Reply:
    return bytes(reply)


def _loses_a_member(shard: Shard, argv: Sequence[bytes], reply: Reply) -> Reply:
    value = shard.data[argv[1]]
    if len(value) > 1:
        shard.data[argv[1]].pop_right(1, None)  # type: ignore[union-attr]
    return reply


@pytest.mark.parametrize(
    ("name", "fault"),
    [(b"strlen", _wrong_reply), (b"append", _keeps_deadline), (b"set", _bulk_for_status), (b"rpush", _loses_a_member)],
    ids=["reply", "deadline", "type of reply", "value"],
)
def test_a_broken_command_is_caught_and_shrunk(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, name: bytes, fault: Fault
) -> None:
    load_commands()
    sound = COMMANDS[name]

    def broken(shard: Shard, argv: Sequence[bytes]) -> Reply:
        return fault(shard, argv, sound.handler(shard, argv))

    faulty = replace(sound, handler=broken)
    for spelling in (name, name.upper()):
        monkeypatch.setitem(COMMANDS, spelling, faulty)
        monkeypatch.setitem(SPELLINGS, spelling, faulty)
    generator, draw = Generator(COMMANDS), SeededDraw(6)
    sequences = [generator.sequence(draw) for _ in range(200)]
    found = next(found for found in judge.compare_all(sequences) if found is not None)
    shortest = shrink(found, judge.compare)
    assert len(shortest.sequence.steps) <= 2, render(shortest)
    assert name.upper().decode() in render(shortest).upper()


def test_a_sequence_on_which_both_agree_is_not_reported(judge: Judge) -> None:
    steps = ((b"SET", b"s1", b"x", b"PX", b"5000000"), 4_000_000, (b"GET", b"s1"), 2_000_000, (b"GET", b"s1"))
    assert judge.compare(CommandSequence(steps)) is None
    assert judge.tally.commands == {b"set": 1, b"get": 2}


def test_time_passes_on_both_sides(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelSubject, "advance", lambda self, ms: None)
    steps = ((b"SET", b"s1", b"x", b"PX", b"5000000"), 6_000_000, (b"GET", b"s1"))
    found = judge.compare(CommandSequence(steps))
    assert found is not None
    assert (found.command, found.what) == ("get", "kernel b'x', server None")


def test_no_key_lapses_inside_a_script_however_long_it_takes(server: Connection) -> None:
    """Both take the time at which the script began: a key that outlives its deadline there is gone right after."""
    source = b"""
        redis.call('SET', 'brief', 'x', 'PX', 1)
        for _ = 1, 20000 do redis.call('TIME') end
        return redis.call('GET', 'brief')"""
    kernel = KernelBackend()
    assert server.execute(b"EVAL", source, b"0") == kernel.eval(source) == b"x"
    kernel.advance(2)
    assert server.execute(b"GET", b"brief") == kernel.execute(b"GET", b"brief") == None  # noqa: E711


def test_a_command_that_never_came_up_is_a_gap() -> None:
    tally = Tally()
    tally.note((b"GET", b"a"), None)
    lines = list(gaps(tally, 1))
    assert "set: compared 0 times, less than 1" in lines
    assert not any(line.startswith("get:") for line in lines)
    assert "option WITHSCORES: never accepted" in lines


def test_the_same_seed_draws_the_same_sequences() -> None:
    load_commands()
    generator = Generator(COMMANDS)
    first, second = ([generator.sequence(draw) for _ in range(20)] for draw in (SeededDraw(3), SeededDraw(3)))
    assert first == second
    assert first != [generator.sequence(draw) for draw in [SeededDraw(4)] for _ in range(20)]


# -- servers of another version --------------------------------------------------------------------------------


def test_a_later_version_may_write_a_double_with_fewer_digits() -> None:
    steps = ((b"ZINCRBY", b"z", b"0.1", b"a"),)
    ours, theirs = b"0.10000000000000001", b"0.1"
    assert explanation((7, 2, 5), steps, 0, [ours, [ours]], [theirs, [theirs]]) is not None
    assert explanation((7, 0, 15), steps, 0, ours, theirs) is None
    assert explanation((7, 2, 5), steps, 0, ours, b"0.2") is None
    assert explanation((7, 2, 5), steps, 0, b"0.1", b"0.10000000000000001") is None, "the kernel loses digits"
    assert not same_but_for_digits([ours], [theirs, theirs])
    assert not same_but_for_digits(b"1", 1)


def test_what_a_script_runs_counts_as_part_of_the_step() -> None:
    steps = ((b"SCRIPT", b"LOAD", b"return redis.pcall('ZRANK', 'z', 'a', 'b')"), (b"EVALSHA", b"1" * 40, b"0"))
    assert explanation((7, 4, 1), steps, 1, ErrorReply(b"ERR a"), ErrorReply(b"ERR b")) is not None
    assert explanation((7, 4, 1), steps[1:], 0, ErrorReply(b"ERR a"), ErrorReply(b"ERR b")) is None


def test_a_version_that_dies_of_functions_is_not_asked() -> None:
    steps = ((b"FUNCTION", b"FLUSH"), 5, (b"fcall", b"f", b"0"), (b"GET", b"k"))
    assert bearable((7, 4, 1), steps) == (5, (b"GET", b"k"))
    assert bearable((7, 0, 15), steps) == steps


# -- what the server leaves open -------------------------------------------------------------------------------


def test_elements_of_equal_weight_come_in_any_order() -> None:
    argv = (b"SORT", b"z", b"ALPHA", b"BY", b"t*", b"GET", b"#", b"GET", b"s*")
    assert agree(argv, [b"1", b"x", b"2", None], [b"2", None, b"1", b"x"], True)
    assert not agree(argv, [b"1", b"x", b"2", None], [b"1", None, b"2", b"x"], True), "other rows"
    assert not agree((b"SORT", b"z", b"ALPHA"), [b"1", b"2"], [b"2", b"1"], True), "the elements are compared"


def test_time_does_not_pass_while_a_watch_is_in_force() -> None:
    watch, multi, exec_ = (b"WATCH", b"k"), (b"MULTI",), (b"EXEC",)
    assert in_transaction([watch])
    assert in_transaction([watch, exec_]), "EXEC without MULTI is an error and leaves the watch"
    assert in_transaction([watch, multi, (b"EXEC", b"k")])
    assert not in_transaction([watch, multi, exec_])
    assert not in_transaction([multi, (b"DISCARD",)])
