"""What MQTT 5.0 says of the text of topics: names that may be published to, and filters that may be subscribed to (4.7,
4.8.2)."""

from __future__ import annotations

from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX

LONGEST = TWO_BYTES_MAX
"""Bytes of UTF-8 (1.5.4)."""


def check_topic_name(topic: str) -> None:
    """Raise InputError unless ``topic`` may be published to (4.7.3, MQTT-3.3.2-2)."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise InputError(f'topic {topic!r}: a topic name has no wildcard (MQTT-3.3.2-2); take out "+" and "#"')


def check_topic_filter(topic_filter: str) -> None:
    """Raise InputError unless ``topic_filter`` may be subscribed to (4.7.1, 4.8.2): ``#`` stands last, wildcards
    alone."""
    _check_text(topic_filter, "filter")
    split_shared(topic_filter)
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise InputError(f'filter {topic_filter!r}: "#" must be the whole last level (MQTT-4.7.1-1)')
        if "+" in level and level != "+":
            raise InputError(f'filter {topic_filter!r}: "+" must be a whole level (MQTT-4.7.1-2)')


def check_client(client: str) -> None:
    """Raise InputError unless ``client`` may be a Client Identifier (3.1.3.1): UTF-8 without U+0000, empty if the
    server is to choose."""
    if "\0" in client:
        raise InputError(f"client identifier {client!r}: U+0000 is not allowed (MQTT-1.5.4-2); take it out")
    if len(client.encode()) > LONGEST:
        raise InputError(f"client identifier of {len(client.encode())} bytes: at most {LONGEST} (1.5.4); shorten it")


def split_shared(topic_filter: str) -> tuple[str | None, str]:
    """``$share/group/filter`` as (group, filter); any other filter as (None, filter) (4.8.2)."""
    if not topic_filter.startswith("$share/"):
        return None, topic_filter
    _, group, *rest = topic_filter.split("/", 2)
    if not group or not rest or not rest[0] or "+" in group or "#" in group:
        raise InputError(f"filter {topic_filter!r}: write $share/GROUP/FILTER, GROUP without wildcard (MQTT-4.8.2-1)")
    return group, rest[0]


def _check_text(text: str, what: str) -> None:
    if not text:
        raise InputError(f"{what} '': at least one character is needed (MQTT-4.7.3-1)")
    if "\0" in text:
        raise InputError(f"{what} {text!r}: U+0000 is not allowed (MQTT-4.7.3-2)")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"{what} {text!r}: not well-formed UTF-8 (MQTT-1.5.4-1)") from None
    if size > LONGEST:
        raise InputError(f"{what} of {size} bytes: at most {LONGEST} (MQTT-4.7.3-3)")
