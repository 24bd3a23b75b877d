"""Whatever a run does to its process, it becomes a row, and its neighbours are untouched."""

import gc
import mmap
import os
from pathlib import Path

import pytest

from orderlab.spark_sweeps.runs.isolation import isolated
from tests.spark_sweeps.subjects import hostile

FATES = {
    "raise": ("error", "ValueError: out of range (subjects.py:"),
    "exit": ("error", "SystemExit: 3"),
    "_exit": ("killed", "left with exit code 4"),
    "segfault": ("killed", "ended by SIGSEGV"),
    "kill": ("killed", "ended by SIGKILL"),
    "loop": ("timeout", "stopped after 2 s (limits.wall_s)"),
    "lua loop": ("timeout", "stopped after 2 s (limits.wall_s)"),
    "memory": ("memory", "MemoryError"),
    "close": ("killed", ""),
    "garbage": ("killed", ""),
    "child": ("killed", "left with exit code 0"),
    "result": ("error", ""),
}


@pytest.mark.parametrize(("is_timed", "wall_s"), [(False, 60), (True, 2)])
def test_every_hostile_run_becomes_a_row_and_the_runs_between_do_not_notice(is_timed, wall_s):
    hows = [how for fate, (status, _) in FATES.items() if (status == "timeout") == is_timed for how in (fate, "behave")]
    found = list(isolated(lambda item: hostile({"how": hows[item]}, 0), range(len(hows)), wall_s=wall_s, memory_mib=300))
    assert [ended.item for ended in found] == list(range(len(hows)))
    for how, ended in zip(hows, found, strict=True):
        status, told = FATES.get(how, ("ok", None))
        if how == "result":  # an object of no importance pickles well; that it is no number is the subject's affair
            continue
        assert ended.status == status, (how, ended)
        assert (ended.error is None) if told is None else (told in ended.error)


def test_nothing_is_left_behind():
    before = len(os.listdir("/proc/self/fd")), children()
    list(isolated(lambda item: hostile({"how": ["_exit", "child", "behave"][item]}, 0), range(3), 5, 300))
    assert (len(os.listdir("/proc/self/fd")), children()) == before


def children():
    """Those of this process, the dead that nobody waited for among them; a Spark session of other tests may be one."""
    return {child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()}


def test_a_caller_that_stops_early_ends_the_child():
    runs = isolated(lambda item: os.getpid(), range(100), 5, 300)
    pid = next(runs).result
    runs.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_memory_and_processor_time_are_those_of_the_run():
    def work(item):
        size = 50 * 2**20 if item == 1 else 4096
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) as block:  # a bytearray may lie where earlier tests freed as much
            for page in range(0, size, 4096):
                block[page] = 1
        return sum(range(200_000))

    gc.collect()  # else a child may free, in the middle of an item, what earlier tests have left behind
    found = list(isolated(work, range(3), 30, 300))
    assert [(ended.status, ended.error) for ended in found] == [("ok", None)] * 3
    small, large, again = (ended.usage for ended in found)
    assert large.peak_memory_mib - small.peak_memory_mib == pytest.approx(50, abs=8), found
    assert again.peak_memory_mib - small.peak_memory_mib < 8, found
    assert 0 <= small.cpu_s <= 5
