"""Exports of traces, each form carried out: pytest file and shell script on a real server, SVG parsed and drawn,
Mermaid and states read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orderlab.model.contracts.base import AnyTrace
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import kind_of, trace_from_json
from orderlab.properties.export.export import write_plan
from orderlab.properties.export.on_server import LeftOut, Plan, StoreCall, plan_of
from orderlab.properties.export.redis_cli import printed, quoted
from orderlab.properties.export.sequence import mermaid, svg
from orderlab.properties.export.states import read, states
from orderlab.properties.export.transcript import Move, Transcript, transcript_of_behaviour
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.replies import ErrorReply, Status
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

ROOT = Path(__file__).parents[3]
HOSTILE = "a;b#c\"d'e\n%%end`touch /tmp/orderlab-hostile`$(id)\\\x00\xff\x1b[31m</svg><script>--> end"


def session(store: str, *steps: dict[str, Any], law: str = "", **more: Any) -> dict[str, Any]:
    """The JSON of a trace on a session store."""
    told = {
        "schema": 1,
        "store": f"lua/{store}",
        "law": law,
        "seed": 0,
        "modulus": 65535,
        "default_expiry_ms": 20_000,
        "clients": ["client-one"],
    }
    return {**told, **more, "steps": list(steps)}


def save(*payloads: str, interval_ms: Any = None, label: int = 1, **more: Any) -> dict[str, Any]:
    messages = [{"label": label + at, "payload": one, "interval_ms": interval_ms} for at, one in enumerate(payloads)]
    return {"do": "save", "messages": messages, **more}


def own(store: str, contract: str, *steps: dict[str, Any], law: str = "") -> dict[str, Any]:
    """The JSON of a trace on a store with a contract of its owner's."""
    return {
        "schema": 1,
        "contract": contract,
        "store": f"lua/{store}",
        "law": law,
        "seed": 0,
        "clients": 3,
        "skews_ms": [],
        "steps": list(steps),
    }


def begin(client: int, operation: str, trouble: Any = None, **fields: Any) -> dict[str, Any]:
    told = {"step": "begin", "client": client, "operation": operation, "fields": fields}
    return told | ({"trouble": trouble} if trouble else {})


def post(client: int, *names: str) -> dict[str, Any]:
    return begin(client, "post", posts=[[name, f"p{name}"] for name in names], ttl_ms=900_000)


def resume(client: int) -> dict[str, Any]:
    return {"step": "resume", "client": client}


