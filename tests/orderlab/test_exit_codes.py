"""Exit codes: the table, and how every command and every program comes to each of them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orderlab import cli, exit_codes
from orderlab.exit_codes import EXIT, ExitCode, Terminated, of_signal
from orderlab.model.errors import InputError, WorkerDied
from orderlab.model.history.disk import write_history
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome
from orderlab.report.report import Subject

ROOT = Path(__file__).parents[2]
TABLE = {"HOLDS": 0, "VIOLATED": 1, "UNUSABLE": 2, "UNKNOWN": 3, "INTERNAL": 70}
OF_OUTCOMES = [(Outcome.HOLDS, 0), (Outcome.VIOLATED, 1), (Outcome.UNKNOWN, 3)]
GOOD = "S + P1 A1 P2 A2 D1#1 D2#2 K#1 K#2"
BAD = "S + P1 A1 P2 A2 D2#1 D1#2 K#1 K#2"

Code = Callable[..., int]


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Code:
    """The exit code of the command line with these arguments, in this process."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["orderlab", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return int(ended.value.code)

    return run


def test_the_table() -> None:
    assert {name.name: name.value for name in ExitCode} == TABLE
    assert dict(OF_OUTCOMES) == EXIT
    assert (of_signal(2), of_signal(9)) == (130, 137)


@pytest.mark.parametrize(("line", "options", "told"), [(GOOD, (), 0), (BAD, (), 1), (GOOD, ("--budget", 0), 3)])
def test_check(code: Code, tmp_path: Path, line: str, options: tuple[object, ...], told: int) -> None:
    write_history(parse_history(line), tmp_path / "h.jsonl")
    assert code("check", tmp_path / "h.jsonl", "--law", "fifo", *options) == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("two-phase-commit",), 0),
        (("increment", "--set", "lock=false", "--engine", "interpreted"), 1),
        (("two-phase-commit", "--max-states", "5"), 3),
    ],
)
def test_explore(code: Code, arguments: tuple[str, ...], told: int) -> None:
    assert code("explore", *arguments) == told


@pytest.mark.parametrize(("outcome", "told"), OF_OUTCOMES)
def test_validate(code: Code, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, told: int) -> None:
    """Of several stores the worst counts, wherever it stands."""
    found = iter([outcome, Outcome.HOLDS])
    monkeypatch.setattr(
        "orderlab.properties.contracts.kind.Kind.validate",
        lambda *_, **__: SimpleNamespace(outcome=next(found), to_json=lambda: {}, is_cut=False),
    )
    monkeypatch.setattr(
        "orderlab.report.subjects.subject_of_store",
        lambda found: Subject(name="it", kind="store", outcome=found.outcome, laws=()),
    )
    assert code("validate", "--json", "--backend", "kernel", ROOT / "lua/pending", ROOT / "lua/session") == told


@pytest.mark.parametrize(("is_right", "told"), [(True, 0), (False, 1)])
def test_specimens(code: Code, monkeypatch: pytest.MonkeyPatch, is_right: bool, told: int) -> None:
    results = [
        SimpleNamespace(is_right=True, to_json=lambda: {}),
        SimpleNamespace(is_right=is_right, to_json=lambda: {}),
    ]
    monkeypatch.setattr("orderlab.properties.validation.specimens.judge_specimens", lambda *_, **__: results)
    assert code("specimens", "--json") == told


@pytest.mark.parametrize(
    ("survivors", "interrupted", "told"), [(0, False, 0), (1, False, 1), (0, True, 3), (1, True, 3)]
)
def test_mutate(code: Code, monkeypatch: pytest.MonkeyPatch, survivors: int, interrupted: bool, told: int) -> None:
    found = SimpleNamespace(survivors=[None] * survivors, interrupted=interrupted, to_json=lambda: {})
    monkeypatch.setattr("orderlab.properties.mutants.specification.mutate_specification", lambda *_, **__: found)
    assert code("mutate", "session", "--specification", "--json") == told


