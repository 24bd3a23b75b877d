"""Both forms of a Jepsen log give the same operations; what is wrong in them is one line with its number."""

import re

import pytest

from orderlab.model.checkers.linearizability.decide import decide, guess_model
from orderlab.model.errors import InputError
from orderlab.model.history.jepsen import read_edn_operations, read_log_lines
from orderlab.model.verdict import Outcome

LINES = """\
2015-01-01 noise that is not an operation
INFO  jepsen.core - Running test
INFO  jepsen.util - 0  :invoke  :write  3
INFO  jepsen.util - :nemesis :info :start nil
INFO [2015-11-03 12:00:00,111] jepsen worker 1 - jepsen.util 1\t:invoke\t:read\tnil
INFO [2015-11-03 12:00:00,111] jepsen worker 1 - jepsen.util 1\t:ok\t:read\t3
   INFO jepsen.util - 0 :info :write :timed-out
INFO  jepsen.util - 1  :invoke :cas [3 4]
INFO  jepsen.util - 1  :fail :cas [3 4]
INFO  jepsen.util - 2  :invoke :read nil
INFO  jepsen.util - 2  :fail :read :timed-out
INFO  jepsen.util - 3  :invoke :cas [3 5]
INFO  jepsen.util - 3  :fail :cas [3 5] connection refused by "n1
"""
EDN = """\
; the same test
{:process 0, :type :invoke, :f :write, :value 3, :time 1}
{:process :nemesis, :type :info, :f :start, :value nil}
#jepsen.history.Op{:index 2, :process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 3}
{:process 0, :type :info, :f :write, :value 3, :error :timed-out}
{:process 1, :type :invoke, :f :cas, :value [3 4]}
{:process 1, :type :fail, :f :cas, :value [3 4]}
{:process 2, :type :invoke, :f :read, :value nil}
{:process 2, :type :fail, :f :read, :value nil, :error :timed-out}
{:process 3, :type :invoke, :f :cas, :value [3 5]}
{:process 3, :type :fail, :f :cas, :value [3 5], :error [:refused "n1"]}
"""


def written(tmp_path, text, name="log"):
    path = tmp_path / name
    path.write_text(text)
    return path


def described(log):
    return [{k: v for k, v in log.describe(row).items() if k != "rows"} for row in range(len(log))]


@pytest.mark.parametrize("wrap", [False, True])
def test_both_forms_give_the_same_operations(tmp_path, wrap):
    lines = read_log_lines(written(tmp_path, LINES))
    edn = read_edn_operations(written(tmp_path, f"[{EDN}]" if wrap else EDN, "edn"))
    assert described(lines) == described(edn)
    assert [operation["outcome"] for operation in described(edn)] == ["info", "ok", "fail", "fail", "fail"]
    assert lines.describe(1)["rows"] == [5, 6]
    assert edn.describe(1)["rows"] == [4, 5]
    assert guess_model(lines) == "cas-register"


def test_a_failed_cas_reports_a_mismatch_unless_it_failed_for_another_reason(tmp_path):
    start = "INFO 0 :invoke :write 3\nINFO 0 :ok :write 3\nINFO 1 :invoke :cas [3 4]\n"
    mismatch = read_log_lines(written(tmp_path, start + "INFO 1 :fail :cas [3 4]\n"))
    reason = read_log_lines(written(tmp_path, start + "INFO 1 :fail :cas [3 4] :timed-out\n"))
    dropped = read_log_lines(written(tmp_path, start + "INFO 1 :fail :cas :timed-out\n"))
    assert decide("cas-register", mismatch).outcome is Outcome.VIOLATED
    assert decide("cas-register", reason).vacuous
    assert decide("cas-register", dropped).vacuous


def test_keys_name_objects(tmp_path):
    text = """{:process 0, :type :invoke, :f :put, :key "a", :value "x"}
              {:process 0, :type :ok, :f :put, :key "a", :value "x"}
              {:process 0, :type :invoke, :f :append, :key "a", :value "y"}
              {:process 0, :type :ok, :f :append, :key "a", :value "y"}
              {:process 0, :type :invoke, :f :get, :key "b", :value nil}
              {:process 0, :type :ok, :f :get, :key "b", :value ""}
              {:process 0, :type :invoke, :f :get, :key "a", :value nil}
              {:process 0, :type :ok, :f :get, :key "a", :value "RESULT"}"""
    for result, outcome in (("xy", Outcome.HOLDS), ("x", Outcome.VIOLATED)):
        log = read_edn_operations(written(tmp_path, text.replace("RESULT", result)))
        verdict = decide(guess_model(log), log)
        assert (verdict.outcome, verdict.work["objects"]) == (outcome, 2)


INDEPENDENT = """INFO u - 0 :invoke :write [3 1]
INFO u - 0 :ok :write [3 1]
INFO u - 0 :invoke :read [4 nil]
INFO u - 0 :ok :read [4 nil]
INFO u - 1 :invoke :read [3 nil]
INFO u - 1 :fail :read :timed-out
INFO u - 0 :invoke :read [3 nil]
INFO u - 0 :ok :read [3 RESULT]
"""


