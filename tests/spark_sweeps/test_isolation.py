"""Whatever a run does to its process, it becomes a row, and its neighbours are untouched."""

import gc
import mmap
import os
from pathlib import Path

import pytest

from orderlab.sim.systems.catalogue import SYSTEMS
from orderlab.spark_sweeps.runs.isolation import _status_kib, isolated
from orderlab.spark_sweeps.runs.subject import SimulatedSystem
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
    found = list(
        isolated(lambda item: hostile({"how": hows[item]}, 0), range(len(hows)), wall_s=wall_s, memory_mib=300)
    )
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


def test_what_a_run_leaves_in_cycles_is_gone_before_the_next():
    def work(item):
        ring = [bytearray(20 * 2**20)]
        ring.append(ring)
        return len(gc.get_objects())

    found = list(isolated(work, range(40), 30, 300))
    assert {ended.status for ended in found} == {"ok"}, [ended.error for ended in found if ended.error]


SYSTEMS_SMALL = {
    name: {"duration_s": 0.05} | ({"publishers": 20} if name.startswith("tbmq") else {}) for name in SYSTEMS
}
SYSTEMS_SMALL["tbmq-fan-out"] |= {"publishers": 10, "subscribers": 200}
RUNS_OF = {"tbmq-p2p": 2500, "tbmq-application": 2500}
"""Of the quick ones; of the others 400."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_memory_of_a_chunk_is_flat_over_many_runs_of_each_system(name):
    """At most 20 KiB a run once it is warm: 10^4 runs would come to a tenth of what limits.memory_mib allows."""
    system = SimulatedSystem(name)
    system.warm_up()

    def work(item):
        system.run(SYSTEMS_SMALL[name], item, None, "none")
        return _status_kib("VmData")

    quarter = RUNS_OF.get(name, 400) // 4
    found = list(isolated(work, range(4 * quarter), 600, 2048))
    assert {ended.status for ended in found} == {"ok"}
    held = [ended.result for ended in found]
    late, early = sum(held[3 * quarter :]) / quarter, sum(held[quarter : 2 * quarter]) / quarter
    assert late - early < 20 * 2 * quarter, held[:: quarter // 5]


def test_memory_and_processor_time_are_those_of_the_run():
    def work(item):
        size = 50 * 2**20 if item == 1 else 4096
        with mmap.mmap(
            -1, size, flags=mmap.MAP_PRIVATE
        ) as block:  # a bytearray may lie where earlier tests freed as much
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
