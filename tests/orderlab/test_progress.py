"""Progress: elapsed and remaining time on a terminal, nothing in a pipe, and no promise that rests on nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from orderlab.report.progress import ProgressLine, seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def shown(screen: Terminal) -> str:
    return screen.getvalue().rpartition("\x1b[K")[2]


def test_the_time_left_follows_from_the_share_that_is_done() -> None:
    screen, clock = Terminal(), Clock()
    line = ProgressLine("store", to=screen, clock=clock)
    line.show("1 of 4", 0.25)
    clock.now_s += 10
    line.show("1 of 4", 0.25)
    assert shown(screen) == "store: [######..................] 1 of 4, 10 s so far, about 30 s left"
    line.show("4 of 4", 1.0)
    assert shown(screen).endswith("10 s so far, about 0 s left")
    line.clear()
    assert shown(screen) == ""


def test_nothing_is_promised_where_nothing_is_known(tmp_path: Path) -> None:
    screen, clock = Terminal(), Clock()
    line = ProgressLine("store", "work", to=screen, clock=clock, kept=tmp_path)
    line.show("scenarios")
    clock.now_s += 20
    line.show("walks")
    assert shown(screen) == "store: walks, 20 s so far"


def test_a_cap_is_never_passed_by_an_estimate() -> None:
    screen, clock = Terminal(), Clock()
    line = ProgressLine("", cap_s=30.0, to=screen, clock=clock)
    line.show("searching")
    assert shown(screen).endswith("at most 30 s left")
    clock.now_s += 20
    line.show("half", 0.2)
    assert shown(screen).endswith("at most 10 s left")
    line.show("more", 0.8)
    assert shown(screen).endswith("about 5 s left")
    clock.now_s += 20
    line.show("late")
    assert shown(screen).endswith("at most 0 s left")


def test_the_same_work_again_is_told_by_the_last_time_at_the_pace_of_this_one(tmp_path: Path) -> None:
    clock = Clock()
    first = ProgressLine("store", "work", to=Terminal(), clock=clock, kept=tmp_path)
    first.show("scenarios")
    clock.now_s += 10
    first.show("walks")
    clock.now_s += 30
    first.clear()
    screen = Terminal()
    again = ProgressLine("store", "work", to=screen, clock=clock, kept=tmp_path)
    again.show("scenarios")
    assert shown(screen).endswith("by the last time about 40 s left")
    clock.now_s += 20
    again.show("walks")  # twice as slow
    assert shown(screen).endswith("20 s so far, by the last time about 60 s left")
    clock.now_s += 90
    again.show("walks")
    assert shown(screen).endswith("longer than the last time")
    again.clear(is_whole=False)  # interrupted: the time of a part says nothing of the whole
    assert list(tmp_path.glob("*.running")) == []
    other = ProgressLine("store", "other work", to=screen, clock=clock, kept=tmp_path)
    other.show("scenarios")
    assert shown(screen).endswith("0 s so far")


def test_a_pipe_hears_nothing(tmp_path: Path) -> None:
    pipe = io.StringIO()
    line = ProgressLine("store", "work", to=pipe, kept=tmp_path)
    line.show("scenarios", 0.5)
    line.clear()
    assert pipe.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_of_times_is_no_matter(tmp_path: Path) -> None:
    ProgressLine("", "work", to=Terminal(), kept=tmp_path).show("x")
    for damaged in ("{", "[]", '{"": "soon"}'):
        for file in tmp_path.iterdir():
            file.with_suffix(".json").write_text(damaged)
        screen = Terminal()
        line = ProgressLine("", "work", to=screen, kept=tmp_path)
        line.show("x")
        assert shown(screen) == "x, 0 s so far"
        line.clear()
        line.show("x")


def test_texts_of_scripts_do_not_move_the_cursor() -> None:
    screen = Terminal()
    ProgressLine("\x1b[2J", to=screen).show("\x1b[1A\r")
    assert shown(screen) == "\\x1b[2J: \\x1b[1A\\r, 0 s so far" or "\x1b" not in shown(screen)


def test_compiling_is_told_as_compiling() -> None:
    from orderlab.model.machine_code import njit

    screen = Terminal()
    line = ProgressLine("h", to=screen)

    @njit()
    def triple(number: int) -> int:
        return 3 * number

    line.show("judging")
    with line.telling_compilation():
        assert triple(2) == 6
        assert "compiling" in shown(screen)
        line.show("judging")
        assert triple(3) == 9
        assert shown(screen).startswith("h: judging")


def test_times_are_for_people() -> None:
    assert [seconds(one) for one in (0.4, 99, 100, 5999, 7200)] == ["0 s", "99 s", "2 min", "100 min", "2.0 h"]


def test_in_a_pipe_a_line_comes_each_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, clock = io.StringIO(), Clock()
    monkeypatch.delenv("ORDERLAB_PROGRESS", raising=False)
    line = ProgressLine("store", to=pipe, clock=clock)
    for text in ("scenarios", "walks", "witness of order", "what grows"):
        line.show(text)
        clock.now_s += 6
    assert pipe.getvalue() == "store: witness of order, 12 s so far\n"
    monkeypatch.setenv("ORDERLAB_PROGRESS", "0")
    silent = ProgressLine("store", to=(quiet := io.StringIO()), clock=clock)
    clock.now_s += 60
    silent.show("walks")
    assert quiet.getvalue() == ""
