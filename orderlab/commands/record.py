"""`orderlab record`: what a real broker or server does, as a history that `orderlab check` judges."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orderlab.extras import find
from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX

if TYPE_CHECKING:
    from orderlab.sim.recording.transcript import Recording

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Recorded(StrEnum):
    """What can be recorded."""

    MQTT = "mqtt"
    REDIS = "redis"


class OrderOf(StrEnum):
    """What counts as the order of a publisher's messages."""

    BROKER = "broker"
    CLIENT = "client"


class MqttVersion(StrEnum):
    """Versions of MQTT that the clients speak."""

    FIVE = "5.0"
    THREE = "3.1.1"


def record(
    what: Annotated[Recorded, typer.Argument(help="What is recorded: an MQTT broker, or clients of a Redis server.")],
    history: Annotated[Path, typer.Option(help="Where the history goes: .parquet, .jsonl or .csv.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="redis: the program whose calls are recorded, after --; none: Ctrl-C ends."),
    ] = None,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="redis: the server.")] = None,
    port: Annotated[int, typer.Option(min=0, max=TWO_BYTES_MAX, help="redis: where clients connect; 0: any.")] = 0,
    broker: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="A broker on this machine.")] = None,
    start: Annotated[
        str | None, typer.Option(help="Start one: mosquitto, or a command with {port} (and {folder}) in it.")
    ] = None,
    messages: Annotated[int, typer.Option(min=10, help="Of each publisher.")] = 200,
    publishers: Annotated[int, typer.Option(min=1, max=100, help="How many clients publish.")] = 2,
    cut: Annotated[float, typer.Option(min=0, max=0.5, help="How likely a packet ends its connection.")] = 0.0,
    drop: Annotated[float, typer.Option(min=0, max=0.5, help="How likely a packet and what follows is lost.")] = 0.0,
    delay: Annotated[float, typer.Option(min=0, max=0.5, help="How likely a packet waits 10 ms.")] = 0.0,
    cut_at: Annotated[
        list[int] | None, typer.Option(min=1, help="Cut before the packet of this number, of all that pass.")
    ] = None,
    kills: Annotated[int, typer.Option(min=0, max=9, help="Kill and restart the started broker so often.")] = 0,
    wrap: Annotated[
        bool, typer.Option("--wrap", help="Pass 65,435 messages first, so that packet identifiers wrap.")
    ] = False,
    protocol: Annotated[MqttVersion, typer.Option(help="The version of MQTT.")] = MqttVersion.FIVE,
    order: Annotated[
        OrderOf, typer.Option(help="Whose order is judged: of arrival at the broker, or of the client's calls.")
    ] = OrderOf.BROKER,
    seed: Annotated[int, typer.Option(min=0, help="Of what the proxy does; times are real.")] = 0,
) -> None:
    """Record a real MQTT broker: clients (paho-mqtt) play against it through a proxy that writes, cuts, drops, delays.
    Or a real Redis server: a proxy writes down what a program's connections ask for and hear.

    Exit code 0: the history is written; `orderlab check` says what it is worth.
    """
    if what is Recorded.REDIS:
        given = [name for name, value in (("--broker", broker), ("--start", start)) if value is not None]
        if given:
            raise InputError(f"{given[0]}: of record mqtt; give --server HOST:PORT")
        return _record_redis(history, server, port, command or [])
    if server is not None or command or port:
        raise InputError("record mqtt: --server, --port and a program are of record redis; leave them out")
    find("paho", "record")
    find("pyarrow", "record")
    from orderlab.sim.recording.play import Play, record
    from orderlab.sim.recording.proxy import Damage
    from orderlab.sim.recording.transcript import Recording

    if (broker is None) == (start is None):
        raise InputError(
            f"record {what}: name a broker by --broker HOST:PORT, or have one started by --start mosquitto"
        )
    if kills and start is None:
        raise InputError("--kills: only a broker that --start started is killed")
    address = None if broker is None else _loopback(broker)
    _insist_on_form(history)
    play = Play(
        messages=messages,
        publishers=publishers,
        seed=seed,
        is_5=protocol is MqttVersion.FIVE,
        kills=kills,
        damage=Damage(cut, drop, delay, cut_at=frozenset(cut_at or ())),
        wraps=wrap,
    )
    transcript = Recording(order is OrderOf.CLIENT)
    record(play, transcript, address, start)
    transcript.write(history)
    _print(history, transcript, seed)


def _record_redis(history: Path, server: str | None, port: int, command: list[str]) -> None:
    """Put a proxy before a server until the program has ended, or Ctrl-C."""
    find("pyarrow", "record")
    from orderlab.exit_codes import run_asynchronously
    from orderlab.sim.recording.redis_calls import CallRecording
    from orderlab.sim.recording.redis_proxy import RecordingProxy, record_program

    if server is None:
        raise InputError("record redis: name the server by --server HOST:PORT, such as 127.0.0.1:6379")
    _insist_on_form(history)
    recording = CallRecording()
    proxy = RecordingProxy(_address("--server", server, "localhost:6379"), recording)
    if not command:
        typer.echo(f"connect to 127.0.0.1:{port} in place of {server}; Ctrl-C ends", err=True)
    code = None
    try:
        code = run_asynchronously(record_program(proxy, port, command))
    except KeyboardInterrupt:
        if command or not recording.rows:
            raise
    recording.write(history)
    ended = "" if code is None else f"; the program ended with exit code {code}"
    unpaired = f", {proxy.unpaired} of subscribers not recorded" if proxy.unpaired else ""
    calls = f"{recording.calls:,} calls of {proxy.connections} connections"
    typer.echo(f"{history}: {calls}, {recording.unanswered} without a reply{unpaired}{ended}")
    typer.echo(f"  orderlab check {history} --contract STORE")


def _print(history: Path, transcript: Recording, seed: int) -> None:
    typer.echo(f"{history}: {len(transcript.rows):,} rows")
    typer.echo(f"  orderlab check {history} --expiry-tolerance-ms {-(-transcript.slowest_answer_us() // 1000)}")
    typer.echo(f"seed: {seed}")


def _address(option: str, text: str, example: str) -> tuple[str, int]:
    parsed = re.fullmatch(r"(.+):(\d{1,5})", text)
    if parsed is None or int(parsed[2]) > TWO_BYTES_MAX:
        raise InputError(f"{option} {text}: no address; write HOST:PORT, such as {example}")
    return parsed[1].strip("[]"), int(parsed[2])


def _loopback(broker: str) -> tuple[str, int]:
    host, port = _address("--broker", broker, "localhost:1883")
    if host not in LOOPBACK:
        raise InputError(f"--broker {broker}: not on this machine, and connections get cut; name {LOOPBACK[0]}:PORT")
    return host, port


def _insist_on_form(history: Path) -> None:
    """Raise InputError, before anything is played, for a file that could not be written."""
    from orderlab.model.files import checked_place

    if history.suffix not in (".parquet", ".jsonl", ".ndjson", ".csv"):
        raise InputError(f"{history}: unknown history format; name it .parquet, .jsonl or .csv")
    checked_place(str(history), history, is_read_again=True)
