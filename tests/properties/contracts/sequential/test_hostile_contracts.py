"""Contracts that do to the process what none may: one line that names them, in bounded time, and never a verdict."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orderlab import code_of_user
from orderlab.code_of_user import Guard, Questions, Spoiled, Unanswered
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_authors_mistakes import GOOD, LUA, TOML

ANSWER = 'yield state + call["by"], state + call["by"]'
LOWERS = "import resource; resource.setrlimit"
HOSTILE = [
    ("forks", "import os; os.fork()", r"Counter.outcomes: forks"),
    ("forks and hides it", "import os\n        if not os.fork(): os._exit(0)", r"Counter.outcomes: forks"),
    ("empties sys.modules", "import sys; sys.modules.clear()", r"outcomes: removes \w+ from sys.modules"),
    ("empties sys.path", "import sys; sys.path.clear()", r"outcomes: removes folders from sys.path"),
    ("replaces stdout", "import sys; sys.stdout = None", r"outcomes: replaces sys.stdout"),
    ("recursion", "import sys; sys.setrecursionlimit(400)", r"sets the limit of recursion to 400; leave that out"),
    ("spoils len", "import builtins; builtins.len = None", r"outcomes: replaces len in builtins; leave that out"),
    ("spoils isinstance", "import builtins; del builtins.isinstance", r"replaces isinstance in builtins"),
    ("spoils sorted", "import builtins; builtins.sorted = lambda *a, **k: []", r"replaces sorted in builtins"),
    ("crashes", "import os; os.kill(os.getpid(), 11)", r"outcomes: ends the process that asks it \(killed by SIGSEGV"),
    ("leaves", "import os; os._exit(0)", r"counter.py:14: Counter.outcomes: ends the process .*os._exit\(0\)"),
    ("leaves with 3", "import os; os._exit(3)", r"outcomes: ends the process that asks it \(exit status 3\)"),
    ("closes files", "import os; os.closerange(3, 256)", r"outcomes: closes files that it has not opened; leave"),
    ("exchanges files", "import os; [os.dup2(1, n) for n in range(3, 256)]", r"closes files that it has not opened"),
    (
        "lowers files",
        f"{LOWERS}(resource.RLIMIT_NOFILE, (4, 4))",
        r"lowers the limit RLIMIT_NOFILE of its process to 4;",
    ),
    (
        "lowers memory",
        f"{LOWERS}(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        r"lowers the limit RLIMIT_AS of its process",
    ),
    ("lowers time", f"{LOWERS}(resource.RLIMIT_CPU, (1, 2))", r"outcomes: lowers the limit RLIMIT_CPU of its process"),
    ("lowers sizes", f"{LOWERS}(resource.RLIMIT_FSIZE, (1, 1))", r"outcomes: lowers the limit RLIMIT_FSIZE of its"),
    (
        "hears no child",
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        r"changes what SIGCHLD does; leave",
    ),
    (
        "is not ended",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        r"changes what SIGTERM does; leave",
    ),
    ("sleeps", "import time; time.sleep(1e6)", r"outcomes: does not end: it has waited for 1 s"),
    (
        "swallows what ends it",
        "\n        while 1:\n            try:\n                while 1: pass\n            except BaseException: pass",
        r"outcomes: does not end",
    ),
]


def store(folder: Path, at_outcomes: str = "", at_import: str = "", at_init: str = "") -> Path:
    text = at_import + GOOD.replace(ANSWER, f"{at_outcomes}\n        {ANSWER}")
    if at_init:
        text = text.replace("    def initial", f"    def __init__(self):\n        {at_init}\n\n    def initial")
    (folder / "store.toml").write_text(TOML)
    (folder / "counter.py").write_text(text)
    (folder / "add.lua").write_text(LUA)
    return folder


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECONDS_MAX": 0.5, "SECONDS_MORE": 0.5, "WAITING_S_MAX": 1.0}.items():
        monkeypatch.setattr(code_of_user, name, value)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    line = [sys.executable, "-m", "orderlab", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=False)


def judged(folder: Path, **order: float) -> Outcome:
    binding = load_binding(folder, trust_adapter=True)
    return kind_of(binding).validate(binding, WorkOrder(0.05, 0, **order)).outcome  # type: ignore[arg-type]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("at_outcomes", "message"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_what_a_contract_does_to_the_process_is_told_as_its_own(tmp_path: Path, at_outcomes: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        judged(store(tmp_path, at_outcomes))


@pytest.mark.parametrize(
    "at_outcomes",
    [
        'print("hello")',
        "import threading; threading.Thread(target=print, daemon=True).start()",
        "import contextlib, io\n        with contextlib.redirect_stdout(io.StringIO()): print(1)",
        "import colorsys, sys; sys.path.append(str(len(sys.path)))",
        "import builtins; builtins._ = str",
        f"{LOWERS}(resource.RLIMIT_CORE, (0, 0))",
        "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    ],
)
def test_what_harms_nobody_is_let(tmp_path: Path, at_outcomes: str) -> None:
    assert judged(store(tmp_path, at_outcomes)) is not Outcome.VIOLATED


@pytest.mark.usefixtures("hasty")
def test_a_budget_ends_what_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_of_user, "WAITING_S_MAX", 600.0)
    with pytest.raises(InputError, match=r"outcomes: does not end: .* when the --budget was over"):
        judged(store(tmp_path, "import time; time.sleep(1e6)"), budget_s=0.5)


@pytest.mark.parametrize(
    ("where", "does", "message"),
    [
        ("at_import", "import sys; sys.setrecursionlimit(300)", "sets the limit of recursion to 300"),
        ("at_init", "import sys; sys.stdout = None", "replaces sys.stdout"),
        ("at_init", "import sys; sys.modules.clear()", "from sys.modules"),
        ("at_import", "import sys; sys.modules.clear()", "from sys.modules"),
        ("at_import", "import os; os.fork()", "forks"),
        ("at_import", "import os; os.closerange(3, 256)", "closes files that it has not opened"),
        (
            "at_import",
            f"{LOWERS}(resource.RLIMIT_NOFILE, (4, 4096))",
            "lowers the limit RLIMIT_NOFILE of its process to 4;",
        ),
        ("at_import", f"{LOWERS}(resource.RLIMIT_AS, (1 << 20, 1 << 20))", "lowers the limit RLIMIT_AS of its process"),
        ("at_init", f"{LOWERS}(resource.RLIMIT_FSIZE, (1, 1))", "lowers the limit RLIMIT_FSIZE of its process to 1;"),
        ("at_init", f"{LOWERS}(resource.RLIMIT_CPU, (1, 2))", "lowers the limit RLIMIT_CPU of its process to 1;"),
        ("at_import", "import builtins; builtins.__import__ = builtins.next = None", "replaces __import__ in"),
    ],
)
def test_what_it_does_when_it_is_loaded_is_told_as_well(tmp_path: Path, where: str, does: str, message: str) -> None:
    """In a process of its own, which would not be the same afterwards."""
    given: dict[str, str] = {where: f"{does}\n" if where == "at_import" else does}
    done = command("validate", str(store(tmp_path, **given)), "--trust-adapter")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"counter.py:Counter failed: {message}" in done.stderr or (
        "counter.py:Counter failed: removes" in done.stderr and message in done.stderr
    )


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("does", ["import time; time.sleep(1e6)", "while True: pass"])
def test_a_load_that_does_not_end_is_ended(tmp_path: Path, does: str) -> None:
    with pytest.raises(InputError, match=r"failed: does not end"):
        load_binding(store(tmp_path, at_import=f"{does}\n"), trust_adapter=True)


def test_loading_leaves_folder_and_signals_as_they_were(tmp_path: Path) -> None:
    import signal

    def as_it_is() -> list[object]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        return [Path.cwd(), handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ())]

    before = as_it_is()
    spoils = (
        'import os, signal; os.chdir("/"); [signal.signal(n, signal.SIG_IGN) for n in (2, 15, signal.SIGCHLD)]\n'
        "signal.pthread_sigmask(signal.SIG_BLOCK, {2, 15, signal.SIGCHLD})\n"
    )
    load_binding(store(tmp_path, at_import=spoils), trust_adapter=True)
    assert before == as_it_is()


def test_a_thread_that_it_leaves_does_not_hold_the_command_and_its_words_are_no_output(tmp_path: Path) -> None:
    leaves = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\nprint('at import')\n"
    folder = store(tmp_path, 'print("a question")', at_import=leaves)
    done = command("validate", str(folder), "--trust-adapter", "--effort", "0.05", "--json", "--backend", "kernel")
    assert done.returncode in (0, 3), done.stderr[-2000:]
    json.loads(done.stdout)
    assert "a question" in done.stderr


@pytest.mark.parametrize(
    ("used", "passes", "deadline_s", "is_ended"),
    [
        (lambda n: n * 1.0, 24, None, False),
        (lambda n: n * 1.0, 27, None, True),  # works
        (lambda n: 0.0, 59, None, False),
        (lambda n: 0.0, 62, None, True),  # waits
        (lambda n: n * 0.1, 62, None, False),  # works on a busy machine
        (lambda n: n * 0.1, 7, 1.0, True),
        (lambda n: n * 0.1, 4, 1.0, False),
    ],
)
def test_when_a_question_counts_as_endless(
    used: Callable[[int], float], passes: int, deadline_s: float | None, is_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(code_of_user.time, "monotonic", lambda: clock[0])
    notes = Questions()
    if deadline_s is not None:
        notes.set_deadline(1000.0 + deadline_s)
    notes.begin(b"a question")
    look, told = Unanswered(notes), None
    for second in range(passes):
        clock[0] += 1.0 if second != 3 else 3600.0 * (deadline_s is None) + 1.0  # stopped for an hour: nobody's fault
        told = told or look.why(used(second))
    assert (told is not None) == is_ended


def test_a_guard_puts_right_what_it_tells() -> None:
    importlib.import_module("colorsys")
    limit, names = sys.getrecursionlimit(), set(sys.modules)

    def spoil() -> None:
        with Guard("x"):
            sys.setrecursionlimit(limit + 1)
            del sys.modules["colorsys"]

    with pytest.raises(Spoiled, match="removes"):
        spoil()
    assert (sys.getrecursionlimit(), set(sys.modules)) == (limit, names)