def test_mutate_needs_a_folder_with_a_name(code: Code, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert code("mutate", ROOT / "lua/pending", "--out", "", "--limit", "1", "--effort", "0.01") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("broken", "told"), [([], 0), ([SimpleNamespace(law="fifo", text="")], 1)])
def test_replay(code: Code, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: list[Any], told: int) -> None:
    from orderlab.commands.replay import OnStore
    from orderlab.model.contracts.session.traces import Churn, Trace
    from orderlab.properties.export.transcript import Move

    move = Move("client 1", "churn", broken=tuple((one.law, one.text) for one in broken))
    monkeypatch.setattr(
        "orderlab.properties.export.transcript.recorded", lambda *_: iter([Move("", "the store is empty"), move])
    )
    trace = Trace((Churn(1),), store=str(ROOT / "lua/pending"), seed=0)
    monkeypatch.setattr("orderlab.commands.replay.read_recording", lambda *_: OnStore(trace))
    assert code("replay", tmp_path / "trace.json") == told


@pytest.mark.parametrize(
    ("violated", "failed", "rows", "told"), [(0, 0, 5, 0), (1, 0, 5, 1), (1, 1, 5, 1), (0, 1, 5, 3), (0, 0, 4, 3)]
)
def test_sweep(code: Code, monkeypatch: pytest.MonkeyPatch, violated: int, failed: int, rows: int, told: int) -> None:
    counts = SimpleNamespace(violated=violated, failed=failed, rows=rows)
    summary = SimpleNamespace(counts=counts, runs=5, unknown=0, vacuous=0, folder=None, to_json=lambda: {})
    monkeypatch.setattr("orderlab.spark_sweeps.runs.job.run_loaded", lambda *_, **__: summary)
    file = next(
        file for file in sorted((ROOT / "spark_sweeps/examples").glob("*.toml")) if "[question]" not in file.read_text()
    )
    assert code("sweep", file, "--json") == told


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "/nowhere"), ("specimens", "S999"), ("mutate", "/nowhere"), ("replay", "/nowhere"),
        ("explore", "nothing"), ("simulate", "nothing"), ("calibrate", "nowhere://"), ("check", "/nowhere"),
        ("sweep", "/nowhere"), ("bench", "nothing"),
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True], ids=["", "json"])
def test_an_unusable_input_is_2_and_one_line(
    code: Code, arguments: tuple[str, ...], as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert code(*arguments, *(["--json"] if as_json else [])) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1, told.err
    assert told.err.startswith("orderlab: ")


@pytest.mark.parametrize("name", cli.COMMANDS)
@pytest.mark.parametrize(
    "error",
    [RecursionError("deep"), MemoryError(), AssertionError("never"), EOFError(), SystemExit(0), WorkerDied("it died")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_command_raises_is_70(
    code: Code, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, error: BaseException
) -> None:
    """Even the sys.exit(0) of somebody's own file, which would say that every law holds."""

    def fail() -> None:
        raise error

    from importlib import import_module

    monkeypatch.setattr(import_module(f"orderlab.commands.{name}"), name, fail)
    assert code(name) == 70
    told = capfd.readouterr().err
    assert len(told.splitlines()) == 1
    assert "defect" in told
    assert exit_codes.TRACEBACK in told


def ended_by(error: BaseException) -> int:
    return int(exit_codes.ended_by(error, "trial"))


def test_a_traceback_is_shown_to_who_asks(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(exit_codes.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 / 0
    assert ended_by(raised.value) == 70
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InputError("a: b; c"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file", "/their/file"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file", str(Path(exit_codes.__file__).parent / "own.txt")), 70),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), 70),
        (ConnectionResetError(errno.ECONNRESET, "reset"), 70),
        (KeyboardInterrupt(), 130),
        (Terminated(15), 143),
    ],
)
def test_what_the_user_can_mend_is_2_and_the_rest_is_not(error: BaseException, told: int) -> None:
    assert ended_by(error) == told


def test_a_line_shows_no_controls_of_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    ended_by(InputError("a\x1b[2Jb\x9bc\r\nd\u202ee"))
    assert capfd.readouterr().err == "trial: a\\x1b[2Jb\\x9bc d\\u202ee\n"


def process(text: str, **how: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import os, sys\nfrom orderlab import exit_codes\n{text}"]
    how = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, **how}
    return subprocess.run(command, cwd=ROOT, text=True, check=False, **how)


BREAK_A_PIPE = """
def main():
    reading, writing = os.pipe()
    os.close(reading)
    os.write(writing, b"to a worker that has died")
exit_codes.run(main, "trial")
"""


