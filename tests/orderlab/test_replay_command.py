"""`orderlab replay`: step by step, from any step, of every kind of recording, and its exports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orderlab.application import make
from orderlab.commands import replay as command
from orderlab.model.errors import InputError
from orderlab.properties.export.transcript import Move
from tests.laboratory.live_cluster import ClusterProcess

LOCK = {
    "schema": 1,
    "contract": "Lease",
    "store": "lua/specimens/lock-token-expires",
    "law": "fencing",
    "seed": 3,
    "clients": 3,
    "skews_ms": [],
    "steps": [
        {"step": "begin", "client": 0, "operation": "acquire", "fields": {"ttl_ms": 1000}},
        {"step": "wait", "ms": 1001},
        {"step": "begin", "client": 0, "operation": "acquire", "fields": {"ttl_ms": 1000}},
    ],
}
RESIDUE = {
    "schema": 1,
    "store": "lua/specimens/fetch-removes",
    "law": "no-loss",
    "seed": 0,
    "modulus": 65535,
    "default_expiry_ms": 20_000,
    "clients": ["client-one"],
    "steps": [{"do": "settle"}],
}


def run(*words: object) -> tuple[int, str]:
    told = CliRunner().invoke(make(), ["replay", *map(str, words)], catch_exceptions=False)
    return told.exit_code, told.output


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "lock.json"
    file.write_text(json.dumps(LOCK))
    return file


def test_each_step_tells_what_it_changed(lock: Path) -> None:
    code, told = run(lock, "--trust-adapter", "--step")
    assert code == 1
    assert told.splitlines() == [
        "1. client 1: acquire(ttl_ms=1000)",
        "   replied 1",
        "   + {lock}:lease = string 1 until 1,000 ms",
        "   + {lock}:token = string 1 until 1,000 ms",
        "2. 1,001 ms pass",
        "   - {lock}:lease = string 1 until 1,000 ms",
        "   - {lock}:token = string 1 until 1,000 ms",
        "3. client 1: acquire(ttl_ms=1000)",
        "   replied 1",
        "   fencing is violated: acquire(ttl_ms=1000) replied 1; allowed: an integer above 1",
        "   + {lock}:lease = string 1 until 2,001 ms",
        "   + {lock}:token = string 1 until 2,001 ms",
        "on kernel 7.0.15: violated; seed: 3",
    ]


@pytest.mark.parametrize("backend", ["fakeredis", pytest.param("auto", marks=pytest.mark.server)])
def test_other_backends_go_step_by_step_as_well(lock: Path, backend: str) -> None:
    code, told = run(lock, "--trust-adapter", "--step", "--backend", backend)
    assert code == 1
    assert [line[:3] for line in told.splitlines() if line[:1].isdigit()] == ["1. ", "2. ", "3. "]
    assert told.count("   + {lock}:token = string 1") == 2
    assert "fencing is violated" in told


def test_from_a_step_on_the_steps_before_are_taken_and_not_told(lock: Path) -> None:
    whole = run(lock, "--trust-adapter", "--step")[1].splitlines()
    code, told = run(lock, "--trust-adapter", "--step", "--from", 3)
    assert code == 1
    assert told.splitlines() == whole[7:]
    for number in (4, 99):
        with pytest.raises(InputError, match=r"the trace has 3 steps"):
            run(lock, "--trust-adapter", "--step", "--from", number)
    with pytest.raises(InputError, match="--step"):
        run(lock, "--trust-adapter", "--from", 2)


def test_json_has_the_keys_after_each_step(lock: Path) -> None:
    _, told = run(lock, "--trust-adapter", "--step", "--json")
    steps = json.loads(told)["steps"]
    assert [sorted(one["keys"]) for one in steps] == [
        ["{lock}:lease", "{lock}:token"],
        [],
        ["{lock}:lease", "{lock}:token"],
    ]
    assert "keys" not in json.loads(run(lock, "--trust-adapter", "--json")[1])["steps"][0]


def walked(answers: list[str], taken: list[int], count: int = 4, first: int = 1) -> int:
    """How many steps were taken; ``taken`` gets each number as it is taken."""
    said = iter(answers)

    def moves() -> Any:
        for number in range(1, count + 1):
            taken.append(number)
            yield Move("client 1", f"step {number}")

    return len(command._walk(Move("", "start"), moves(), count, first, lambda prompt: next(said)))


def test_at_a_terminal_enter_goes_on_a_number_goes_there_and_q_ends(capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[int] = []
    assert walked(["", "1", "4", "x", "9", "2", "q"], taken) == 4
    assert taken == [1, 2, 3, 4], "going back takes nothing again"
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple("123456789"))]
    assert told == ["1. step 1", "2. step 2", "1. step 1", "4. step 4", "2. step 2"]
    taken.clear()
    assert walked(["q"], taken, first=3) == 3, "what comes after is not taken: a server stands still for a look"
    assert walked(["", "", "", ""], []) == 4, "Enter at the last step ends"


def test_what_only_the_keys_show_is_shown_by_a_replay(tmp_path: Path) -> None:
    file = tmp_path / "residue.json"
    file.write_text(json.dumps(RESIDUE))
    code, told = run(file)
    assert code == 1
    assert "no-loss is violated: a further message gone" in told


def test_a_specification_s_behaviour_and_a_history_s_events(tmp_path: Path) -> None:
    report, printed = tmp_path / "report.json", tmp_path / "printed.json"
    words = ["explore", "dining-philosophers", "--set", "philosophers=2", "--set", "one_left_handed=false"]
    told = CliRunner().invoke(make(), [*words, "--report", f"json={report}", "--json"], catch_exceptions=False)
    printed.write_text(told.output)
    for file, more in ((report, ["--finding", 1]), (printed, [])):
        code, told_again = run(
            file,
            *more,
            "--step",
            "--from",
            4,
            "--export",
            f"states={tmp_path / 's.txt'}",
            "--export",
            f"svg={tmp_path / 's.svg'}",
        )
        assert code == 1
        assert "no-deadlock is violated" in told_again
        assert "4. philosopher 1: take_first" in told_again
    assert (tmp_path / "s.txt").read_text().count("\nState ") == 5
    with pytest.raises(InputError, match="makes no calls; export svg, mermaid or states"):
        run(report, "--export", f"pytest={tmp_path / 'x.py'}")
    with pytest.raises(InputError, match="leave out --backend"):
        run(report, "--backend", "fakeredis")
    assert not (tmp_path / "x.py").exists()


def test_a_check_s_events(tmp_path: Path) -> None:
    event = {"event_id": 7, "time_us": 1_500_000, "kind": "deliver", "subscriber": "s1", "sequence": 2}
    file = tmp_path / "check.json"
    file.write_text(
        json.dumps(
            {
                "file": "h",
                "verdicts": [
                    {"law": "fifo", "outcome": "violated", "witness": {"why": "2 before 1", "events": [event]}}
                ],
            }
        )
    )
    code, told = run(file)
    assert code == 1
    assert told.splitlines()[:2] == [
        "1. deliver subscriber=s1 sequence=2 (event 7 at 1.500000 s)",
        "   fifo is violated: 2 before 1",
    ]
    with pytest.raises(InputError, match="no witness of causal"):
        run(file, "--law", "causal")


def test_exports_are_asked_for_as_reports_are(lock: Path, tmp_path: Path) -> None:
    wanted = {form: tmp_path / f"it.{form}" for form in ("pytest", "redis-cli", "svg", "mermaid", "states")}
    options = [part for form, file in wanted.items() for part in ("--export", f"{form}={file}")]
    assert run(lock, "--trust-adapter", *options)[0] == 1
    first = {form: file.read_bytes() for form, file in wanted.items()}
    assert run(lock, "--trust-adapter", *options)[0] == 1
    assert first == {form: file.read_bytes() for form, file in wanted.items()}, "the same trace gives the same bytes"
    for bad in ("pytest", "pdf=x.pdf", "svg=", f"svg={tmp_path}", f"svg={tmp_path / 'no' / 'x.svg'}"):
        with pytest.raises(InputError, match=r"^--export "):
            run(lock, "--trust-adapter", "--export", f"states={tmp_path / 'none.txt'}", "--export", bad)
    assert not (tmp_path / "none.txt").exists(), "all or nothing"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"verdicts": [1]}',
        '{"verdicts": [{}]}',
        '{"initial": 1, "loop_start": 2}',
        '{"laws": 3}',
        '{"contract": "X"}',
    ],
)
def test_what_is_no_recording_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "it.json"
    file.write_text(text)
    with pytest.raises(InputError) as told:
        run(file)
    assert "\n" not in str(told.value)
    assert str(file) in str(told.value)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterProcess]:
    with ClusterProcess() as running:
        yield running


@pytest.mark.server
@pytest.mark.parametrize("node", [0, 2])
def test_on_a_real_cluster_a_command_goes_where_its_keys_live(node: int, lock: Path, cluster: ClusterProcess) -> None:
    cluster.flush()
    code, told = run(lock, "--trust-adapter", "--backend", f"redis://{cluster.address(node)}", "--step")
    assert code == 1
    assert "fencing is violated" in told
    assert "+ {lock}:lease = string 1 until" in told
    assert "cluster of 3 masters" in told
    assert not any(one.execute(b"DBSIZE") for one in cluster.nodes)


@pytest.mark.server
@pytest.mark.parametrize(("keys", "told"), [("{lock}:lease", "replied 1"), ("lease", "CROSSSLOT")])
def test_keys_of_several_slots_are_refused_by_a_real_cluster(
    keys: str, told: str, lock: Path, tmp_path: Path, cluster: ClusterProcess
) -> None:
    cluster.flush()
    store = tmp_path / "store"
    shutil.copytree("lua/lock", store)
    (store / "store.toml").write_text((store / "store.toml").read_text().replace("{lock}:lease", keys))
    _, said = run(lock, "--trust-adapter", "--store", store, "--backend", f"redis://{cluster.address(1)}")
    assert told in said
    assert (said.count("CROSSSLOT") > 0) == (told == "CROSSSLOT")


@pytest.mark.server
def test_a_cluster_that_holds_something_is_left_alone(lock: Path, cluster: ClusterProcess) -> None:
    cluster.flush()
    place = next(index for index, node in enumerate(cluster.nodes) if node.execute(b"SET", b"mine", b"1") == b"OK")
    with pytest.raises(InputError, match="is not empty and is left alone"):
        run(lock, "--trust-adapter", "--backend", f"redis://{cluster.address((place + 1) % 3)}")
    assert cluster.nodes[place].execute(b"GET", b"mine") == b"1"


def test_a_log_of_code_scanning_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "found.sarif").write_text(json.dumps({"version": "2.1.0", "runs": []}))
    with pytest.raises(InputError, match="a SARIF log, which has no steps; replay what --report json=FILE wrote"):
        run(tmp_path / "found.sarif")
