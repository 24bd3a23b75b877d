"""A machine that loses power: what was not synced is gone. With sync every batch that was reported stays; without, what
readers have seen can go, and they are told."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from orderlab.sim.streams.keys import HashedLevels, LearnedPatterns
from orderlab.sim.streams.ordered_store import MemoryStore, Pair, RocksStore
from orderlab.sim.streams.shard import Iterator, Message, Rewound, Shard

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
/* Notes how long each file was when it was synced, by its inode, which a rename does not change. */
static int note(int fd, int done) {
    struct stat told; char line[64]; static int out = -1;
    if (done == 0 && fstat(fd, &told) == 0) {
        if (out < 0) out = open(getenv("SYNCED"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        int size = snprintf(line, sizeof line, "%lu %ld\\n", (unsigned long)told.st_ino, (long)told.st_size);
        if (write(out, line, size) != size) abort();
    }
    return done;
}
int fsync(int fd) { int (*real)(int) = dlsym(RTLD_NEXT, "fsync"); return note(fd, real(fd)); }
int fdatasync(int fd) { int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync"); return note(fd, real(fd)); }
"""
WRITER = """
import sys
from pathlib import Path
from orderlab.sim.streams.keys import LearnedPatterns
from orderlab.sim.streams.ordered_store import RocksStore
from orderlab.sim.streams.shard import Message, Shard
shard = Shard(RocksStore(Path(sys.argv[1]) / "db", sync=sys.argv[2] == "sync"), lambda: 0, LearnedPatterns(3))
while True:
    print(shard.append([Message(f"a/{number % 7}/b", "p", b"%d" % number) for number in range(shard.sequence, shard.sequence + 5)]), flush=True)
"""  # noqa: E501


def lose_power(place: Path) -> None:
    """Cut every file to what was synced of it; those that never were are gone."""
    synced = dict(line.split() for line in (place / "synced").read_text().splitlines())
    for file in (place / "db").iterdir():
        size = int(synced.get(str(file.stat().st_ino), 0))
        if size:
            os.truncate(file, min(size, file.stat().st_size))
        else:
            file.unlink()


@pytest.mark.skipif(
    shutil.which("gcc") is None or sys.platform != "linux", reason="the syncs of RocksDB are noted by a small C library"
)
@pytest.mark.parametrize("sync", ["sync", "no-sync"])
def test_rocksdb_keeps_what_it_synced(tmp_path: Path, sync: str) -> None:
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "shim.so"), "SYNCED": str(tmp_path / "synced")}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), sync], stdout=subprocess.PIPE, env=environment
    ) as writer:
        assert writer.stdout is not None
        reported = int(list(islice(writer.stdout, 20))[-1])
        os.kill(writer.pid, signal.SIGKILL)
    lose_power(tmp_path)
    store = RocksStore(tmp_path / "db")
    shard = Shard(store, lambda: 0, LearnedPatterns(3))
    assert reported >= 100
    if sync == "sync":
        assert shard.sequence >= reported
    else:
        assert shard.sequence < reported
    found, iterator = list[Message](), shard.replay("a/+/b")
    while (page := shard.next(iterator, 100))[0]:  # a page is of one pattern
        found, iterator = found + page[0], page[1]
    assert sorted(int(one.payload) for one in found) == list(range(shard.sequence)), "whole batches, from the first on"
    assert shard.sequence % 5 == 0
    store.close()


class Machine(MemoryStore):
    """Remembers what is on disk: each batch, or without ``is_durable`` what came before the last `sync`."""

    def __init__(self, is_durable: bool) -> None:
        super().__init__()
        self.is_durable, self.batches, self.synced = is_durable, list[list[Pair]](), 0

    def put(self, batch: Iterable[Pair]) -> None:
        self.batches.append(list(batch))
        super().put(self.batches[-1])

    def sync(self) -> None:
        self.synced = len(self.batches)

    def after_power_loss(self) -> Machine:
        store = Machine(self.is_durable)
        for batch in self.batches if self.is_durable else self.batches[: self.synced]:
            store.put(batch)
        store.sync()
        return store


def numbered(*numbers: int) -> list[Message]:
    return [Message(f"a/{number % 2}", "p", b"%d" % number) for number in numbers]


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("since", [0, 1, 2, 5], ids=lambda count: f"{count} stored since")
def test_a_reader_of_what_is_gone_is_told(is_durable: bool, since: int) -> None:
    """However far the shard has grown since then, and once."""
    machine = Machine(is_durable)
    shard = Shard(machine, lambda: 7, HashedLevels(2))
    shard.append(numbered(1))
    machine.sync()
    shard.append(numbered(2, 3))
    seen, iterator = shard.next(shard.replay("a/#"), 9)
    assert len(seen) == 3
    _, iterator = shard.next(iterator, 9)  # it has read all
    again = Shard(machine.after_power_loss(), lambda: 7)
    assert again.sequence == (3 if is_durable else 1)
    new = numbered(*range(100, 100 + since))
    if new:
        again.append(new)
    if not is_durable:
        with pytest.raises(Rewound, match="the shard ended at 1") as told:
            again.next(iterator, 9)
        iterator = Iterator.from_json(told.value.iterator.to_json())
    assert sorted(one.payload for one in again.next(iterator, 9)[0]) == sorted(one.payload for one in new)


def test_what_is_left_of_a_round_is_read_after_a_loss() -> None:
    """It goes topic by topic: the page before had the one that is gone, and not one that is left."""
    machine = Machine(False)
    shard = Shard(machine, lambda: 7, HashedLevels(2))
    shard.append(numbered(2, 1))
    machine.sync()
    shard.append(numbered(4, 3))
    order = [one.payload for one in shard.next(shard.replay("a/#"), 9)[0]]
    seen, iterator = shard.next(shard.replay("a/#"), 2)
    again = Shard(machine.after_power_loss(), lambda: 7)
    again.append(numbered(6, 5, 8, 7))
    with pytest.raises(Rewound) as told:
        again.next(iterator, 9)
    found, iterator = again.next(told.value.iterator, 9)
    found += again.next(iterator, 9)[0]
    assert [one.payload for one in seen] == order[:2]
    assert sorted(int(one.payload) for one in found) == sorted(
        [*({1, 2} - {int(one.payload) for one in seen}), 5, 6, 7, 8]
    )


def test_an_opening_that_lost_power_is_not_taken_for_the_next() -> None:
    machine = Machine(False)
    shard = Shard(machine, lambda: 7, HashedLevels(2))
    shard.append(numbered(1))
    machine.sync()
    for _ in range(3):
        opened = Shard(machine.after_power_loss(), lambda: 7)
        machine = opened.store  # type: ignore[assignment]
        opened.append(numbered(2, 3))
        iterator = opened.next(opened.next(opened.replay("a/#"), 9)[1], 9)[1]
        following = Shard(machine.after_power_loss(), lambda: 7)
        following.append(numbered(4, 5, 6))
        with pytest.raises(Rewound):
            following.next(iterator, 9)


def test_an_iterator_of_another_store_is_told() -> None:
    machine = Machine(True)
    shard = Shard(machine, lambda: 7, HashedLevels(2))
    shard.append(numbered(1))
    reopened = Shard(Shard(machine.after_power_loss(), lambda: 7).store, lambda: 7)
    with pytest.raises(Rewound):
        shard.next(reopened.replay("a/#"), 9)
