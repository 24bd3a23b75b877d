"""Writer and replayer killed in turn by SIGKILL: every message that was stored is seen once, in the order of its
topic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from orderlab.sim.streams.keys import LearnedPatterns
from orderlab.sim.streams.ordered_store import RocksStore
from orderlab.sim.streams.shard import Message, Shard

WRITER = """
import sys
from pathlib import Path
from orderlab.sim.streams.keys import LearnedPatterns
from orderlab.sim.streams.ordered_store import RocksStore
from orderlab.sim.streams.shard import Message, Shard
ticks = iter(range(10**9))
shard = Shard(RocksStore(Path(sys.argv[1]) / "db"), lambda: next(ticks), LearnedPatterns(3))
while True:
    first = shard.sequence
    print(shard.append([Message(f"a/{(first + more) % 7}/b", "p", b"%d" % (first + more)) for more in range(5)]), flush=True)
"""  # noqa: E501
REPLAYER = """
import json, os, sys
from pathlib import Path
from orderlab.sim.streams.ordered_store import RocksStore
from orderlab.sim.streams.shard import Iterator, Shard
place = Path(sys.argv[1])
journal = place / "journal"
whole = journal.read_bytes().rpartition(b"\\n")[0] if journal.exists() else b""
with journal.open("r+b" if journal.exists() else "wb") as file:
    file.truncate(len(whole) + 1 if whole else 0)  # a line that a kill has cut off was never written
    file.seek(0, 2)
    shard = Shard(RocksStore(place / "db"), lambda: 0)
    iterator = Iterator.from_json(json.loads(whole.splitlines()[-1])["iterator"]) if whole else shard.replay("a/+/b")
    while True:
        messages, iterator = shard.next(iterator, 2)
        if not messages:
            print("end", flush=True)
            sys.exit(0)
        # what was seen and where to go on in one write: neither without the other
        line = json.dumps({"seen": [[one.topic, int(one.payload)] for one in messages], "iterator": iterator.to_json()})
        os.write(file.fileno(), line.encode() + b"\\n")
        print(len(messages), flush=True)
"""


def run_and_kill(program: str, place: Path, after: int) -> None:
    """Kill right after the line that is the ``after``-th; none is killed that has ended before."""
    with subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert list(islice(process.stdout, after)), "it has said nothing"
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_nothing_is_lost_or_seen_twice(tmp_path: Path, kills: int) -> None:
    for number in range(kills):
        run_and_kill(WRITER, tmp_path, number * 37 % 11 + 2)
        run_and_kill(REPLAYER, tmp_path, number * 29 % 13 + 3)
    subprocess.run([sys.executable, "-c", REPLAYER, str(tmp_path)], check=True, capture_output=True)
    seen = [tuple(one) for line in (tmp_path / "journal").read_text().splitlines() for one in json.loads(line)["seen"]]
    store = RocksStore(tmp_path / "db")
    stored = Shard(store, lambda: 0).sequence
    store.close()
    assert stored >= 5 * kills
    assert sorted(number for _, number in seen) == list(range(stored))
    for topic in {topic for topic, _ in seen}:
        numbers = [number for one, number in seen if one == topic]
        assert numbers == sorted(numbers)


def test_one_cursor_over_topics_misses_what_comes_before_it(tmp_path: Path) -> None:
    """D2, by a reader whose cursor is the last key it has seen; a reader in rounds is told of it next."""
    store = RocksStore(tmp_path / "db")
    shard = Shard(store, lambda: 0, LearnedPatterns())
    shard.append([Message("t/1", "p", b""), Message("t/2", "p", b"")])  # so that t/1 sorts first
    (_, second), in_rounds = shard.next_pairs(shard.replay("t/#"), 9)
    shard.append([Message("t/1", "p", b"late")])
    behind_cursor = [pair for pair in shard.store.seek(second[0] + b"\0") if pair[1].endswith(b"late")]
    assert behind_cursor == []
    assert [one.payload for one in shard.next(in_rounds, 9)[0]] == [b"late"]
    store.close()