def test_values_of_independent_keys_are_pairs_of_key_and_value(tmp_path):
    for result, outcome in (("1", Outcome.HOLDS), ("2", Outcome.VIOLATED)):
        verdict = decide("register", read_log_lines(written(tmp_path, INDEPENDENT.replace("RESULT", result))))
        assert (verdict.outcome, verdict.work["objects"]) == (outcome, 2)
    assert verdict.witness.key == 3


def test_pairs_alone_are_values(tmp_path):
    line = "INFO u - 0 :invoke :write [3 nil]\nINFO u - 0 :ok :write [3 nil]\nINFO u - 0 :invoke :read nil\n"
    log = read_log_lines(written(tmp_path, line + "INFO u - 0 :ok :read [3 nil]\n"))
    assert list(log.key) == [-1, -1]
    assert decide("register", log).outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    "before",
    [
        "2015-01-01 12:00:00,123 INFO  [pool-1] jepsen.util - ",
        "2023-05-01 10:00:00,1{GMT}\tINFO\t[jepsen worker 0] jepsen.util: ",
    ],
)
def test_a_date_may_stand_before_the_level(tmp_path, before):
    log = read_log_lines(written(tmp_path, f"{before}0\t:invoke\t:read\tnil\n{before}0\t:ok\t:read\t3\n"))
    assert described(log) == [{"process": 0, "function": "read", "argument": None, "outcome": "ok", "result": 3}]


WRONG_EDN = [
    (
        "{:process 99999999999999999999 :type :invoke :f :read}",
        "line 1: process 99999999999999999999 is beyond 64 bits",
    ),
    ("{:process 0, :type :invoke, :f :read", "line 1: not EDN"),
    ("{:process 0 :type :invoke :f :read}\n{:process 0 :type :okay :f :read}", "line 2: :type must be one of"),
    ("{:process 0 :type :invoke :f :read}\n\n{:process 0 :type :ok}", "line 3: the operation has no :f"),
    ("{:process 1.5 :type :invoke :f :read}", "line 1: :process must be a number"),
    ("{:process 0 :type :invoke :f :write :value " + "9" * 5000 + "}", "line 1: not EDN: a number of 5000 digits"),
    ("7", "line 1: expected an operation map"),
    ("; nothing", "no operations"),
    ("  \n", "the file is empty"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_EDN)
def test_unusable_edn_is_one_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_edn_operations(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


WRONG_LINES = [
    ("INFO u - 0 :ok :read 1", "line 1: process 0 completes read without an invocation"),
    ("INFO u - 0 :invoke :read nil\nINFO u - 0 :invoke :read nil", "line 2: process 0 invokes read before"),
    ("INFO u - 0 :invoke :read nil\nINFO u - 0 :ok :write 1", "line 2: process 0 completes write, it had invoked read"),
    ("INFO u - 0 :invoke :read nil\nINFO u - 0 :okay :read 1", "line 2: unknown type :okay"),
    ("INFO u - 0 :invoke :write [1", "line 1: cannot read the value '[1'"),
    ("INFO u - 0 :invoke :write #{" + "[" * 9999 + "]" * 9999 + "}", "line 1: a map or set is nested deeper"),
    ("INFO u - 0 :invoke :write 1 2", "line 1: more than one value"),
    ("nothing here", "no operations"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_LINES)
def test_unusable_log_lines_are_one_line(tmp_path, text, message):
    with pytest.raises(InputError) as error:
        read_log_lines(written(tmp_path, text))
    assert message in str(error.value)


def test_an_operation_that_the_object_lacks_is_named(tmp_path):
    log = read_log_lines(written(tmp_path, "INFO u - 0 :invoke :transfer 1\n"))
    with pytest.raises(InputError, match="no object has all of the operations transfer"):
        guess_model(log)
    with pytest.raises(InputError, match="row 1: queue has no operation 'transfer'"):
        decide("queue", log)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "{:process 0, :type :invoke, :f :read, :f :write}",
            "line 1: not EDN: the key :f is there twice in one map; leave one of them out",
        ),
        (
            "{:process 0, :type :invoke, :f :poll, :value {5 [[0 1]], 5 []}}",
            "line 1: not EDN: the key 5 is there twice in one map",
        ),
        (
            "{:process 0, :type :ok, :f :read, :value #{1 2 1}}",
            "line 1: not EDN: the member 1 is there twice in one set",
        ),
        ("{:process 0, :type :invoke, :f :read, :time -1}", "line 1: :time is -1, must be a number from 0 on"),
        (
            "{:process 0, :type :invoke, :f :read, :time 5}\n{:process 0, :type :ok, :f :read, :value 1, :time 4}",
            "line 2: :time of process 0 goes back from 5 to 4",
        ),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(tmp_path, text, told):
    with pytest.raises(InputError, match=re.escape(told)):
        read_edn_operations(written(tmp_path, text, "log.edn"))


@pytest.mark.parametrize(
    "text",
    [
        "{:process 0, :type :invoke, :f :write, :value {1 :a, 1.0 :b, true :c}}",
        "{:process 0, :type :invoke, :f :write, :value 1, :time 5}\n{:process 1, :type :invoke, :f :read, :time 4}",
    ],
)
def test_what_is_one_is_read(tmp_path, text):
    assert len(read_edn_operations(written(tmp_path, text, "log.edn")))
