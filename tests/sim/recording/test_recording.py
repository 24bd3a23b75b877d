"""Recordings of MQTT: packets are read, their rows say what happened, and a real broker's histories are judged."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.recording import play
from orderlab.sim.recording.broker_process import BrokerProcess, mosquitto_binary
from orderlab.sim.recording.packets import ControlPacket, MalformedPacket, PacketType, length_of, read_packet
from orderlab.sim.recording.proxy import Damage, Proxy
from orderlab.sim.recording.transcript import ClientConnection, Recording, payload_of
from tests.in_process import ROOT, orderlab
from tests.properties.clients.libraries import install

KEPT = b"\x11\x00\x00\x0e\x10"
"""Session Expiry Interval: an hour."""
FINDINGS = ROOT / "notes" / "findings"


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def packet(first: int, body: bytes, version: int = 5) -> ControlPacket:
    assert len(body) < 128
    return read_packet(bytes([first, len(body)]) + body, 2, version)


def connect(client: str, flags: int = 0, properties: bytes = KEPT, will: bytes = b"") -> ControlPacket:
    return packet(0x10, text("MQTT") + bytes([5, flags, 0, 60, len(properties)]) + properties + text(client) + will)


def publish(number: int, qos: int = 1, first: int = 0x32, packet_id: int = 1, publisher: str = "p") -> ControlPacket:
    identifier = struct.pack(">H", packet_id) if first & 6 else b""
    return packet(first, text("t") + identifier + b"\x00" + payload_of(publisher, qos, number))


def test_packets_are_read() -> None:
    will = b"\x05\x18\x00\x00\x00\x07" + text("w") + text("gone")
    read = connect("c", 0x06, b"\x21\x00\x02", will)
    assert (read.client, read.version, read.is_clean, read.has_will, read.will_delay_s) == ("c", 5, True, True, 7)
    assert read.properties == {0x21: 2}
    sent = packet(0x3B, text("a/b") + b"\x00\x09" + b"\x05\x02\x00\x00\x00\x3c" + b"x")
    assert (sent.topic, sent.qos, sent.dup, sent.retain, sent.packet_id) == ("a/b", 1, True, True, 9)
    assert (sent.properties, sent.payload) == ({2: 60}, b"x")
    assert packet(0x82, b"\x00\x01\x00" + text("a") + b"\x01" + text("b") + b"\x02").filters == ["a", "b"]
    assert length_of(b"\x80") is None
    assert length_of(b"\x80\x01") == (128, 2)


@pytest.mark.parametrize("raw", [b"\x00\x00", b"\x32\x02\x00\x05", b"\x20\x03\x00\x00\x00" + b"\x01\x99"[:0]])
def test_what_is_no_packet_is_said_to_be_none(raw: bytes) -> None:
    if raw[0] == 0x20:
        assert read_packet(raw, 2, 5).kind is PacketType.CONNACK
    else:
        with pytest.raises(MalformedPacket):
            read_packet(raw, 2, 5)


def recorded(
    order: Sequence[int], file: Path, by_client: bool = False, first: Sequence[int] = (1, 2)
) -> dict[str, str]:
    """The verdicts where ``first`` is published and ``order`` is delivered."""
    transcript = Recording(by_client)
    publisher, subscriber = ClientConnection(), ClientConnection()
    for connection, name in ((publisher, "p"), (subscriber, "s")):
        transcript.to_broker(connection, connect(name))
        transcript.to_client(connection, packet(0x20, b"\x00\x00\x00"))
    transcript.to_broker(subscriber, packet(0x82, b"\x00\x01\x00" + text("t") + b"\x01"))
    transcript.to_client(subscriber, packet(0x90, b"\x00\x01\x00\x01"))
    for number in first:
        transcript.to_broker(publisher, publish(number, packet_id=number))
        transcript.to_client(publisher, packet(0x40, struct.pack(">H", number)))
    for number in order:
        transcript.to_client(subscriber, publish(number, packet_id=number))
        transcript.to_broker(subscriber, packet(0x40, struct.pack(">H", number)))
    transcript.add("end")
    transcript.write(file)
    judged = json.loads(orderlab("check", file, "--json", "--allow-vacuous").stdout)
    return {verdict["law"]: verdict["outcome"] for verdict in judged["verdicts"]}


def test_rows_show_what_a_broker_does(tmp_path: Path) -> None:
    right = recorded((1, 2), tmp_path / "right.jsonl")
    assert "violated" not in right.values()
    assert (right["fifo"], right["at-least-once"]) == ("holds", "holds")
    assert recorded((2, 1), tmp_path / "turned.jsonl")["fifo"] == "violated"
    assert recorded((2,), tmp_path / "lost.jsonl")["at-least-once"] == "violated"


def test_the_order_of_arrival_and_that_of_the_client_are_told_apart(tmp_path: Path) -> None:
    """The client sent 2 before 1, and the broker kept to that."""
    assert recorded((2, 1), tmp_path / "a.jsonl", first=(2, 1))["fifo"] == "holds"
    assert recorded((2, 1), tmp_path / "b.jsonl", by_client=True, first=(2, 1))["fifo"] == "violated"


def test_a_message_that_was_answered_is_none_of_a_later_session(tmp_path: Path) -> None:
    """A QoS 2 message may be handed on as late as with its PUBCOMP, and to whoever has subscribed by then."""
    for is_answered, outcome in ((True, "violated"), (False, "holds")):
        transcript = Recording()
        publisher, first, second = ClientConnection(), ClientConnection(), ClientConnection()
        for connection in (publisher, first):
            transcript.to_broker(connection, connect("p" if connection is publisher else "s", 2))
            transcript.to_client(connection, packet(0x20, b"\x00\x00\x00"))
        transcript.to_broker(publisher, publish(1, 2, 0x34))
        transcript.to_client(publisher, packet(0x50, b"\x00\x01"))
        if is_answered:
            transcript.to_broker(publisher, packet(0x62, b"\x00\x01"))
            transcript.to_client(publisher, packet(0x70, b"\x00\x01"))
        transcript.ended(first)
        transcript.to_broker(second, connect("s", 2))
        transcript.to_client(second, packet(0x20, b"\x00\x00\x00"))
        transcript.to_client(second, publish(1, 2, 0x34))
        file = tmp_path / f"{is_answered}.jsonl"
        transcript.write(file)
        judged = json.loads(orderlab("check", file, "--json", "--law", "no-phantom").stdout)
        assert judged["verdicts"][0]["outcome"] == outcome


def test_the_slowest_answer_counts_from_the_last_copy() -> None:
    transcript, publisher = Recording(), ClientConnection()
    transcript.to_broker(publisher, connect("p"))
    transcript.to_client(publisher, packet(0x20, b"\x00\x00\x00"))
    assert transcript.slowest_answer_us() == 0
    transcript.to_broker(publisher, publish(1))
    transcript.to_broker(publisher, publish(1, first=0x3A))
    transcript.to_client(publisher, packet(0x40, b"\x00\x01"))
    *_, copy, answer = (row["time_us"] for row in transcript.rows)
    assert transcript.slowest_answer_us() == answer - copy


def test_a_client_returns_only_when_its_last_acknowledgement_was_read() -> None:
    """It has gone, and what the broker still sends it fails; the broker is slow, and reads its PUBACK later."""
    connack = b"\x20\x03\x00\x00\x00"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Proxy("127.0.0.1", port, Recording(), Damage(), seed=0) as proxy:
            first = socket.create_connection(("127.0.0.1", proxy.port))
            first.sendall(connect("s").raw)
            broker, _ = listener.accept()
            assert broker.recv(100) == connect("s").raw
            broker.sendall(connack)
            assert first.recv(100) == connack
            puback = b"\x40\x02\x00\x01"
            first.sendall(puback)
            assert broker.recv(100, socket.MSG_PEEK) == puback
            proxy.hold()
            broker.sendall(publish(1).raw)
            time.sleep(0.1)
            first.sendall(b"\xe0\x00")  # DISCONNECT, which does not go on
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            first.close()
            time.sleep(0.1)
            proxy.resume()
            again = socket.create_connection(("127.0.0.1", proxy.port))
            again.sendall(connect("s").raw)
            returned, _ = listener.accept()
            returned.settimeout(0.3)
            with pytest.raises(TimeoutError):
                returned.recv(100)
            assert broker.recv(100) == puback + b"\xc0\x00"  # PINGREQ
            broker.sendall(b"\xd0\x00")
            returned.settimeout(10)
            assert returned.recv(100) == connect("s").raw
            broker.close()
            again.close()
            returned.close()


def need_mosquitto() -> None:
    try:
        mosquitto_binary()
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.xdist_group("brokers")
def test_mosquitto_is_recorded_and_judged(tmp_path: Path) -> None:
    """What its `receive-maximum` is, its version decides (notes/findings/mosquitto.md), and under the proxy's cuts
    others are violated now and then, by whom is not known (notes/record.md)."""
    need_mosquitto()
    file = tmp_path / "run.parquet"
    words = f"record mqtt --start mosquitto --history {file} --messages 90 --delay 0.02"
    ended = orderlab(*words.split())
    assert ended.returncode == 0, ended.stderr
    judged = json.loads(orderlab("check", file, "--json").stdout)
    outcomes = {verdict["law"]: verdict["outcome"] for verdict in judged["verdicts"]}
    for law in ("fifo", "at-least-once", "exactly-once", "no-phantom", "handshake", "subscribed", "will"):
        assert outcomes[law] == "holds", (law, outcomes)


@pytest.mark.xdist_group("brokers")
def test_identifiers_wrap_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer messages before it than `--wrap` sends; of a whole one notes/record.md tells."""
    need_mosquitto()
    monkeypatch.setattr(play, "LEAD", 200)
    file = tmp_path / "run.jsonl"
    ended = orderlab("record", "mqtt", "--start", "mosquitto", "--history", file, "--messages", "10", "--wrap")
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for kind in ("publish", "publish_acknowledged", "deliver", "acknowledge"):
        sequences = {row["sequence"] for row in rows if row.get("topic") == "lead" and row["kind"] == kind}
        assert sequences == {*range(1, 201)}, kind
    judged = json.loads(orderlab("check", file, "--json", "--law", "packet-id").stdout)
    assert judged["verdicts"][0]["outcome"] == "holds"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--history h.jsonl", "name a broker by --broker"),
        ("--history h.jsonl --broker example.org:1883", "not on this machine"),
        ("--history h.txt --broker localhost:1", "unknown history format"),
        ("--history h.jsonl --broker localhost:1 --kills 1", "only a broker that --start started"),
        ("--history h.jsonl --broker localhost:1", "no broker there"),
        ("--history h.jsonl --start mosquitt", "no {port} in it"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_a_line(words: str, line: str, tmp_path: Path) -> None:
    ended = orderlab("record", "mqtt", *words.split(), cwd=tmp_path)
    assert ended.returncode == 2
    assert line in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def scripts(page: str) -> list[tuple[str, str]]:
    """The scripts of a page of findings, each with what it prints."""
    found = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", (FINDINGS / page).read_text(), re.DOTALL)
    assert found
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_the_scripts_about_paho_print_what_their_page_says(number: int) -> None:
    script, printed = scripts("paho-mqtt.md")[number]
    ended = subprocess.run(
        [sys.executable, "-u", "-c", script], capture_output=True, text=True, timeout=600, check=True
    )
    assert ended.stdout == printed


@pytest.mark.xdist_group("brokers")
def test_the_script_about_mosquitto_prints_what_its_page_says() -> None:
    need_mosquitto()
    version = subprocess.run([mosquitto_binary(), "-h"], capture_output=True, text=True, check=False).stdout
    if "2.0.11" not in version:
        pytest.skip(f"the page is about Mosquitto 2.0.11, and this is {version.splitlines()[0]}")
    ((script, printed),) = scripts("mosquitto.md")
    with BrokerProcess("mosquitto") as broker:
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True,
            env=os.environ | {"MQTT_PORT": str(broker.port)},
        )  # fmt: skip
    assert ended.stdout == printed


@pytest.mark.xdist_group("brokers")
def test_the_script_about_amqtt_prints_what_its_page_says() -> None:
    place = install.place("amqtt==0.12.1")
    if not place.is_dir():
        pytest.skip(f"amqtt is not installed; run: {install.COMMAND}")
    ((script, printed),) = scripts("amqtt.md")
    command = f"{sys.executable} {ROOT / 'tests/laboratory/conformance/amqtt_broker.py'} {{port}} {place}"
    with BrokerProcess(command) as broker:
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True,
            env=os.environ | {"MQTT_PORT": str(broker.port)},
        )  # fmt: skip
    assert ended.stdout == printed
