"""Templates and message formats: what goes over the wire, byte for byte, whatever the client is called."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.sim.redis.hash_slots import hash_slots
from orderlab.sim.stores.binding.templates import (
    DECODERS,
    ENCODERS,
    TAKES_ARGUMENT,
    Vocabulary,
    compile_template,
    dump_json,
    json_codec,
    load_json,
    packed_codec,
    tag,
    to_bytes,
    to_text,
)

HERE = Vocabulary(("client", "limit", "interval", "payload", "qos", "properties", "list"), {})
SCOPE: dict[str, Any] = {
    "client": b"dev}7",
    "limit": 10,
    "interval": None,
    "payload": b'\x00"\xff',
    "qos": 2,
    "properties": {"k": "v"},
    "list": [b"a", 7],
}

RENDERED = [
    ("{<client>}_messages", b"{dev}7}_messages"),
    ("{<client|tag>}_messages", b"{dev%7D7}_messages"),
    ("<limit>", b"10"),
    ("<interval>", b""),
    ("<interval|or:limit>", b"10"),
    ("<interval|or:-1>", b"-1"),
    ("<interval|or:>", b""),
    ("<interval|seconds>", b""),
    ("<limit|seconds>", b"0.01"),
    ("<limit|milliseconds>", b"10000"),
    ("<limit|add:5|subtract:limit>", b"5"),
    ("<limit|seconds|ceil>", b"1"),
    ("<limit|modulo:4>", b"2"),
    ("<limit|packet_id:4>", b"2"),
    ("<payload|base64>", b"ACL/"),
    ("<payload|hex>", b"0022ff"),
    ("<payload|json>", b'"\\u0000\\"\xff"'),
    ("<client|length>", b"5"),
    ("<list>", b'["a",7]'),
    ("<list|at:-1>", b"7"),
    ("<list|at:5>", b""),
    ("<limit|at:0>", b""),
    ("<properties>", b'{"k":"v"}'),
    ("a<<b", b"a<b"),
    ("a>b", b"a>b"),
    ("< limit | add : 1 >", None),
    ("", b""),
    ("é", "é".encode()),
]


@pytest.mark.parametrize(("text", "expected"), RENDERED, ids=[text for text, _ in RENDERED])
def test_a_template_renders(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(InputError, match="unknown filter"):
            compile_template(text, HERE, "here")
    else:
        assert compile_template(text, HERE, "here").render(SCOPE) == expected


def test_a_filter_that_does_not_fit_is_an_input_error() -> None:
    template = compile_template("<client|add:1>", HERE, "store.toml: args[0]")
    with pytest.raises(InputError, match=r'store.toml: args\[0\]: filter "add" does not fit'):
        template.render(SCOPE)


def test_a_single_placeholder_keeps_its_type() -> None:
    assert compile_template("<limit>", HERE, "").value(SCOPE) == 10
    assert compile_template("<interval>", HERE, "").value(SCOPE) is None
    assert compile_template("x<limit>", HERE, "").value(SCOPE) == b"x10"


def test_every_filter_is_documented_to_take_an_argument_or_not() -> None:
    assert set(ENCODERS) | set(DECODERS) >= TAKES_ARGUMENT


numbers = st.one_of(st.integers(), st.floats(allow_nan=False))


@given(numbers)
def test_a_number_survives_as_text(value: float) -> None:
    assert float(to_text(value)) == float(value)


@given(st.binary(), st.binary())
def test_tag_is_injective_and_safe_inside_a_hash_tag(one: bytes, other: bytes) -> None:
    assert tag(one)
    assert not set(tag(one)) & set(b"{}")
    assert (tag(one) == tag(other)) == (one == other)


hostile = st.one_of(
    st.sampled_from([b"", b"}", b"{", b"{}", b"}{", b"}x", b"{x", b"%", b"\x00", "ü}".encode(), b"\xff" * 65_535]),
    st.binary(max_size=20),
)


@given(hostile)
def test_both_ways_to_make_a_tag_keep_keys_in_one_slot(client: bytes) -> None:
    for form in ("{<client|tag>}:", "{s:<client>}:"):
        keys = [compile_template(form + end, HERE, "").render({"client": client}) for end in ("i", "b", "counter")]
        assert len(hash_slots(keys)) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_dumped_json_is_json(value: Any) -> None:
    try:
        expected = json.loads(json.dumps(value).encode())
        text = dump_json(value)
    except UnicodeEncodeError:
        return  # half of a surrogate pair has no bytes
    assert load_json(text) == expected


@given(st.binary())
def test_any_bytes_travel_through_json(value: bytes) -> None:
    assert to_bytes(load_json(dump_json(value))) == value


def test_what_is_nested_without_end_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        load_json(b"[" * 100_000)


def test_an_escaped_half_of_a_pair_is_read_without_an_error() -> None:
    assert to_bytes(load_json(rb'"\ud83d"')) == b"\xed\xa0\xbd"


def test_a_json_message_leaves_out_what_has_no_value() -> None:
    codec = json_codec(
        {"id": "<qos>", "text": "q<qos>", "kind": "PUBLISH", "none": "<interval>", "flag": True, "all": ["<limit>", 1]},
        HERE,
        "here",
    )
    assert dump_json(codec.encode(SCOPE)) == b'{"id":2,"text":"q2","kind":"PUBLISH","flag":true,"all":[10,1]}'


@given(st.binary(max_size=300), st.integers(0, 255), st.binary())
def test_a_packed_message_is_unpacked_again(client: bytes, qos: int, payload: bytes) -> None:
    codec = packed_codec(["client:bytes16", "qos:u8", "list:json32", "payload:rest"], HERE, "here")
    assert codec.unpack is not None
    packed = codec.encode({"client": client, "qos": qos, "payload": payload, "list": [1]})
    assert codec.unpack(packed) == {"client": client, "qos": qos, "list": [1], "payload": payload}
    for end in range(len(packed) - len(payload)):
        with pytest.raises(ValueError, match="the record ends"):
            codec.unpack(packed[:end])


def test_what_does_not_fit_a_packed_field_is_named() -> None:
    codec = packed_codec(["limit:u8"], HERE, "store.toml: message.layout")
    with pytest.raises(InputError, match=r"store.toml: message.layout: limit: 300 does not fit u8"):
        codec.encode(SCOPE | {"limit": 300})
    with pytest.raises(InputError, match=r'layout\[0\]: unknown type "u81" of "limit:u81"; did you mean "u8"'):
        packed_codec(["limit:u81"], HERE, "layout")
    with pytest.raises(InputError, match=r'layout\[0\]: "payload:rest" takes all that is left; put it last'):
        packed_codec(["payload:rest", "qos:u8"], HERE, "layout")
