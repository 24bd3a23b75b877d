"""`orderlab check`: exit codes, the table, the story, JSON, and one line for what cannot be judged."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from orderlab.cli import application
from orderlab.model.errors import InputError
from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history
from tests.in_process import orderlab

GOOD = "S + P1 A1 P2 A2 D1#1 D2#2 K#1 K#2"
BAD = "S + P1 A1 P2 A2 D2#1 D1#2 K#1 K#2"


def check(*arguments):
    return CliRunner().invoke(application(["check"]), ["check", *map(str, arguments)])


def history(tmp_path, line, name="h.parquet"):
    write_history(parse_history(line), tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("name", ["h.parquet", "h.jsonl", "h.csv"])
def test_a_good_history_exits_0(tmp_path, name):
    result = check(history(tmp_path, GOOD, name))
    assert result.exit_code == 0
    assert "fifo" in result.stdout
    assert "seed: 0" in result.stdout


def test_a_violation_exits_1_and_tells_the_story(tmp_path):
    result = check(history(tmp_path, BAD))
    assert result.exit_code == 1
    first, cause, holding, *_ = result.stdout.splitlines()
    assert first.endswith(": fifo is violated, 1 of 5 laws (exit code 1)")
    assert cause.startswith("  1. fifo: first delivery of 1 after 2 had been delivered")
    assert holding == "  4 hold: at-least-once, no-phantom, packet-id, subscribed"
    assert "fifo is violated: first delivery of 1 after 2 had been delivered" in result.stdout
    assert "checked" in check(history(tmp_path, BAD), "--law", "fifo", "-v").stdout
    assert (
        "event 7 at 0.007000 s: deliver publisher=p topic=t qos=1 subscriber=s sequence=1 packet_id=2" in result.stdout
    )


def test_json_carries_every_verdict(tmp_path):
    result = check(history(tmp_path, BAD), "--json", "--law", "fifo", "--law", "no-phantom", "--seed", 5)
    found = json.loads(result.stdout)
    assert (found["rows"], found["outcome"], found["seed"]) == (10, "violated", 5)
    assert {verdict["law"]: verdict["outcome"] for verdict in found["verdicts"]} == {
        "fifo": "violated",
        "no-phantom": "holds",
    }
    assert found["verdicts"][0]["witness"]["event_id"] == 7


def test_an_unfinished_check_exits_3(tmp_path):
    assert check(history(tmp_path, GOOD), "--law", "fifo", "--budget", 0).exit_code == 3
    assert check(history(tmp_path, "S P1 A1 H"), "--law", "drain", "--drain-bound-ms", 50).exit_code == 3


@pytest.mark.parametrize(
    "line", ["P1 A1", "S P1", "D1#1", "P1%3", "+", "X", "0(write:1 0)", "0(enqueue:1 0)", "0(read 0?"]
)
def test_where_no_law_is_put_to_the_test_the_exit_code_is_3(tmp_path, line):
    file = history(tmp_path, line)
    result = check(file)
    assert result.exit_code == 3
    assert "vacuous: no law was tested" in result.stdout
    found = check(file, "--json")
    assert (found.exit_code, json.loads(found.stdout)["vacuous"]) == (3, True)
    assert check(file, "--allow-vacuous").exit_code == 0


def test_a_law_asked_for_by_name_has_to_be_put_to_the_test(tmp_path):
    file = history(tmp_path, GOOD)
    result = check(file)
    assert result.exit_code == 0
    assert "vacuous, not tested: exactly-once" in result.stdout
    named = check(file, "--law", "fifo", "--law", "exactly-once")
    assert named.exit_code == 3
    assert "vacuous: exactly-once, asked for by name, was not tested" in named.stdout
    assert check(file, "--law", "fifo", "--law", "exactly-once", "--allow-vacuous").exit_code == 0
    assert check(file, "--drain-bound-ms", 5).exit_code == 3  # nothing has healed
    # Unfinished, not vacuous.
    assert check(file, "--law", "exactly-once", "--budget", 0, "--allow-vacuous").exit_code == 3


def test_several_files_are_judged_each_and_the_worst_is_the_exit_code(tmp_path):
    good, bad, idle = (
        history(tmp_path, line, f"{name}.jsonl") for name, line in (("g", GOOD), ("b", BAD), ("i", "P1"))
    )
    assert check(good, good).exit_code == 0
    assert check(good, idle).exit_code == 3
    result = check(idle, bad, tmp_path / "none.csv", good)
    assert result.exit_code == 1
    assert result.stdout.count("seed: 0") == 3
    assert result.stderr == f"orderlab: {tmp_path / 'none.csv'}: No such file or directory\n"
    assert check(idle, tmp_path / "none.csv").exit_code == 2
    told = [json.loads(line) for line in check(idle, bad, tmp_path / "none.csv", good, "--json").stdout.splitlines()]
    assert [found["outcome"] for found in told] == ["unknown", "violated", "unusable", "holds"]
    assert [found["file"] for found in told] == [str(idle), str(bad), str(tmp_path / "none.csv"), str(good)]


def test_store_operations_in_a_history_and_in_logs(tmp_path):
    stores = history(tmp_path, "0(write:1 0) 1(read 1):null", "ops.jsonl")
    assert check(stores).exit_code == 1
    log = tmp_path / "test.txt"
    log.write_text("INFO  jepsen.util - 0 :invoke :read nil\nINFO  jepsen.util - 0 :ok :read nil\n")
    assert check(log).exit_code == 0
    assert check(log, "--model", "cas-register").exit_code == 0
    edn = tmp_path / "test.data"
    edn.write_text("[{:process 0 :type :invoke :f :dequeue} {:process 0 :type :ok :f :dequeue :value 1}]")
    result = check(edn)
    assert result.exit_code == 1
    assert "which was never enqueued" in result.stdout


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("h.csv", "", [], "the file is empty"),
        ("h.csv", "event_id,kind\n", [], 'missing column "time_us"'),
        ("h.parquet", "PAR1", [], "truncated or not Parquet"),
        ("h.bin", "what is this", [], "neither a history"),
        ("h.jsonl", '{"event_id":1,"time_us":1,"kind":"heal"}\n', ["--law", "fiffo"], "did you mean fifo?"),
        ("h.jsonl", '{"event_id":1,"time_us":1,"kind":"heal"}\n', ["--law", "drain"], "--drain-bound-ms"),
        ("h.jsonl", '{"event_id":1,"time_us":1,"kind":"heal"}\n', ["--law", "linearizability"], "no store operations"),
        ("h.jsonl", '{"event_id":1,"time_us":1,"kind":"heal"}\n', ["--model", "stack"], "unknown object"),
        ("h.edn", "{:process 0 :type :invoke :f :cas :value nil}", [], "h.edn: row 1: cas takes"),
        ("h.log", "INFO u - 0 :invoke :read nil\n", ["--law", "fifo"], "judged by linearizability"),
    ],
)
def test_unusable_input_is_one_line(tmp_path, name, content, arguments, message):
    path = tmp_path / name
    path.write_text(content)
    result = check(path, *arguments)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_pipe_is_refused(tmp_path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    result = check(pipe)
    assert isinstance(result.exception, InputError)
    assert "save it to a file first" in str(result.exception)


def test_the_process_prints_one_line_and_exits_2(tmp_path):
    command = [sys.executable, "-m", "orderlab.cli", "check", str(tmp_path / "nothing.csv")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"orderlab: {tmp_path / 'nothing.csv'}: No such file or directory\n"


def test_what_a_file_holds_moves_no_terminal(tmp_path):
    rows = [
        {
            "event_id": 0,
            "time_us": 0,
            "kind": "publish",
            "publisher": "\x1b[31m",
            "topic": "t",
            "qos": 1,
            "sequence": 2,
        },
        {
            "event_id": 1,
            "time_us": 0,
            "kind": "deliver",
            "publisher": "\x1b[31m",
            "topic": "t",
            "qos": 1,
            "sequence": 1,
            "subscriber": "\x1b]0;x\x07",
        },
    ]
    file = tmp_path / "h.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = check(file)
    assert result.exit_code == 1
    assert "publisher=\\x1b[31m" in result.stdout
    assert "\x1b]" not in result.stdout


@pytest.mark.parametrize("depth", [90, 150, 900, 100_000])
def test_a_value_may_be_nested_and_not_without_end(tmp_path, depth):
    value = "[" * depth + "]" * depth
    edn = tmp_path / "h.edn"
    edn.write_text("".join(f"{{:process 0 :type {kind} :f :write :value {value}}}\n" for kind in (":invoke", ":ok")))
    row = '{{"event_id":{0},"time_us":0,"kind":"{1}","process":0,"operation":"write","value":{2}}}\n'
    lines = tmp_path / "h.jsonl"
    lines.write_text(row.format(0, "invoke", value) + row.format(1, "ok", value))
    for file in (edn, lines):
        result = check(file)
        if depth < 100:
            assert result.exit_code == 3  # a write alone tests nothing
        else:
            assert isinstance(result.exception, InputError)
            assert "nested" in str(result.exception)


def test_what_is_no_number_is_the_value_that_was_written(tmp_path):
    edn = tmp_path / "h.edn"
    said = [
        (":invoke", ":write", "##NaN"),
        (":ok", ":write", "##NaN"),
        (":invoke", ":read", "nil"),
        (":ok", ":read", "##NaN"),
    ]
    edn.write_text(
        "".join(f"{{:process 0 :type {kind} :f {function} :value {value}}}\n" for kind, function, value in said)
    )
    assert check(edn).exit_code == 0


def test_a_type_that_is_no_word_is_one_line(tmp_path):
    edn = tmp_path / "h.edn"
    edn.write_text("{:process 0 :type {:a 1} :f :read}")
    assert ":type must be one of" in str(check(edn).exception)


def test_long_numbers_of_a_log_are_one_line(tmp_path):
    log = tmp_path / "h.log"
    for number, value in (("0", "0x" + "f" * 4000), ("0", "9" * 5000), ("9" * 5000, "1")):
        log.write_text(f"INFO u - {number} :invoke :read nil\nINFO u - {number} :ok :read {value}\n")
        ended = orderlab("check", log, "--model", "register")
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    log.write_text("INFO u - 0 :invoke :read nil\nINFO u - 0 :ok :read 0x" + "f" * 3000)
    assert orderlab("check", log, "--model", "register").returncode == 1, "what can be shown is read"
