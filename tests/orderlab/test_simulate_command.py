"""`orderlab simulate`: the same bytes in every process, and one line for settings that make no sense."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from html import unescape
from typing import Any

import pytest
from rich.console import Console

from orderlab.cli import main
from orderlab.commands import simulate
from orderlab.exit_codes import Terminated
from orderlab.model.errors import InputError
from orderlab.report import progress
from orderlab.report.simulation import print_comparison
from orderlab.report.timeline_page import laws_changed, panels, run_to_compare
from orderlab.sim.faults import FAULTS
from tests.in_process import orderlab
from tests.sim.chrome_trace import complaints

SMALL = ("--set", "publishers=200", "--set", "rate=20", "--set", "warm_up_s=0.1", "--set", "duration_s=0.2")


def run(*arguments, hash_seed=""):
    """In this process, unless it is to have a hash seed."""
    if not hash_seed:
        return orderlab("simulate", *arguments)
    return subprocess.run(
        [sys.executable, "-m", "orderlab.cli", "simulate", *arguments],
        capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, timeout=900,
    )  # fmt: skip


CLIENTS = (
    "publish_qos=0=0.2 1=0.4 2=0.4", "subscription_qos=1=0.5 2=0.5", "publish_on_s=0.1", "publish_off_s=0.05",
    "publish_pattern=exponential", "offline_share=0.3", "online_s=0.1", "offline_s=0.05", "reconnect_pattern=together",
    "retained_share=0.5", "resubscribe=true", "retain_handling=0", "receive_maximum=3", "slow_share=0.1", "rate=60",
)  # fmt: skip


def test_however_clients_behave_the_seed_decides():
    settings = [word for setting in (*SMALL[1::2], *CLIENTS) if setting != "rate=20" for word in ("--set", setting)]
    first, second = (run("tbmq-p2p", *settings, "--json", hash_seed=hash_seed) for hash_seed in ("1", ""))
    assert first.returncode == 0, first.stderr + first.stdout
    reports = [json.loads(done.stdout) for done in (first, second)]
    assert reports[0]["history_digest"] == reports[1]["history_digest"]
    antecedents = {verdict["law"]: verdict["work"]["antecedents"] for verdict in reports[0]["verdicts"]}
    assert min(antecedents[law] for law in ("fifo", "exactly-once", "packet-id", "receive-maximum")) > 100
    assert reports[0]["counts"]["delivered_retained"] > 10


@pytest.mark.parametrize("scripts", [pytest.param("published", marks=pytest.mark.exhaustive), "session"])
def test_the_same_seed_gives_the_same_history_in_every_process(scripts, tmp_path):
    arguments = ("tbmq-p2p", *SMALL, "--set", "brokers=2", "--set", f"scripts={scripts}", "--json")
    first = run(*arguments, "--seed", "5", "--history", str(tmp_path / "h.parquet"), hash_seed="1")
    second = run(*arguments, "--seed", "5")
    assert first.returncode == 0, first.stderr + first.stdout
    reports = [json.loads(done.stdout) for done in (first, second)]
    for report in reports:
        report.pop("wall")
        for verdict in report["verdicts"]:
            verdict["work"].pop("seconds")
    assert reports[0] == reports[1]
    laws = {verdict["law"]: verdict for verdict in reports[0]["verdicts"]}
    assert laws["no-phantom"]["work"]["antecedents"] == reports[0]["counts"]["published"] > 400
    assert laws["fifo"]["work"]["antecedents"] > 300  # all but the first of each of the publishers
    assert (tmp_path / "h.parquet").stat().st_size > 10_000


@pytest.mark.parametrize("asks", [KeyboardInterrupt, Terminated])
def test_replications_that_are_interrupted_are_told_as_far_as_they_came(asks, monkeypatch):
    """What is known of three of them is no word on ten; a law that broke in one of them has broken."""
    whole, done = simulate._run, []

    def interrupted(*given):
        if len(done) == 3:
            raise asks(int(signal.SIGTERM))
        done.append(whole(*given))
        return done[-1]

    monkeypatch.setattr(simulate, "_run", interrupted)
    arguments = ("tbmq-p2p", "--set", "publishers=20", "--replications", "10", "--json")
    ended = run(*arguments)
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["outcome"], len(told["replications"])) == (3, "unknown", 3)
    assert "stopped after 3 of 10 replications; what follows is of these alone" in ended.stderr
    done[:] = [None] * 3
    assert run(*arguments).returncode == (130 if asks is KeyboardInterrupt else 143)


def test_in_a_pipe_long_replications_are_heard_of(monkeypatch):
    monkeypatch.delenv("ORDERLAB_PROGRESS")
    monkeypatch.setattr(progress, "TOLD_EACH_S", 0.0)
    told = run("tbmq-p2p", "--set", "publishers=20", "--replications", "2").stderr.splitlines()
    for number in (1, 2):
        mine = [line for line in told if line.startswith(f"replication {number} of 2: ")]
        assert "simulated" in mine[0]
        assert "judging the history by every law" in mine[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("tbmq-p2p", "--set", "brokers=0"), "brokers"),
        (("tbmq-p2p", "--set", "limit=65536"), "limit"),
        (("tbmq-p2p", "--set", "rate=-1"), "rate"),
        (("tbmq-p2p", "--set", "rate=1e-14"), "rate"),
        (("emqx-streams", "--set", "rate=1e-300"), "rate"),
        (("tbmq-p2p", "--set", "rate=nan"), "rate"),
        (("tbmq-p2p", "--set", "qos=3"), "qos"),
        (("tbmq-application", "--set", "qos=3"), "qos"),
        (("tbmq-p2p", "--set", "receive_maximum=0"), "receive_maximum"),
        (("tbmq-p2p", "--set", "redis_node=3"), 'did you mean "redis_nodes"'),
        (("tbmq-p2p", "--set", "row=3m"), "no such published row"),
        (("tbmq-p2p", "--set", "costs=nowhere"), "no such cost model"),
        (("tbmq-p2p", "--set", "brokers"), "--set key=value"),
        (("tbmq-p2q",), 'did you mean "tbmq-p2p"'),
        (("tbmq-p2p", "--config", "/nowhere.toml"), "cannot be read"),
        ((), "which system"),
        (("tbmq-p2p", "--drain-bound-ms", "0"), "positive number"),
        (("tbmq-p2p", "--drain-bound-ms", "inf"), "positive number"),
        (("tbmq-p2p", "--drain-bound-ms", "nan"), "positive number"),
        (("tbmq-p2p", "--trace", "t.json", "--report", "json=t.json"), "each a file of its own"),
        (("tbmq-p2p", "--history", "h.parquet", "--timeline", "./h.parquet"), "each a file of its own"),
        (
            ("tbmq-p2p", "--history", "h.parquet", "--timeline", "h-1.parquet", "--replications", "2"),
            "each a file of its own",
        ),
        (("tbmq-p2p", "--trace", "/nowhere/t.json"), "no folder"),
        (("tbmq-p2p", "--replications", "0"), "at least 1"),
        (("tbmq-p2p", "--seed", "-1"), "greater than or equal to 0"),
        (("tbmq-p2p", *SMALL, "--set", "brokers=13"), "partitions 12: 13 brokers"),
        (("tbmq-p2p", *SMALL, "--timeline", "t.svg"), "which form"),
        (("tbmq-p2p", *SMALL, "--timeline", "/nowhere/t.html"), "no folder"),
        (("tbmq-p2p", *SMALL, "--against", "t.json", "--replications", "2"), "one run"),
        (("tbmq-p2p", *SMALL, "--against", "/nowhere.json"), "cannot be read"),
        (("tbmq-p2p", "--trace", "t.json", "--replications", "2"), "one run"),
        (("tbmq-p2p", "--shrink", "--replications", "2"), "makes one run smaller"),
        (("tbmq-p2p", "--trace-window", "0:1"), "of which trace"),
        (("tbmq-p2p", "--below-ms", "50"), "add --sustainable"),
        (("tbmq-p2p", "--tolerance", "0.1"), "add --sustainable"),
        (("tbmq-p2p", "--shrink-runs", "10"), "add --shrink"),
        (("tbmq-p2p", "--sustainable", "--drain-bound-ms", "5"), "judges no law"),
        (("tbmq-p2p", "--trace", "t.json", "--trace-window", "1:0"), "after BEGIN"),
        (("tbmq-p2p", "--set", "fault_rates=redis-stall=often"), "name=rate/s"),
        (("tbmq-p2p", *SMALL, "--trace", "t.json", "--trace-window", "5:6"), "over after 1.3 s"),
        (("tbmq-p2p", *SMALL, "--set", "faults=redis-stall@1.3"), "over after 1.3 s"),
        (("tbmq-p2p", *SMALL, "--set", "faults=redis-stall@0.1:0:1000000"), "longer than a day"),
        (
            ("tbmq-p2p", *SMALL, "--set", "kafka_brokers=1", "--set", "faults=kafka-leader-change@0.1"),
            "kafka_brokers=2",
        ),
        (("tbmq-p2p", *SMALL, "--set", "idempotent=true"), "acks=all"),
        (("tbmq-p2p", *SMALL, "--set", "idempotent=true", "--set", "acks=all", "--set", "retries=0"), "retries"),
        (
            ("tbmq-p2p", "--set", "publishers=1", "--set", "warm_up_s=0", "--set", "duration_s=0.001"),
            "nobody published",
        ),
        (("tbmq-p2p", *SMALL, "--set", "costs=cluster redis.commands_us.zadd=nan"), "redis.commands_us.zadd"),
        (("tbmq-p2p", *SMALL, "--set", "costs=cluster redis.commands_us.zadd=-1"), "redis.commands_us.zadd"),
        (("tbmq-p2p", *SMALL, "--set", "costs=cluster broker.match_us=1e308"), "broker.match_us"),
        (("tbmq-p2p", *SMALL, "--set", "costs=cluster network.sigma=1000"), "network.sigma"),
    ],
)
def test_nonsense_is_one_line(arguments, complaint, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["orderlab", "simulate", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert complaint in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


TOO_FAST = (
    "--set",
    "publishers=200",
    "--set",
    "max_poll_records=1",
    "--set",
    "warm_up_s=0.1",
    "--set",
    "duration_s=0.2",
    "--set",
    "drain_s=0.1",
)


@pytest.mark.parametrize(
    ("more", "is_told"),
    [(("--set", "rate=100"), True), (("--set", "rate=100", "--replications", "2"), True), (("--set", "rate=1"), False)],
)
def test_latencies_that_lack_what_has_not_arrived_are_told_with_their_share(more, is_told):
    printed = run("tbmq-p2p", *TOO_FAST, *more).stdout
    assert ("the rest did not arrive before the end of the run" in printed) == is_told


@pytest.mark.parametrize("option", ["--trace", "--timeline"])
def test_a_folder_that_cannot_be_written_is_told_before_the_run(option, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("orderlab.model.files.os.access", lambda folder, mode: False)
    monkeypatch.setattr("orderlab.commands.simulate._run", None)
    monkeypatch.setattr(sys, "argv", ["orderlab", "simulate", "tbmq-p2p", option, str(tmp_path / "t.html")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "nothing can be written" in capsys.readouterr().err


def test_a_timeline_and_a_comparison_tell_what_a_fault_did(tmp_path):
    import pyarrow.parquet as pq

    small = ("tbmq-p2p", "--set", "publishers=60", *SMALL[2:])
    before = tmp_path / "before.json"
    before.write_text(run(*small, "--json").stdout)
    same = json.loads(run(*small, "--json", "--against", str(before)).stdout)
    assert (same["against"], same["against_laws"]) == ([], [])
    fault = ("--set", "faults=redis-stall@0.2:0:0.03")
    done = run(*small, *fault, "--against", str(before), "--timeline", str(tmp_path / "t.html"))
    assert "against the other run: faults none → redis-stall@0.2:0:0.03\n" in done.stdout
    assert "no verdict differs" in done.stdout
    assert "redis-stall on redis-0 at 0.2 s" in done.stdout
    page = (tmp_path / "t.html").read_text()
    assert page.count(" data-zoom=") == 4
    assert "redis-stall" in page
    run(*small, *fault, "--timeline", str(tmp_path / "t.parquet"))
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["faults"] for row in rows if row["faults"]] == [["redis-stall redis-0"]]
    before.write_text("[]")
    assert run(*small, "--against", str(before)).returncode == 2


def told_run() -> dict[str, Any]:
    """As `--json` tells one, in short."""
    return {
        "system": "tbmq-p2p",
        "seed": 0,
        "settings": {"publishers": 60},
        "latency": {"puback": {"mean_ms": 1.5, "p99_ms": None}},
        "utilisation": {"broker": [0.5, 0.6]},
        "counts": {"published": 7},
        "recovery": [
            {"fault": "redis-stall", "node": "redis-0", "at_s": 0.2, "recovered_s": None, "why": "it is short"}
        ],
    }


def test_what_another_system_alone_can_be_told_is_no_change(capsys):
    now = {**told_run(), "verdicts": []}
    other = {**now, "system": "zaqar-lua", "settings": {"publishers": None, "producers": 18, "rate": ""}}
    print_comparison(Console(width=200), other, now)
    assert "against the other run: system zaqar-lua → tbmq-p2p, publishers none → 60\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("seed", "abc"),
        ("seed", None),
        ("seed", 1.5),
        ("seed", True),
        ("seed", -1),
        ("system", "tbmq"),
        ("system", ["zaqar-lua"]),
        ("settings.publishers", [60]),
        ("settings.publishers", {}),
        ("settings.publishers", float("inf")),
        ("latency.puback.mean_ms", "1.5"),
        ("latency.puback.mean_ms", float("nan")),
        ("latency.puback", "none"),
        ("latency.puback.mean_ms", {"a": {"b": {"c": {"d": 1}}}}),
        ("utilisation", [0.5]),
        ("utilisation.broker", [0.5, "x"]),
        ("utilisation.broker", [[0.5]]),
        ("counts", 7),
        ("counts.published", 10**400),
        ("counts.published", "\x1b[31m\n[/red]"),
        ("recovery", {}),
        ("recovery", ["redis-stall"]),
        ("recovery", [{"recovered_s": 0.1}]),
        ("recovery", [{"fault": "x", "recovered_s": "0.1"}]),
        ("verdicts", "none"),
        ("verdicts", [{"law": "fifo", "outcome": "perhaps"}]),
    ],
)
def test_a_run_to_compare_with_is_checked_as_it_is_read(tmp_path, place, value):
    path = tmp_path / "before.json"
    path.write_text(json.dumps(told_run()))
    assert run_to_compare(path, "tbmq-p2p")["seed"] == 0
    changed = told_run()
    *parts, last = place.split(".")
    inner: Any = changed
    for part in parts:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(changed))
    with pytest.raises(
        InputError, match=rf"before.json: {place}\b.* is not .*; keep one with: orderlab simulate"
    ) as error:
        run_to_compare(path, "tbmq-p2p")
    assert len(str(error.value).splitlines()) == 1


def test_names_in_a_run_to_compare_with_are_no_markup():
    before = {**told_run(), "settings": {"[/b]": "[red]"}, "counts": {"[/x]\x1b": 1}}
    console = Console(record=True, width=200)
    before["verdicts"] = [{"law": "[/law]", "outcome": "violated"}]
    now = {**told_run(), "settings": {"[/b]": "[blue]"}, "verdicts": [], "system": "zaqar-lua", "seed": 3}
    print_comparison(console, before, now)
    text = console.export_text()
    assert "system tbmq-p2p → zaqar-lua" in text
    assert "[/b] [red] → [blue]" in text
    assert "no longer violated: [/law]" in text
    assert "counts.[/x]\\x1b" in text


def verdict(law: str, outcome: str, vacuous: bool = False) -> dict[str, Any]:
    return {"law": law, "outcome": outcome, "vacuous": vacuous}


def test_a_comparison_names_the_laws_that_changed():
    before = [verdict("fifo", "violated"), verdict("drain", "unknown", True), verdict("at-least-once", "holds"),
              verdict("no-phantom", "violated"), verdict("agreement", "holds")]  # fmt: skip
    now = [verdict("fifo", "holds"), verdict("drain", "holds"), verdict("at-least-once", "violated"),
           verdict("no-phantom", "violated"), verdict("agreement", "holds")]  # fmt: skip
    console = Console(record=True, width=200)
    print_comparison(console, {**told_run(), "verdicts": before}, {**told_run(), "verdicts": now})
    assert [line for line in console.export_text().splitlines() if line.startswith("laws")] == [
        "laws newly violated: at-least-once (holds → violated)",
        "laws no longer violated: fifo (violated → holds)",
        "laws otherwise: drain (not tested → holds)",
        "laws violated in both: no-phantom",
    ]
    assert not laws_changed(now, now)
    assert [one["change"] for one in laws_changed([], before)] == ["no longer violated"] * 2 + ["otherwise"] * 2


def test_every_fault_is_marked_in_every_chart_of_a_timeline():
    kinds = list(FAULTS)[:12]
    faults = [
        {"fault": kinds[number % 12], "node": f"node-{number:02}", "at_s": 0.02 * (number + 1)} for number in range(30)
    ]
    rows = [
        {
            "at_s": 0.1 * at,
            "in_per_s": 1.0,
            "out_per_s": 1.0,
            "latency_ms": 2.0,
            "uncommitted_a": 1.0,
            "waiting_broker": 0.5,
        }
        for at in range(1, 8)
    ]
    for chart in panels(rows, faults):
        assert all(f"{one['fault']} on {one['node']}" in chart["svg"] for one in faults), chart["caption"]
    for chart in panels(rows, [{"fault": "redis-stall", "node": "", "at_s": None}]):
        assert "redis-stall" not in chart["svg"]


def test_a_fault_looks_alike_in_every_chart_and_like_no_curve():
    rows = [
        {"at_s": 0.1 * at, "in_per_s": 1.0, "out_per_s": 1.0, "latency_ms": 2.0, "waiting_broker": 0.5}
        for at in range(1, 4)
    ]
    faults = [{"fault": "redis-stall", "node": "redis-0", "at_s": 0.2}]
    looks = [
        set(re.findall(r'<g data-tip="redis-stall on redis-0"><path d="[^"]*" fill="([^"]*)"', chart["svg"]))
        for chart in panels(rows, faults)
    ]
    others = [
        set(re.findall(r'<g data-tip="(?!redis-stall)[^"]*"><path d="[^"]*" fill="([^"]*)"', chart["svg"]))
        for chart in panels(rows, faults)
    ]
    assert len(looks) == 3
    assert len(looks[0]) == 1
    assert all(look == looks[0] for look in looks)
    assert all(other and not other & looks[0] for other in others)


def test_a_feed_has_a_timeline_and_is_compared_too(tmp_path):
    small = ("zaqar-watch", "--set", "duration_s=0.4", "--set", "warm_up_s=0.1", "--set", "drain_s=0.2")
    before = tmp_path / "before.json"
    before.write_text(run(*small, "--json").stdout)
    fault = ("--set", "faults=redis-stall@0.3:0:0.03", "--set", "producers=4")
    done = run(*small, *fault, "--against", str(before), "--timeline", str(tmp_path / "t.html"))
    assert "contention.conflicts_per_request" in done.stdout
    assert "redis-stall on redis-0 at 0.3 s: recovered after" in done.stdout
    page = (tmp_path / "t.html").read_text()
    assert page.count(" data-zoom=") == 4
    assert all(
        words in page
        for words in ("conflicts", "post to reader", "entries that readers have not been handed", "redis-stall")
    )


def test_replications_tell_recovery_and_slices_with_intervals(tmp_path):
    import pyarrow.parquet as pq

    faulty = (
        "tbmq-p2p",
        "--set",
        "publishers=60",
        *SMALL[2:],
        "--set",
        "faults=redis-stall@0.2:0:0.03",
        "--replications",
        "2",
    )
    done = run(*faulty, "--timeline", str(tmp_path / "t.html"))
    assert "redis-stall on redis-0 at 0.2 s: recovered in" in done.stdout
    page = (tmp_path / "t.html").read_text()
    assert "means over 2 replications" in page
    assert "recovered after, s" in page
    assert "recovered_s" not in page
    assert page.count(" data-zoom=") == 4
    for text in (done.stdout, page):  # two runs are too few for a heavy tail
        assert "nominal 95 %" in text
        assert not re.search(r"(?<!ominal )95 ?%|\bsure", re.sub(r"<style>.*?</style>", "", text, flags=re.S))
        assert "rests on 2 runs: what happens in up to 78 % of runs may be unseen" in text
    told = json.loads(run(*faulty, "--timeline", str(tmp_path / "t.parquet"), "--json").stdout)
    (one,) = told["recovery"]
    assert (one["fault"], one["runs"]) == ("redis-stall", 2)
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    row = next(row for row in rows if row["latency_ms_low"] is not None)
    assert row["latency_ms_low"] <= row["latency_ms"] <= row["latency_ms_high"]
    assert [row["faults"] for row in rows if row["faults"]] == [["redis-stall redis-0"]]


def test_a_violation_says_where_and_is_shrunk_to_a_run_that_can_be_replayed(tmp_path):
    broken = (
        "tbmq-p2p",
        "--set",
        "publishers=120",
        *SMALL[2:],
        "--set",
        "brokers=2",
        "--set",
        "faults=kafka-leader-change@0.15:0",
    )
    pages = {"html": tmp_path / "r.html", "timeline": tmp_path / "t.html"}
    done = run(*broken, "--report", f"html={pages['html']}", "--timeline", str(pages["timeline"]))
    assert done.returncode == 1
    for words in ("may be to blame, by place and time: kafka-leader-change on kafka-0 at 0.150000 s", "its way: "):
        assert words in pages["html"].read_text(), "as in the terminal"
    for words in ("<h2>Laws</h2>", "fifo", '<span class="violated">violated</span>: tbmq-p2p', 'viewBox="0 0 1080 '):
        assert words in pages["timeline"].read_text()
    assert "may be to blame, by place and time: kafka-leader-change on kafka-0 at 0.150000 s (event" in done.stdout
    assert "--shrink searches" in done.stdout
    told = json.loads(
        run(*broken, "--shrink", "--shrink-runs", "16", "--json", "--report", f"html={pages['html']}").stdout
    )
    smaller = told["shrunk"][0]
    assert smaller["needed_faults"] == [smaller["settings"]["faults"]]
    assert f"needed: without {smaller['needed_faults'][0]} the same run does not break the law" in unescape(
        pages["html"].read_text()
    )
    assert (smaller["runs"], smaller["is_finished"], smaller["size"]["faults"]) == (16, False, 1)
    assert smaller["size"]["messages"] < told["counts"]["published"] / 10
    report = tmp_path / "told.json"
    report.write_text(json.dumps(told))
    assert smaller["witness"]["why"] in orderlab("replay", str(report), "--law", smaller["law"]).stdout
    command = shlex.split(smaller["command"])
    again = json.loads(run(*command[2:], "--json").stdout)
    assert smaller["witness"] in [verdict["witness"] for verdict in again["verdicts"]]


def test_drain_is_decided_where_the_run_was_long_enough():
    given = ("tbmq-p2p", *SMALL, "--set", "brokers=2", "--set", "faults=broker-crash-after-commit@0.2:0")

    def drain(drain_s):
        told = json.loads(
            run(
                *given,
                "--set",
                f"drain_s={drain_s}",
                "--set",
                "session_timeout_s=0.1",
                "--drain-bound-ms",
                "600",
                "--json",
            ).stdout
        )
        return next(verdict for verdict in told["verdicts"] if verdict["law"] == "drain")

    short, long = drain(0.5), drain(2)
    assert (short["outcome"], long["outcome"]) == ("unknown", "violated")
    assert "simulate: drain_s higher by" in short["not_covered"][0]


def test_the_default_run_puts_order_to_the_test():
    from orderlab.sim.systems.catalogue import settings_of

    for system in ("tbmq-p2p", "tbmq-lettuce", "tbmq-application"):
        settings = settings_of(system, {})
        assert settings.rate * (settings.warm_up_s + settings.duration_s) > 2, "each publisher publishes twice at least"
    row = settings_of("tbmq-p2p", {"row": "200k"})
    assert (row.publishers, row.rate) == (100_000, 1.0), "the published rows are as they were published"


def test_a_file_of_settings_is_overridden_by_set(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text("publishers = 100\nrate = 10.0\nduration_s = 0.1\nwarm_up_s = 0.05\n")
    done = run("tbmq-p2p", "--config", str(config), "--set", "publishers=50", "--json")
    report = json.loads(done.stdout)
    assert report["settings"]["publishers"] == 50
    assert report["settings"]["rate"] == 10.0


def test_replications_have_intervals_and_a_trace_changes_nothing(tmp_path):
    small = ("tbmq-p2p", "--set", "publishers=60", *SMALL[2:], "--json")
    several = json.loads(run(*small, "--replications", "3").stdout)
    mean = several["means"]["latency.publish_to_delivery.mean_ms"]
    observed = [one["latency"]["publish_to_delivery"]["mean_ms"] for one in several["replications"]]
    assert mean["min"] <= mean["mean"] <= mean["max"]
    assert mean["half_width"] > 0
    assert len(set(observed)) == 3
    assert {verdict["law"]: verdict["runs"] for verdict in several["verdicts"]}["fifo"] == {"holds": 3}
    assert several["unseen"].startswith("a figure rests on 3 runs")
    first = several["replications"][0]
    traced = json.loads(run(*small, "--trace", str(tmp_path / "t.json")).stdout)
    assert traced["history_digest"] == first["history_digest"]
    trace = json.loads((tmp_path / "t.json").read_text())
    assert len(trace["traceEvents"]) > 100
    assert complaints(trace) == []


def test_the_list_names_every_fault_and_what_it_does():
    listed = run("--list").stdout
    for name, kind in FAULTS.items():
        assert f"    {name}: {kind.summary}" in listed
