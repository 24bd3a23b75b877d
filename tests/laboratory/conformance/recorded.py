"""``python -m tests.laboratory.conformance.recorded``: real servers recorded, killed and started again, and judged.

A real Redis under the workers of rq, whose calls and replies are held against a contract (`rq_queue`) and whose effects
are counted; Mosquitto, and amqtt as a second broker, by the laws of histories. What is violated is printed beside what
is known (`notes/record.md`). Exit code 1 where a law is violated that is not known to be; 2 where something is missing,
with the command that installs it. The libraries lie where ``tests/properties/clients/libraries/install.py`` puts them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis

from orderlab import exit_codes
from orderlab.model.history.disk import HistoryFile
from orderlab.properties.recordings import RecordingJudge
from orderlab.sim.live import ServerProcess
from orderlab.sim.recording.redis_calls import CallRecording
from orderlab.sim.recording.redis_proxy import RecordingProxy, record_program
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.clients.libraries import install

HERE: Final = Path(__file__).parent
RQ, AMQTT = "rq==3.0.0", "amqtt==0.12.1"
KEYS: Final = {"queue": "rq:queue:default", "begun": "rq:queue:default:intermediate"}
DOWN_S: Final = 0.2
"""How long a killed server stays away."""


class KeptServer(ServerProcess):
    """A server that has every write on its disk before it replies: what is killed comes back with all of it."""

    SETTINGS: Final = {"appendonly": "yes", "appendfsync": "always"}

    def __init__(self) -> None:
        super().__init__(self.SETTINGS)

    def __enter__(self) -> KeptServer:
        return self

    def kill(self) -> None:
        """SIGKILL."""
        self._kill()

    def start_again(self) -> None:
        """On the same port, with what lies in its folder."""
        self._start(dict(self.SETTINGS))


@dataclass
class Effects:
    """What became of the jobs."""

    done: Counter[int] = field(default_factory=Counter)
    """How often jobs were carried out."""
    lost: list[str] = field(default_factory=list)
    """Enqueued for sure, never carried out, and nowhere to be found."""


async def _kill_under_way(server: KeptServer, recording: CallRecording, every: int, kills: int) -> None:
    """Kill the server whenever so many calls more have been passed on, at once."""
    for number in range(1, kills + 1):
        while recording.calls < number * every:
            await asyncio.sleep(0)
        server.kill()
        await asyncio.sleep(DOWN_S)
        server.start_again()  # by this thread: it dies with the one that started it


def _effects(server: KeptServer, jobs: int) -> Effects:
    effects = Effects()
    with redis.Redis(port=server.port) as client:
        for number in range(jobs):
            name = f"job{number}"
            times = int(client.get(f"done:{name}") or 0)
            effects.done[times] += 1
            if not times and client.exists(f"rq:job:{name}"):
                held = [key for key in KEYS.values() if name.encode() in client.lrange(key, 0, -1)]
                registries = [key for key in client.keys("rq:*:default") if client.type(key) == b"zset"]
                held += [key for key in registries if any(name.encode() in each for each in client.zrange(key, 0, -1))]
                effects.lost += [] if held else [name]
    return effects


def record_workers(history: Path, jobs: int, workers: int, kills: int) -> Effects:
    """Record rq's workers on a server that is killed so often."""
    path = [str(install.place(RQ)), str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    program = [sys.executable, "-m", "tests.laboratory.conformance.rq_program", "together", str(jobs), str(workers)]
    with KeptServer() as server:
        recording = CallRecording()
        proxy = RecordingProxy((server.host, server.port), recording)

        async def both() -> None:
            killing = asyncio.ensure_future(_kill_under_way(server, recording, 10 * jobs, kills))
            await record_program(proxy, 0, program)
            await killing

        asyncio.run(both())
        recording.write(history)
        print(f"redis: {recording.calls:,} calls, {recording.unanswered} without a reply; killed {kills} times")
        return _effects(server, jobs)


def judge_workers(folder: Path, jobs: int, workers: int, kills: int) -> bool:
    """Whether what rq and the server did is as the contract says."""
    history = folder / "rq.parquet"
    effects = record_workers(history, jobs, workers, kills)
    binding = load_binding(HERE / "rq_queue", trust_adapter=True)
    verdicts, _ = RecordingJudge(binding, KEYS).judge(HistoryFile(history))
    for verdict in verdicts:
        print(f"  {verdict.law}: {verdict.outcome}{''.join(f'; {each}' for each in verdict.not_covered[:1])}")
        if verdict.witness is not None:
            print(f"    {verdict.witness}")
    times = ", ".join(f"{count} {number} times" for number, count in sorted(effects.done.items()))
    print(f"  jobs carried out: {times}; lost: {', '.join(effects.lost) or 'none'}")
    return not effects.lost and all(verdict.outcome != "violated" for verdict in verdicts)


@dataclass(frozen=True)
class Broker:
    """A broker, how it is started, and what it is known to violate without any fault."""

    name: str
    start: str
    protocol: str
    known: frozenset[str] = frozenset()
    kills: int = 0
    """Killed, its verdicts are told and not judged: MQTT does not say what a broker has on its disk when."""


_AMQTT: Final = "at-least-once agreement retransmission subscribed granted-qos exactly-once fifo packet-id will"


def brokers(folder: Path) -> list[Broker]:
    """Those that are recorded."""
    amqtt = f"{sys.executable} {HERE / 'amqtt_broker.py'} {{port}} {install.place(AMQTT)}"
    return [
        Broker("mosquitto", "mosquitto", "3.1.1"),
        Broker("mosquitto", "mosquitto", "5.0", frozenset({"receive-maximum"})),
        Broker("mosquitto", "mosquitto", "3.1.1", kills=1),
        Broker("amqtt", amqtt, "3.1.1", frozenset(_AMQTT.split())),
        Broker("amqtt", amqtt, "3.1.1", kills=1),
    ]


def judge_broker(broker: Broker, folder: Path, messages: int) -> bool:
    """Whether nothing is violated that is not known to be."""
    history = folder / f"{broker.name}-{broker.protocol}-{broker.kills}.parquet"
    asked = [
        "record", "mqtt", "--start", broker.start, "--history", str(history), "--messages", str(messages),
        "--protocol", broker.protocol, "--kills", str(broker.kills),
    ]  # fmt: skip
    ended = _orderlab(asked)
    if ended.returncode:
        print(f"{broker.name} {broker.protocol}: not recorded: {ended.stderr.strip().splitlines()[-1]}")
        return False
    check = next(line for line in ended.stdout.splitlines() if line.startswith("  orderlab check")).split()[1:]
    told = json.loads(_orderlab([*check, "--json"]).stdout)
    violated = {each["law"] for each in told["verdicts"] if each["outcome"] == "violated"}
    killed = ", killed once" if broker.kills else ""
    print(f"{broker.name}, MQTT {broker.protocol}{killed}: violated: {', '.join(sorted(violated)) or 'nothing'}")
    new = violated - broker.known
    if new and not broker.kills:
        print(f"  not known before: {', '.join(sorted(new))}")
    return bool(broker.kills) or not new


def _orderlab(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orderlab", *arguments], capture_output=True, text=True, check=False, timeout=400
    )


def main() -> int:
    """All, or what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["redis", "brokers"], help="redis, brokers")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=None, help="keep the histories here")
    given = parser.parse_args()
    if not all(install.place(name).is_dir() for name in (RQ, AMQTT)):
        print(f"{RQ}, {AMQTT}: not installed; {install.COMMAND}", file=sys.stderr)
        return 2
    if "brokers" in given.what and shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin") is None:
        print("mosquitto: not installed; apt-get install mosquitto", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        results = []
        if "redis" in given.what:
            results.append(judge_workers(folder, given.jobs, given.workers, given.kills))
        if "brokers" in given.what:
            results += [judge_broker(each, folder, given.messages) for each in brokers(folder)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    exit_codes.run(main, "recorded")
