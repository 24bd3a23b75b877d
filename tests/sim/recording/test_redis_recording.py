"""What a proxy before a Redis server writes down: calls and replies of programs that know nothing of it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orderlab.model.history.disk import read_history
from orderlab.sim.recording.redis_calls import CallRecording, reply_from_json, text_from_json
from orderlab.sim.recording.redis_proxy import RecordingProxy
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire import Connection, encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode
from tests.in_process import orderlab


class Recorded:
    """A served node behind a proxy."""

    def __init__(self, background: InBackground) -> None:
        self.node = background.serve(ServedNode)
        self.recording = CallRecording()
        self.proxy = RecordingProxy(("127.0.0.1", self.node.port), self.recording)
        self.loop = background.loop
        asyncio.run_coroutine_threadsafe(self.proxy.start(0), self.loop).result()

    def stop(self) -> list[tuple[str, int, str, object]]:
        """The rows: kind, connection, operation, value."""
        asyncio.run_coroutine_threadsafe(self.proxy.stop(), self.loop).result()

        return [
            (row["kind"], row["connection"], row["operation"], json.loads(row["value"]))
            for row in self.recording.rows
        ]  # fmt: skip


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with InBackground() as background:
        yield Recorded(background)


def test_calls_of_a_pipeline_have_their_own_replies(recorded: Recorded) -> None:
    connection = Connection("127.0.0.1", recorded.proxy.port)
    replies = connection.pipeline([[b"SET", b"k", b"\xff"], [b"GET", b"k"], [b"INCR", b"k"], [b"EVALSHA", b"x", b"0"]])
    connection.close()
    rows = recorded.stop()
    assert [reply_from_json(value) for kind, _, _, value in rows if kind != "invoke"] == replies
    assert [kind for kind, *_ in rows] == ["invoke"] * 4 + ["ok"] * 3 + ["fail"]  # NOSCRIPT: it did not happen
    assert [text_from_json(word) for word in rows[0][3]] == [b"SET", b"k", b"\xff"]  # type: ignore[attr-defined]
    assert isinstance(replies[2], ErrorReply)


def test_a_call_that_waits_has_no_reply_when_its_client_goes(recorded: Recorded) -> None:
    waiting = socket.create_connection(("127.0.0.1", recorded.proxy.port))
    waiting.sendall(encode_command([b"BLPOP", b"list", b"0"]))
    while not recorded.node.shard.waits:
        time.sleep(0.005)
    waiting.close()
    while recorded.node.shard.waits:  # the server is told, so that nothing is taken for it
        time.sleep(0.005)
    other = Connection("127.0.0.1", recorded.proxy.port)
    assert other.execute(b"RPUSH", b"list", b"a") == 1
    other.close()
    kinds = [(kind, connection) for kind, connection, *_ in recorded.stop()]
    assert kinds == [("invoke", 1), ("info", 1), ("invoke", 2), ("ok", 2)]


def test_secrets_and_subscribers_are_not_recorded(recorded: Recorded) -> None:
    connection = Connection("127.0.0.1", recorded.proxy.port)
    connection.execute(b"AUTH", b"secret")
    connection.send([[b"SUBSCRIBE", b"news"], [b"PING"]])
    assert len(connection.receive(2)) == 2
    connection.close()
    rows = recorded.stop()
    assert [(kind, name) for kind, _, name, _ in rows] == [("invoke", "auth"), ("ok", "auth")]
    assert rows[0][3] == ["AUTH", "(redacted)"]
    assert recorded.proxy.unpaired == 1


WORKER = """
import os, socket
s = socket.create_connection((os.environ["REDIS_HOST"], int(os.environ["REDIS_PORT"])))
s.sendall(b"SET {lock} a NX PX 1000\\r\\nSET {lock} b NX PX 1000\\r\\n"); s.recv(100)
"""
STORE = """
specification = "lock"
promises = { tokens = "caller" }
keys = { lease = "{lock}" }
operations.acquire = { command = ["SET", "<key.lease>", "<token>", "NX", "PX", "<ttl_ms>"] }
"""


def test_what_a_program_did_is_judged_by_a_contract(tmp_path: Path) -> None:
    (tmp_path / "store.toml").write_text(STORE)
    (tmp_path / "worker.py").write_text(WORKER)
    file = tmp_path / "run.jsonl"
    with InBackground() as background:
        node = background.serve(ServedNode)
        words = ["record", "redis", "--server", f"127.0.0.1:{node.port}", "--history", str(file), "--"]
        ended = orderlab(*words, sys.executable, str(tmp_path / "worker.py"))
    assert ended.returncode == 0
    assert "2 calls of 1 connections, 0 without a reply; the program ended with exit code 0" in ended.stdout
    assert len(read_history(file).batches[0]) == 4
    judged = orderlab("check", str(file), "--contract", str(tmp_path))
    assert judged.returncode == 0
    assert "mutual-exclusion" in judged.stdout
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[-1]["value"] = "OK"  # both were told that they have the lock
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert orderlab("check", str(file), "--contract", str(tmp_path)).returncode == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("record redis --history x.jsonl", "name the server by --server HOST:PORT"),
        ("record redis --history x.jsonl --server here", "--server here: no address"),
        ("record redis --history x.jsonl --server 127.0.0.1:1 -- true", "--server 127.0.0.1:1: cannot connect"),
        ("record redis --history x.jsonl --server 127.0.0.1:1 --start y", "--start: of record mqtt"),
        ("record mqtt --history x.jsonl --server 127.0.0.1:1", "are of record redis"),
        ("check x.jsonl --key a=b", "of --contract STORE"),
        ("check x.jsonl --contract lua/lock --law fifo", "leave --model and --law out"),
        ("check x.jsonl --contract lua/limiter --key a", "write NAME=TEXT"),
    ],
)
def test_what_cannot_be_asked_is_one_line(line: str, said: str) -> None:
    ended = orderlab(*line.split())
    assert ended.returncode == 2
    assert said in ended.stderr