def test_a_pipe_to_a_worker_is_not_the_users_pipe() -> None:
    assert process(BREAK_A_PIPE).returncode == 70


def test_a_standard_error_that_is_full_changes_no_code() -> None:
    with Path("/dev/full").open("w") as full:
        assert process("exit_codes.run(lambda: 1 / 0, 'trial')", stderr=full).returncode == 70


LOST = """
import signal, time

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), {number})
        len("the handler runs here")

def main():
    Dropped()
    time.sleep(10)
exit_codes.run(main, "trial")
"""
WITHIN_A_CALLBACK = """
import signal, time
from orderlab.platform import kept_whole

def compile_it():
    os.kill(os.getpid(), {number})
    len("the handler runs here")
    print("whole", flush=True)
kept_whole(compile_it)

def main():
    compile_it()
    time.sleep(10)
exit_codes.run(main, "trial")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_asks_for_the_end_is_heard_where_python_drops_errors_and_waits_where_they_do_harm(number: int) -> None:
    lost = process(LOST.format(number=int(number)))
    assert (lost.returncode, lost.stderr) == (of_signal(number), "")
    kept = process(WITHIN_A_CALLBACK.format(number=int(number)))
    assert (kept.returncode, kept.stdout, kept.stderr) == (of_signal(number), "whole\n", "")


AS_TYPER_DOES = """
import time

def main():
    try:
        os.kill(os.getpid(), 15)
        time.sleep(10)
    except KeyboardInterrupt:
        return 130
exit_codes.run(main, "trial")
"""


def test_a_command_that_was_terminated_tells_so() -> None:
    assert process(AS_TYPER_DOES).returncode == 143


def test_a_damaged_file_that_aborts_its_reader_is_named() -> None:
    done = process('sys.argv = ["trial", "check", "h.parquet"]\nexit_codes.run(os.abort, "trial")')
    assert (done.returncode, done.stdout) == (2, "")
    assert "read your files was killed by SIGABRT before it had a verdict; one of them is damaged" in done.stderr


def test_what_a_library_makes_of_the_end_is_no_defect() -> None:
    """As Spark's does."""
    done = process(AS_TYPER_DOES.replace("return 130", "{}['p']"))
    assert (done.returncode, done.stderr) == (143, "")


ASKED_AT_THE_START = """
import signal
sys.modules.pop("orderlab.exit_codes")
sys.modules.pop("orderlab.model.verdict")
class Asked:
    def find_spec(self, name, path=None, target=None):
        if name == "orderlab.model.verdict":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Asked())
import orderlab.cli
"""


def test_an_interrupt_while_modules_are_imported_shows_no_traceback() -> None:
    done = process(ASKED_AT_THE_START)
    assert (done.returncode, done.stderr) == (130, "")


END_WHILE_WRITING = """
import signal, time
from pathlib import Path
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import Names

def main():
    with HistoryWriter(Path(sys.argv[1]), Names()):
        worker = os.fork()
        if not worker:
            time.sleep(60)
            os._exit(1)
        os.kill(worker, {number})
        ended = os.waitpid(worker, 0)[1]
        assert os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == {number}, ended
        os.kill(os.getpid(), {number})
        time.sleep(60)

signal.signal({number}, signal.SIG_DFL)  # under nohup it is ignored
exit_codes.run(main, "trial")
"""
IGNORED = """
import signal

def main():
    os.kill(os.getpid(), signal.SIGHUP)
    return 3

signal.signal(signal.SIGHUP, signal.SIG_IGN)
exit_codes.run(main, "trial")
"""


