"""What a log of the collector tells. The program itself is run by hand: it takes a minute."""

import argparse
import math

import pytest

from benchmarks import collector_pauses
from benchmarks.collector_pauses import figures, lognormal, measure, parse_log
from orderlab.model.errors import InputError

LOG = """
[0.011s][gc,init] Parallel Workers: 2
[3.440s][gc,start    ] GC(0) Pause Young (Normal) (G1 Evacuation Pause)
[3.461s][gc          ] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 76M->60M(1500M) 20.000ms
[3.461s][gc,cpu      ] GC(0) User=0.03s Sys=0.01s Real=0.02s
[3.462s][safepoint   ] Safepoint "G1CollectForAllocation", Time since last: 1 ns, Reaching safepoint: 2 ns, Cleanup: 3 ns, At safepoint: 4 ns, Total: 20500000 ns
[6.000s][gc          ] GC(2) Concurrent Mark Cycle 1186.558ms
[6.200s][gc          ] GC(2) Pause Remark 672M->672M(1500M) 5.000ms
[6.201s][safepoint   ] Safepoint "ICBufferFull", Time since last: 1 ns, Reaching safepoint: 2 ns, Cleanup: 3 ns, At safepoint: 4 ns, Total: 40000 ns
[7.500s][gc          ] GC(3) Pause Young (Mixed) (G1 Evacuation Pause) 725M->542M(1500M) 80.000ms
[7.500s][gc,cpu      ] GC(3) User=0.06s Sys=0.00s Real=0.08s
"""  # noqa: E501


def test_pauses_are_told_from_what_runs_beside_the_program():
    log = parse_log(LOG)
    assert [(pause.what, pause.ms, pause.cpu_ms) for pause in log.pauses] == [
        ("Pause Young (Normal) (G1 Evacuation Pause)", 20.0, 40.0),
        ("Pause Remark", 5.0, None),
        ("Pause Young (Mixed) (G1 Evacuation Pause)", 80.0, 60.0),
    ]
    assert [what for _, what, _ in log.safepoints_ms] == ["G1CollectForAllocation", "ICBufferFull"]
    assert log.workers == 2


def test_figures_leave_out_what_came_before_the_heap_was_full():
    told = figures(parse_log(LOG), 0, 10)
    assert (told["pauses"], told["median_ms"], told["max_ms"], told["mean_ms_at_least"]) == (
        3,
        pytest.approx(20),
        80,
        25,
    )
    assert (told["other_safepoints"], told["other_safepoints_max_ms"]) == (1, 0.04)
    assert figures(parse_log(LOG), 5, 10)["pauses"] == 2
    with pytest.raises(InputError, match="no distribution"):
        figures(parse_log(LOG), 7, 10)


def test_a_lognormal_is_that_of_the_logarithms():
    assert lognormal([10.0, 1000.0]) == (pytest.approx(100), pytest.approx(math.log(10) * 2**0.5))


def test_without_java_the_cure_is_told(monkeypatch):
    monkeypatch.setattr(collector_pauses.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="apt-get install"):
        measure(argparse.Namespace())