def trouble(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at": 0, "key": "", "found": "", **more}


TRACES: dict[str, dict[str, Any]] = {
    "refused": session("specimens/published", save("m1", "m2", interval_ms=0), law="all-or-nothing"),
    "time": session("specimens/published", save("m1", interval_ms=2000), {"do": "wait", "ms": 1000}, law="expiry"),
    "long time": session(
        "specimens/published", save("m1", interval_ms=20_000), {"do": "wait", "ms": 15_000}, {"do": "fetch"}
    ),
    "retry": session("specimens/published", save("m1"), {"do": "repeat"}, law="all-or-nothing"),
    "hostile": session(
        "session", save(HOSTILE, "m2"), {"do": "fetch"}, {"do": "acknowledge", "label": 1}, clients=["}x;#\n\x00'\""]
    ),
    "out of memory": session(
        "session", save("m1"), save("m2", label=2, fault={"kind": "out-of-memory"}), {"do": "fetch"}
    ),
    "read-only": session("session", save("m1", fault={"kind": "read-only"}), {"do": "fetch"}),
    "too few replicas": session(
        "specimens/published", save("m1", fault={"kind": "too-few-replicas"}), save("m2", label=2)
    ),
    "wrong type": session(
        "specimens/published",
        save("m1", "m2", fault={"kind": "wrong-type", "key": "{client-one}_messages", "found": "list"}),
        save("m3", label=3),
    ),
    "slot moves": session(
        "specimens/published", save("m1"), save("m2", "m3", label=2, fault={"kind": "slot-migrates"}), {"do": "fetch"}
    ),
    "many": session("session", save("m1"), {"do": "pass", "count": 3000}, {"do": "fetch"}),
    "pending": session("specimens/pending-as-published", save("m1", "m2"), {"do": "fetch"}),
    "lock": own(
        "specimens/lock-token-expires",
        "Lease",
        begin(0, "acquire", ttl_ms=900),
        {"step": "wait", "ms": 901},
        begin(0, "acquire", ttl_ms=900),
        law="fencing",
    ),
    "reply lost": own(
        "lock", "Lease", begin(0, "acquire", trouble("reply-lost"), ttl_ms=9000), begin(1, "acquire", ttl_ms=9000)
    ),
    "crash": own(
        "lock", "Lease", begin(0, "acquire", trouble("crashed", at=1), ttl_ms=9000), begin(1, "acquire", ttl_ms=9000)
    ),
    "transaction": own(
        "specimens/feed-serial-unwatched",
        "FeedStore",
        post(0, "z0", "y0"),
        post(1, "z1", "y1"),
        resume(1),
        resume(0),
        begin(0, "list", marker="", count=2),
        begin(0, "list", marker="1", count=2),
        law="cursor-safe",
    ),
    "watched": own(
        "feed_watched", "FeedStore", post(0, "z0"), resume(0), post(1, "z1"), *[resume(1)] * 2, *[resume(0)] * 4
    ),
    "window": own("limiter", "SlidingWindow", *[begin(0, "hit", limit=2, window_ms=1000)] * 3),
}
KEEPS_CONNECTIONS = ("transaction", "watched")
BROKEN = {
    "transaction": "cursor-safe",
    "refused": "all-or-nothing",
    "time": "expiry",
    "retry": "all-or-nothing",
    "lock": "fencing",
}


class Made(NamedTuple):
    """A trace on its store, and what a server is to be sent."""

    trace: AnyTrace
    binding: Binding
    plan: Plan


@cache
def made(name: str) -> Made:
    trace = trace_from_json(TRACES[name], name)
    binding = load_binding(ROOT / trace.store, trust_adapter=True)
    return Made(trace, binding, plan_of(kind_of(binding), trace, binding))


@pytest.fixture(scope="module", params=TRACES)
def example(request: pytest.FixtureRequest) -> tuple[str, Made]:
    return request.param, made(request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


def run_pytest(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:orderlab",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(file.parent),
        str(file),
    ]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)


@pytest.mark.server
def test_the_pytest_files_do_on_a_server_what_the_kernel_did(server: ServerProcess, tmp_path: Path) -> None:
    for name in TRACES:
        text = write_plan("pytest", made(name).plan)
        assert "orderlab" not in "".join(re.findall(r"^(?:import|from) .*", text, re.MULTILINE))
        (tmp_path / f"test_{name.replace(' ', '_').replace('-', '_')}.py").write_text(text)
    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
    # One process: its start is most of one file's time.
    told = run_pytest(tmp_path, REDIS_URL=f"redis://{server.host}:{server.port}/0")
    assert told.returncode == 0, told.stdout
    assert re.search(rf"^{len(TRACES)} passed", told.stdout, re.MULTILINE), told.stdout


@pytest.mark.server
def test_the_script_does_on_a_server_what_the_kernel_did(
    example: tuple[str, Made], server: ServerProcess, tmp_path: Path
) -> None:
    name, (_, _, plan) = example
    broken = {law for move in plan.transcript.moves for law, _ in move.broken}
    assert BROKEN.get(name) in {None, *broken}
    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
        if name in KEEPS_CONNECTIONS:
            with pytest.raises(InputError, match="have a connection each"):
                write_plan("redis-cli", plan)
            return
        script = tmp_path / "it.sh"
        script.write_text(write_plan("redis-cli", plan))
        said = subprocess.run(
            ["bash", str(script), "-h", server.host, "-p", str(server.port)],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert said.returncode == 0, said.stdout + said.stderr
        assert connection.demand(b"DBSIZE") == 0
        assert connection.demand(b"CONFIG", b"GET", b"maxmemory") == [b"maxmemory", b"0"]
        assert not Path("/tmp/orderlab-hostile").exists()


@pytest.mark.server
def test_the_files_fail_where_the_scripts_are_mended(server: ServerProcess, tmp_path: Path) -> None:
    """The nearest neighbour of the specimen keeps the token: the test of the violation, run on it, must not pass."""
    file = tmp_path / "test_lock.py"
    plan = made("lock").plan
    file.write_text(write_plan("pytest", plan))
    fixed = tmp_path / "lua"
    fixed.mkdir()
    for name in plan.transcript.scripts:
        shutil.copy(ROOT / "lua/lock" / name, fixed)
    source = (fixed / "acquire.lua").read_text()
    (fixed / "acquire.lua").write_text(re.sub(r"redis.call\('PEXPIRE', KEYS\[2\].*", "", source))
    told = run_pytest(file, SCRIPTS_FROM=str(fixed))
    assert told.returncode == 1, told.stdout
    script = tmp_path / "lock.sh"
    script.write_text(
        write_plan("redis-cli", plan)
        .replace("redis.call('PEXPIRE', KEYS[2]", "redis.call('EXISTS', KEYS[2]")
        .replace("redis.call('\"'\"'PEXPIRE'\"'\"', KEYS[2]", "redis.call('\"'\"'PERSIST'\"'\"', KEYS[2]")
    )
    said = subprocess.run(
        ["bash", str(script), "-h", server.host, "-p", str(server.port)], capture_output=True, text=True, timeout=600
    )
    assert said.returncode == 1, said.stdout


@pytest.mark.server
def test_a_regression_test_passes_once_the_scripts_are_mended(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "test_lock.py"
    plan = made("lock").plan
    file.write_text(write_plan("regression", plan))
    address = f"redis://{server.host}:{server.port}/0"
    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
    broken = run_pytest(file, REDIS_URL=address)
    assert broken.returncode == 1, broken.stdout
    assert "is violated" in broken.stdout
    fixed = tmp_path / "lua"
    fixed.mkdir()
    for name in plan.transcript.scripts:
        shutil.copy(ROOT / "lua/lock" / name, fixed)
    assert run_pytest(file, SCRIPTS_FROM=str(fixed), REDIS_URL=address).returncode == 0
    for name in plan.transcript.scripts:
        (fixed / name).write_text("return redis.error_reply('ERR not now')")
    told = run_pytest(file, SCRIPTS_FROM=str(fixed), REDIS_URL=address)
    assert told.returncode == 1, "scripts that do nothing are no repair"


def test_a_run_that_breaks_nothing_makes_no_regression_test() -> None:
    with pytest.raises(InputError, match="no step of this run breaks a law"):
        write_plan("regression", made("window").plan)


@pytest.mark.server
def test_a_server_that_holds_something_is_left_alone(server: ServerProcess, tmp_path: Path) -> None:
    plan = made("refused").plan
    (tmp_path / "it.sh").write_text(write_plan("redis-cli", plan))
    (tmp_path / "test_it.py").write_text(write_plan("pytest", plan))
    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
        connection.demand(b"SET", b"mine", b"1")
        said = subprocess.run(
            ["bash", str(tmp_path / "it.sh"), "-p", str(server.port)], capture_output=True, text=True, timeout=600
        )
        assert said.returncode == 2
        assert run_pytest(tmp_path / "test_it.py", REDIS_URL=f"redis://127.0.0.1:{server.port}").returncode == 1
        assert connection.demand(b"GET", b"mine") == b"1"
        connection.demand(b"FLUSHALL")


@pytest.mark.server
def test_the_pytest_file_starts_a_server_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(write_plan("pytest", made("retry").plan))
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:orderlab",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(file),
    ]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert told.returncode == 0, told.stdout


@pytest.mark.server
def test_redis_cli_reads_every_byte_and_prints_replies_as_we_do(server: ServerProcess) -> None:
    every = bytes(range(256))
    command = ["redis-cli", "--no-raw", "-h", server.host, "-p", str(server.port)]

    def said(line: str) -> str:
        return subprocess.run(command, input=line + "\n", capture_output=True, text=True, timeout=600).stdout.rstrip(
            "\n"
        )

    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
        said(f"SET k {quoted(every)}")
        assert connection.demand(b"GET", b"k") == every
        replies = {
            "return {1,{2,{'a','b',{}},3},false,'x'}": [1, [2, [b"a", b"b", []], 3], None, b"x"],
            "local t = {} for i = 1, 11 do t[i] = {i, {i}} end return t": [[i, [i]] for i in range(1, 12)],
            "return redis.status_reply('FINE')": Status(b"FINE"),
            "return {}": [],
            "return 'a\\000\\255\"\\\\\\n'": b'a\x00\xff"\\\n',
        }
        for source, reply in replies.items():
            assert said(f"EVAL {quoted(source.encode())} 0") == printed(reply), source
        assert printed(ErrorReply(b"ERR no")) == "(error)"
        connection.demand(b"FLUSHALL")


def test_what_no_command_brings_about_is_told_and_not_sent() -> None:
    plan = made("crash").plan
    assert any(isinstance(act, LeftOut) for step in plan.steps for act in step.acts)
    assert any("crashed" in note and "not sent" in note for note in plan.notes)
    for form in ("pytest", "redis-cli"):
        assert "# Note: step 1: crashed" in write_plan(form, plan)
    assert any("put in place" in note for note in made("many").plan.notes)
    assert any("deadlines" in note for note in made("long time").plan.notes)
    assert any(
        "out-of-memory is brought about by CONFIG SET maxmemory 1" in note for note in made("out of memory").plan.notes
    )


@pytest.mark.parametrize(("rounds", "is_told"), [(600, True), (400, False)])
def test_a_trace_of_many_calls_is_whole_and_says_that_it_takes_time(rounds: int, is_told: bool) -> None:
    steps = [
        one
        for token in range(1, rounds + 1)
        for one in (begin(0, "acquire", ttl_ms=900), begin(0, "release", token=token))
    ]
    trace = trace_from_json(own("lock", "Lease", *steps), "many calls")
    binding = load_binding(ROOT / trace.store, trust_adapter=True)
    plan = plan_of(kind_of(binding), trace, binding)
    assert len(plan.steps) == 2 * rounds + 1
    assert any("what shows too late is told as late" in note for note in plan.notes) is is_told


@pytest.mark.parametrize(("wait_ms", "is_late"), [(1000, True), (500, False)])
def test_what_hinges_on_a_millisecond_is_put_down_to_the_time_that_a_server_takes(wait_ms: int, is_late: bool) -> None:
    """At the very moment of its deadline a lease still lives; after the next call it may not."""
    steps = [begin(0, "acquire", ttl_ms=1000), {"step": "wait", "ms": wait_ms}, begin(0, "acquire", ttl_ms=1000)]
    trace = trace_from_json(own("lock", "Lease", *steps), "on the edge")
    binding = load_binding(ROOT / trace.store, trust_adapter=True)
    plan = plan_of(kind_of(binding), trace, binding)
    assert (plan.late_ms == 0, any("hinge" in note for note in plan.notes)) == (is_late, is_late)
    assert f"LATE_MS = {plan.late_ms}" in write_plan("pytest", plan)
    assert f"late_max={plan.late_ms}" in write_plan("redis-cli", plan)


def test_the_calls_of_the_judge_are_not_the_store_s() -> None:
    """One save, listed after each step by the judge, is one call."""
    plan = made("retry").plan
    assert [sum(isinstance(act, StoreCall) for act in step.acts) for step in plan.steps] == [0, 1, 1]


STREAM = """from orderlab.contract import Call, Contract


class Log(Contract):
    operations = {"put": ()}
    clients = 1

    def initial(self):
        return 0

    def outcomes(self, state, call, now_ms):
        return [(state + 1, state + 1)]

    def elapse(self, state, now_ms):
        return state

    def deadlines_ms(self, state):
        return ()

    def calls(self, client, seen):
        return [Call.of("put")]
"""


@pytest.mark.server
def test_streams_have_entries_under_moments(server: ServerProcess, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "log.py").write_text(STREAM)
    (store / "put.lua").write_text(
        "redis.call('XADD', KEYS[1], '*', 'n', ARGV[1])\nreturn redis.call('XLEN', KEYS[1])\n"
    )
    toml = (
        'specification = "log.py:Log"\n[keys]\nlog = "{l}:log"\n[operations.put]\nscript = "put.lua"\nkeys = '
        '["log"]\nargs = ["<now_ms>"]\n'
    )
    (store / "store.toml").write_text(toml)
    told = own("x", "Log", begin(0, "put"), {"step": "wait", "ms": 20}, begin(0, "put"))
    binding = load_binding(store, trust_adapter=True)
    plan = plan_of(kind_of(binding), trace_from_json(told, "x"), binding)
    (held,) = plan.steps[-1].keys.values()
    assert held.kind == "stream"
    assert len(held.value) == 2
    (tmp_path / "test_it.py").write_text(write_plan("pytest", plan))
    (tmp_path / "it.sh").write_text(write_plan("redis-cli", plan))
    with closing(Connection(server.host, server.port)) as connection:
        connection.demand(b"FLUSHALL")
    ran = run_pytest(tmp_path / "test_it.py", REDIS_URL=f"redis://{server.host}:{server.port}")
    assert ran.returncode == 0, ran.stdout
    said = subprocess.run(
        ["bash", str(tmp_path / "it.sh"), "-p", str(server.port)], capture_output=True, text=True, timeout=600
    )
    assert said.returncode == 0, said.stdout


# -- what is drawn
# -----------------------------------------------------------------------------------------------------------


def test_svg_is_whole_and_says_everything_as_text(example: tuple[str, Made]) -> None:
    name, (_, _, plan) = example
    text = svg(plan.transcript)
    root = ElementTree.fromstring(text)
    assert not re.search(r"(href|src|url)\s*=|<script|<image|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    words = " ".join("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))
    assert plan.transcript.moves[0].action[:20].split("\n")[0] in words
    for law in (BROKEN.get(name, ""),):
        assert not law or f"✗ {law} is violated" in words
    width = float(root.attrib["width"])
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        per_character = 8.2 if one.get("class") == "title" else 7.3
        start = float(one.attrib["x"]) - (60 if one.get("class") == "lane" else 0)
        assert start + len("".join(one.itertext())) * per_character <= width + 120, "".join(one.itertext())


def test_svg_is_drawn_by_a_browser(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        warnings.warn("no chromium on PATH: that the SVG is drawn was NOT tried", stacklevel=1)
        pytest.skip("NOT TRIED: no chromium on PATH draws the SVG")
    (tmp_path / "it.svg").write_text(svg(made("hostile").plan.transcript))
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--screenshot={tmp_path / 'it.png'}",
    ]
    subprocess.run(
        [*command, "--window-size=1200,500", f"file://{tmp_path / 'it.svg'}"], capture_output=True, timeout=600
    )
    picture = (tmp_path / "it.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000, "the picture is as good as empty"


MESSAGE = re.compile(r"(p\d+)(->>|-->>)(p\d+): ((?:[A-Za-z0-9 .,()=+\-_/']|#\d+;)+)$")
NOTE = re.compile(r"Note over (p\d+)(?:,(p\d+))?: ((?:[A-Za-z0-9 .,()=+\-_/']|#\d+;|<br/>)+)$")
PARTICIPANT = re.compile(r"(?:participant|actor) (p\d+) as ((?:[A-Za-z0-9 .,()=+\-_/']|#\d+;)+)$")


def read_mermaid(text: str) -> list[str]:
    """What the messages of a sequence diagram say, by the grammar of Mermaid as far as it is used."""
    lines = text.split("\n")
    assert lines.pop() == ""
    assert lines[0] == "sequenceDiagram"
    known, said, depth = set(), [], 0
    for line in map(str.strip, lines[1:]):
        if line == "autonumber" or line.startswith("accTitle: "):
            continue
        if line.startswith("loop "):
            depth += 1
        elif line == "end":
            depth -= 1
        elif found := PARTICIPANT.match(line):
            known.add(found[1])
        elif found := MESSAGE.match(line):
            assert {found[1], found[3]} <= known
            said.append(re.sub(r"#(\d+);", lambda one: chr(int(one[1])), found[4]))
        else:
            found = NOTE.match(line)
            assert found, line
            assert {found[1], found[2] or found[1]} <= known
        assert not re.search(r"\bend\b", line.partition(": ")[2]), line
    assert depth == 0
    return said


def test_mermaid_is_a_sequence_diagram_whatever_the_payloads_are(example: tuple[str, Made]) -> None:
    _, (_, _, plan) = example
    said = read_mermaid(mermaid(plan.transcript))
    actions = [move.action for move in plan.transcript.moves]
    assert [one for one in said if one in actions][:1] == actions[:1] or not actions[0].isprintable()


def test_texts_that_mean_something_to_mermaid_come_through_as_text() -> None:
    move = Move(
        "client 1", HOSTILE, answer="end", call_count=1, state={HOSTILE: HOSTILE}, broken=(("no-loss", "a:b;end"),)
    )
    told = Transcript(HOSTILE, "no-loss", Move("", ""), (move,), "store")
    said = read_mermaid(mermaid(told))
    assert said[0].startswith("a;b#c\"d'e\\n%%end`touch")
    assert said[1] == "end"
    ElementTree.fromstring(svg(told))
    found = read(states(told))
    assert found[1].variables == {HOSTILE: HOSTILE}


def test_a_listing_of_states_reads_back_as_the_states(example: tuple[str, Made]) -> None:
    _, (_, _, plan) = example
    told = plan.transcript
    found = read(states(told))
    for state, move in zip(found, (told.start, *told.moves), strict=True):
        assert state.variables == dict(move.state)
    for before, state in pairwise(found):
        for name in {*before.variables, *state.variables}:
            was, now = before.variables.get(name), state.variables.get(name)
            mark = None if was == now else "new" if was is None else "gone" if now is None else "changed"
            assert state.marks.get(name) == mark


BEHAVIOUR = {
    "initial": {"pc": {"1": "idle", "2": "idle"}, "queue": [], "turn": 1},
    "steps": [
        {
            "actor": "1",
            "action": "enter",
            "arguments": {"at": 3},
            "changes": [{"place": "pc.1", "before": "idle", "after": "critical"}],
        },
        {
            "actor": "2",
            "action": "push",
            "arguments": {},
            "changes": [{"place": "queue", "before": [], "after": [7, 8]}],
        },
        {
            "actor": "2",
            "action": "pop",
            "arguments": {},
            "changes": [{"place": "queue", "before": [7, 8], "after": [8]}],
        },
    ],
    "loop_start": 1,
    "statement": "",
    "why": "it never ends",
}


def test_a_lasso_of_a_specification_is_told_with_its_loop() -> None:
    told = transcript_of_behaviour("progress", "mutex", BEHAVIOUR)
    assert [dict(move.state) for move in told.moves] == [
        {"pc.1": "critical", "pc.2": "idle", "queue": "[]", "turn": "1"},
        {"pc.1": "critical", "pc.2": "idle", "queue[0]": "7", "queue[1]": "8", "turn": "1"},
        {"pc.1": "critical", "pc.2": "idle", "queue[0]": "8", "turn": "1"},
    ]
    text = states(told)
    assert "State 2: <1: enter(at=3)>" in text
    assert '/\\ pc.1 = "critical"  \\* changed; it was "idle"' in text
    assert text.rstrip().endswith("Back to state 2")
    read_mermaid(mermaid(told))
    ElementTree.fromstring(svg(told))