def test_a_program_under_nohup_goes_on() -> None:
    assert process(IGNORED).returncode == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_half_written_goes_when_a_signal_asks_to_end(number: int, tmp_path: Path) -> None:
    """A forked worker just dies of it."""
    text = END_WHILE_WRITING.replace("{number}", str(int(number)))
    command = [
        sys.executable,
        "-c",
        f"import os, sys\nfrom orderlab import exit_codes\n{text}",
        str(tmp_path / "h.parquet"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (of_signal(number), "", "")
    assert not list(tmp_path.iterdir())


PROGRAMS = [
    path.relative_to(ROOT) for room in ("model", "sim", "properties", "spark_sweeps", "benchmarks", "tests/laboratory")
    for path in sorted((ROOT / room).rglob("*.py")) if '__name__ == "__main__"' in path.read_text()
]  # fmt: skip
RUN_BY_A_PARENT = (
    "benchmarks/checkers.py",
    "benchmarks/checkers_history.py",
    "benchmarks/clients_programs.py",
    "spark_sweeps/packaging.py",
    "spark_sweeps/main.py",
    "tests/laboratory/conformance/amqtt_broker.py",
    "tests/laboratory/conformance/rq_program.py",
)
"""Run by another program of ours, which looks at what they do."""


def test_every_program_ends_as_the_command_line_does() -> None:
    found = {str(path) for path in PROGRAMS}
    assert found >= {
        "sim/native/build.py",
        "tests/laboratory/steadiness.py",
        "tests/laboratory/conformance/__main__.py",
    }
    for path in sorted(found - set(RUN_BY_A_PARENT)):
        assert "exit_codes.run(" in (ROOT / path).read_text(), path


def test_a_program_that_fails_ends_with_70_and_one_that_refuses_with_2() -> None:
    done = process("exit_codes.run(lambda: 1 / 0, 'trial')")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (70, "", 1)
    assert process("exit_codes.run(lambda: sys.exit('trial: no'), 'trial')").returncode == 2
    assert process("exit_codes.run(lambda: None, 'trial')").returncode == 0


def test_errors_in_json_are_one_line_and_no_json(code: Code, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_history(parse_history(GOOD), tmp_path / "h.jsonl")
    assert code("check", tmp_path / "h.jsonl", "--law", "fifo", "--json") == 0
    assert json.loads(capfd.readouterr().out)
    assert code("check", tmp_path / "none.jsonl", "--json") == 2
    assert capfd.readouterr().out == ""


def test_the_environment_names_what_is_documented() -> None:
    assert exit_codes.TRACEBACK in (ROOT / "README.md").read_text()
    assert os.environ.get(exit_codes.TRACEBACK) != "1", "the tests count lines of messages"


ENDS = [
    ("os._exit(0)", "import"),
    ("os._exit(1)", "call"),
    ("sys.exit(0)", "import"),
    ("__import__('posix')._exit(0)", "call"),
    ("__import__('ctypes').CDLL(None)._exit(0)", "import"),
    ("__import__('ctypes').CDLL(None)._exit(0)", "call"),
    ("os.kill(os.getpid(), 9)", "call"),
    ("__import__('threading').Thread(target=os._exit, args=(0,)).run()", "import"),
]


@pytest.mark.parametrize(("call", "where"), ENDS)
def test_what_a_user_s_code_calls_is_no_verdict(tmp_path: Path, call: str, where: str) -> None:
    text = (
        f"import os, sys\n{call}\n"
        if where == "import"
        else f"import os, sys\nclass Lock:\n    def __init__(self): {call}\n"
    )
    (tmp_path / "own.py").write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "orderlab", "explore", f"{tmp_path}/own.py:Lock"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("call", ["os._exit(0)", "__import__('ctypes').CDLL(None)._exit(0)"])
def test_what_the_function_of_a_sweep_calls_is_no_verdict(tmp_path: Path, call: str) -> None:
    """Neither where its module is imported nor in a run that is done in this process."""
    for name, text in (("first", f"import os\n{call}\n"), ("later", f"import os\ndef run(*_): {call}\n")):
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / f"{name}.toml").write_text(f'system = "{name}:run"\noutput = "out"\n[axes]\na = [1]\n')
        ended = subprocess.run(
            [sys.executable, "-m", "orderlab", "sweep", f"{name}.toml", "--only", "0"],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "ended with exit code 0 before it had a verdict" in ended.stderr


def test_a_contract_that_ends_the_process_is_no_verdict(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "orderlab" / "lua" / "lock", tmp_path / "lock")
    contract = tmp_path / "lock" / "lease.py"
    contract.write_text(f"{contract.read_text()}\nimport os\nos.execlp('true', 'true')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "orderlab", "validate", f"{tmp_path}/lock", "--trust-adapter", "--effort", "quick"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "leave the call out" in ended.stderr


WITHOUT_POSIX = """
import os, signal, subprocess, sys
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("SIGHUP", "SIGKILL", "SIGVTALRM", "SIGSTOP", "SIGCONT", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
for name in ("fork", "sched_getaffinity", "register_at_fork", "getuid", "killpg", "setsid"):
    delattr(os, name)
"""
"""What Windows lacks, and in part macOS."""
PUBLIC = ("contract", "history", "specification", "adapter", "machines", "properties.plugin")


def alone(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)


LACKING = {
    "all": WITHOUT_POSIX,
    "fork": "import os; del os.fork",
    "locks": "import sys; sys.modules['fcntl'] = None",
    "limits": "import sys; sys.modules['resource'] = None",
}
AS_MACOS = """
import os, signal, sys
for module, name in ((signal, "SIGHUP"), (signal, "sigwaitinfo"), (os, "sched_getaffinity"), (os, "pidfd_open")):
    if hasattr(module, name):
        delattr(module, name)
"""
"""What commands can do without, and one thing more."""


def called(command: str) -> str:
    return f"import sys; sys.argv = 'orderlab {command}'.split(); from orderlab.cli import main; main()"


@pytest.mark.parametrize(
    ("missing", "command"),
    [("all", "validate lua/session"), ("all", "-h"), ("fork", "explore"), ("locks", "sweep x"), ("limits", "mutate x")],
)
def test_where_there_is_no_posix_system_it_says_so_in_one_line(missing: str, command: str) -> None:
    ended = alone(f"{LACKING[missing]}\n{called(command)}")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert "run it on Linux or macOS" in ended.stderr


@pytest.mark.parametrize(
    "command",
    [
        "validate lua/limiter --trust-adapter --effort 0.02",
        "explore increment --workers 2 --set threads=2 --set lock=true",
        "sweep spark_sweeps/examples/lettuce_batching.toml --dry-run",
    ],
)
def test_what_a_command_can_do_without_ends_none(command: str) -> None:
    ended = alone(f"{AS_MACOS}\n{called(command)}")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_others_import_needs_no_posix_system() -> None:
    """pytest loads the plugin wherever this is installed."""
    imports = "\n".join(f"import orderlab.{name}" for name in PUBLIC)
    ended = alone(f"{WITHOUT_POSIX}\n{imports}")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_where_no_affinity_is_known_all_cores_count() -> None:
    ended = alone(
        "import os; del os.sched_getaffinity\nfrom orderlab.platform import cores; print(cores(), os.cpu_count())"
    )
    assert ended.stderr == ""
    assert len(set(ended.stdout.split())) == 1


@pytest.mark.parametrize("command", [(), ("validate",), ("check",)])
def test_the_short_option_for_help(code: Code, capfd: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert code(*command, "-h") == 0
    short = capfd.readouterr().out
    assert code(*command, "--help") == 0
    assert capfd.readouterr().out == short


def test_without_the_signals_of_unix_a_command_ends_as_it_should(
    monkeypatch: pytest.MonkeyPatch, code: Code, tmp_path: Path
) -> None:
    write_history(parse_history(GOOD), tmp_path / "h.jsonl")
    monkeypatch.delattr(signal, "SIGHUP")
    monkeypatch.delattr(os, "register_at_fork")
    assert code("check", tmp_path / "h.jsonl", "--law", "fifo") == 0


INTERRUPTED_AT = """
import os, runpy, signal, sys
place = sys.argv.pop(1)

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == place:
            os.killpg(0, signal.SIGINT)

if place == "fork":
    at = os.fork
    os.fork = lambda: (os.killpg(0, signal.SIGINT), at())[1]
else:
    sys.meta_path.insert(0, Interrupts())
runpy.run_module("orderlab", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("command", ["--help", "validate lua/limiter --trust-adapter --effort quick --no-cache"])
@pytest.mark.parametrize("place", ["orderlab.commands", "orderlab.model.errors", "orderlab.application", "fork"])
def test_ctrl_c_while_a_command_starts_is_no_traceback_and_no_verdict(command: str, place: str) -> None:
    """As from a terminal, which tells every process of the group."""
    if place == "fork" and command == "--help":
        return  # runs nobody's code, so that nothing is forked
    line = [sys.executable, "-c", INTERRUPTED_AT, place, *command.split()]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, start_new_session=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
