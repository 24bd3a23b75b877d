"""Same seed, same bytes of history: in two processes, under another PYTHONHASHSEED, with and without tracing,
compiled and interpreted, whatever strikes."""

import json
import os
import subprocess
import sys

from orderlab.sim.faults import FAULTS

PROGRAM = """
import json, sys
from orderlab.sim.faults import FAULTS
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from orderlab.sim.systems.timeline import Tracer

digests = {}
for name in ("", *(name for name, kind in FAULTS.items() if kind.among != "postgres")):
    settings = P2PSettings(
        publishers=12, rate=20.0, brokers=2, warm_up_s=0.1, duration_s=0.3, session_timeout_s=0.2, drain_s=0.5,
        request_timeout_s=0.2, pack_pause_s=0.1, command_timeout_s=0.2, redis_replica_lag_ms=50, offline_share=0.4,
        expiry_s=30, appendfsync="everysec", faults=name and f"{name}@0.2:0", fault_rates="redis-stall=3/s",
    )
    sinks = []
    system = P2PSystem(settings, 3, sinks)
    if sys.argv[1] == "traced":
        tracer = Tracer(100_000, 400_000)
        tracer.attach(system.world)
        sinks.append(tracer.sink)
    system.run()
    digests[name] = system.digest
print(json.dumps(digests))
"""


def digests(mode, hash_seed, compiled):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "ORDERLAB_COMPILED": compiled},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_every_fault_gives_the_same_history_in_every_process_traced_or_not():
    plain, traced = digests("plain", "1", "1"), digests("traced", "2", "0")
    assert plain == traced
    assert set(plain) == {"", *(name for name, kind in FAULTS.items() if kind.among != "postgres")}
    assert len(set(plain.values())) == len(plain), "every fault leaves its row at least"
