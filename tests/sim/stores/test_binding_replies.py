"""Replies of other people's stores, shape by shape: what they mean, and what is refused as unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.redis.replies import ErrorReply, Status
from orderlab.sim.stores.binding import (
    Assigned,
    Cleared,
    Failed,
    Fetched,
    FetchedMessage,
    Message,
    Opened,
    Removed,
    ReplyMismatch,
    Saved,
)
from orderlab.sim.stores.binding.replies import ReplyReader, ValueReader, compile_reply, paths_of, plain
from orderlab.sim.stores.binding.results import ContractReply
from orderlab.sim.stores.binding.session import ReplyTable
from orderlab.sim.stores.binding.templates import Vocabulary, packed_codec

THREE = {"messages": (Message(b"a"), Message(b"b"), Message(b"c"))}


def reader(operation: str, modulus: int = 65535, unpack: Any = None, **table: Any) -> ReplyReader:
    return compile_reply(operation, ReplyTable.model_validate(table), "store.toml: reply", unpack, modulus)


def saved(*packet_ids: int) -> Saved:
    return Saved(tuple(map(Assigned, packet_ids)), first=packet_ids[0], last=packet_ids[-1])


@pytest.mark.parametrize(
    ("means", "reply", "expected"),
    [
        ("first", 5, saved(5, 6, 7)),
        ("last", 7, saved(5, 6, 7)),
        ("previous", 4, saved(5, 6, 7)),
        ("first", 65534, saved(65534, 65535, 1)),
        ("last", 1, saved(65534, 65535, 1)),
        ("previous", 65533, saved(65534, 65535, 1)),
        ("last", 65535, saved(65533, 65534, 65535)),
        ("last", b"7", saved(5, 6, 7)),
        ("previous", 0, saved(1, 2, 3)),
        ("count", 3, Saved(count=3)),
        ("sequence", 9, Saved((Assigned(None, 7), Assigned(None, 8), Assigned(None, 9)))),
        ("last", None, Saved()),
    ],
)
def test_an_integer_numbers_the_batch(means: str, reply: object, expected: Saved) -> None:
    assert reader("save", shape="integer", **{"is": means}).read(reply, THREE, 65535) == expected


def test_an_integer_of_a_store_that_skips_numbers_one_end_alone() -> None:
    told = reader("save", shape="integer", consecutive=False, **{"is": "last"}).read(7, THREE, 65535)
    assert told == Saved(last=7)


def test_statuses() -> None:
    plain = reader("save", shape="status", refused=["FULL", "-1", "nil"])
    assert plain.read(Status(b"OK"), THREE, 65535) == Saved()
    assert plain.read(Status(b"FULL"), THREE, 65535) == Saved(refused="FULL")
    assert plain.read(b"FULL", THREE, 65535) == Saved(refused="FULL")
    assert plain.read(-1, THREE, 65535) == Saved(refused="-1")
    assert plain.read(None, THREE, 65535) == Saved(refused="nil")
    assert reader("clear", shape="ignored").read(3, {}, 65535) == Cleared()
    assert reader("fetch", shape="strings", refused=["NO"]).read(Status(b"NO"), {}, 9) == Fetched(refused="NO")
    assert reader("release", shape="ignored", refused=["nil"]).read(None, {}, 9) == Removed(refused="nil")


def test_an_error_ends_any_operation() -> None:
    for operation in ("open", "save", "fetch", "acknowledge", "release", "clear"):
        shape = "strings" if operation == "fetch" else "ignored"
        assert reader(operation, shape=shape).read(ErrorReply(b"OOM x"), {}, 9) == Failed(b"OOM x")


def test_strings_are_payloads() -> None:
    fetched = reader("fetch", shape="strings").read([b"a", None, b"b"], {}, 65535)
    assert fetched == Fetched((FetchedMessage(b"a"), FetchedMessage(b"b")))


def test_json_messages() -> None:
    fields = {
        "payload": "body.data|base64",
        "packet_id": "pid",
        "kind": "t",
        "remaining_ms": "ttl|milliseconds",
        "topic": "topicName",
    }
    one = b'{"body":{"data":"AP8="},"pid":7,"t":2,"ttl":1.5,"topicName":"a\\/b","x":1}'
    expected = FetchedMessage(b"\x00\xff", 7, None, "PUBREL", 1500, topic=b"a/b")
    kinds = {"1": "PUBLISH", "2": "PUBREL"}
    each = reader("fetch", shape="messages", fields=fields, kinds=kinds)
    assert each.read([one, None], {}, 65535) == Fetched((expected,))
    whole = reader("fetch", shape="json", fields=fields, kinds=kinds)
    assert whole.read(b"[" + one + b"]", {}, 65535) == Fetched((expected,))
    assert whole.read(b"{}", {}, 65535) == Fetched()  # an empty table, as cjson writes it
    assert whole.read(None, {}, 65535) == Fetched()


def test_pairs_flat_and_nested() -> None:
    flat = reader("fetch", shape="pairs", columns=["payload", "sequence"])
    assert flat.read([b"x", b"3", b"y", b"4"], {}, 9).messages[1] == FetchedMessage(b"y", sequence=4)
    nested = reader("fetch", shape="pairs", columns=["payload", "sequence"], nested=True)
    assert nested.read([[b"x", b"3"], [b"y", b"4"]], {}, 9) == flat.read([b"x", b"3", b"y", b"4"], {}, 9)


def test_records_with_a_header_and_a_json_column() -> None:
    table = {"columns": ["id", "doc"], "skip": 2, "fields": {"packet_id": "id", "payload": "doc.p"}}
    records = reader("fetch", shape="records", **table)
    assert records.read([2, b"more", 7, b'{"p":"x"}'], {}, 9) == Fetched((FetchedMessage(b"x", 7),))


def test_records_with_a_packed_column() -> None:
    vocabulary = Vocabulary(("topic", "payload"), {})
    codec = packed_codec(["topic:bytes8", "payload:rest"], vocabulary, "")
    records = reader("fetch", unpack=codec.unpack, shape="records", columns=["packet_id", "message"])
    assert records.read([7, b"\x01tpp"], {}, 9) == Fetched((FetchedMessage(b"pp", 7, topic=b"t"),))
    assert records.read([7, b""], {}, 9) == Fetched((FetchedMessage(None, 7),))
    named = {"topic": "message.topic", "payload": "message.payload"}
    named_records = reader(
        "fetch", unpack=codec.unpack, shape="records", columns=["packet_id", "message"], fields=named
    )
    for row in ([7, b"\x01tpp"], [7, b""]):
        assert named_records.read(row, {}, 9) == records.read(row, {}, 9)


def test_records_of_a_save() -> None:
    pairs = reader("save", shape="pairs", columns=["packet_id", "sequence"])
    assert pairs.read([1, 10, 0, 0], {}, 9).assigned == (Assigned(1, 10), Assigned(None, None))
    derived = reader("save", 4, shape="strings", fields={"packet_id": "value|packet_id:modulus", "sequence": "value"})
    assert derived.read([4, 5], {}, 4).assigned == (Assigned(4, 4), Assigned(1, 5))


def test_the_other_operations() -> None:
    opened = reader("open", shape="records", columns=["session_present", "epoch"])
    assert opened.read([1, 7], {}, 9) == Opened(True, 7)
    assert reader("open", shape="integer", **{"is": "session_present"}).read(0, {}, 9) == Opened(False)
    assert reader("acknowledge", shape="integer").read(1, {}, 9) == Removed(1)
    assert reader("release", shape="integer", **{"is": "count"}).read(0, {}, 9) == Removed(0)
    assert reader("clear", shape="integer").read(3, {}, 9) == Cleared(3)


UNREADABLE = [
    ("messages", {}, 7, "a list was expected"),
    ("messages", {}, [b"{"], "Expecting property name"),
    ("messages", {"fields": {"payload": "p|base64"}}, [b'{"p":"*"}'], "messages does not fit"),
    ("strings", {}, b"x", "a list was expected"),
    ("json", {}, b"[", "Expecting value"),
    ("json", {}, b"[1]", "json does not fit"),
    ("pairs", {}, [b"x"], "1 items are no multiple of 2 columns"),
    (
        "records",
        {"columns": ["kind"]},
        [b"PUBACK"],
        'kind "PUBACK" is neither PUBLISH nor PUBREL; map it in reply.kinds',
    ),
    ("records", {"columns": ["packet_id"]}, [b"x"], "records does not fit"),
]


@pytest.mark.parametrize(("shape", "table", "reply", "said"), UNREADABLE, ids=[said for *_, said in UNREADABLE])
def test_a_reply_of_another_shape_is_named(shape: str, table: dict[str, Any], reply: object, said: str) -> None:
    with pytest.raises(ReplyMismatch) as raised:
        reader("fetch", shape=shape, **table).read(reply, {}, 9)
    assert said in str(raised.value)
    assert str(raised.value).startswith("store.toml: reply: ")
    assert isinstance(raised.value, InputError)


@pytest.mark.parametrize("promise", [{"closed": "CLOSED"}, {"older": "STALE"}, {"answers_again": True}])
def test_promises_about_saves_are_for_saves(promise: dict[str, object]) -> None:
    read = reader("save", shape="status", **promise).read
    for word in ("CLOSED", "STALE"):
        refused = read(Status(word.encode()), {}, 65535).refused
        assert (refused == word) == (word in promise.values())
    with pytest.raises(InputError, match=f"{next(iter(promise))}: a promise about saves; remove it"):
        reader("open", shape="status", **promise)


@pytest.mark.parametrize("word", ["flag", "found"])
def test_a_flag_is_zero_or_one(word: str) -> None:
    acknowledge = reader("acknowledge", shape="integer", **{"is": word})
    assert acknowledge.read(1, {}, 9) == Removed(1)
    assert acknowledge.read(0, {}, 9) == Removed(0)
    with pytest.raises(ReplyMismatch, match="promises 0 or 1, not 2"):
        acknowledge.read(2, {}, 9)


def test_a_packet_identifier_that_mqtt_does_not_have_is_refused() -> None:
    save = reader("save", shape="pairs", columns=["packet_id", "sequence"])
    assert save.read([0, 0], {}, 9) == Saved((Assigned(None),))
    for wrong in (-1, 65536):
        with pytest.raises(ReplyMismatch, match=f"1 to 65535, .* not {wrong}"):
            save.read([wrong, 0], {}, 9)


@pytest.mark.parametrize(
    ("path", "row", "left"),
    [
        ("ttl|milliseconds|add:began|subtract:now_ms", [b"5", b"1000"], 4000),
        ("ttl|milliseconds|add:began|subtract:now_ms", [None, b"1000"], None),
        ("ttl|milliseconds|subtract:began", [b"5", b"1500"], 3500),
        ("ttl|milliseconds|subtract:began", [b"5", None], None),
        ("ttl|none:-1", [-1, b""], None),
        ("ttl|none:-1", [700, b""], 700),
        ("ttl|none:never", [b"never", b""], None),
    ],
)
def test_the_interval_left_follows_from_what_the_script_returns(path: str, row: list[Any], left: int | None) -> None:
    table: dict[str, Any] = {"shape": "records", "columns": ["ttl", "began"], "fields": {"remaining_ms": path}}
    found = reader("fetch", **table).read([*row], {"now_ms": 2000}, 65535)
    assert isinstance(found, Fetched)
    assert found.messages[0].remaining_ms == left


def test_the_argument_of_a_decoder_may_be_a_member_of_a_json_text() -> None:
    found = reader("fetch", shape="messages", fields={"remaining_ms": "ttl|add:head.began|subtract:now_ms"}).read(
        [b'{"ttl": 900, "head": {"began": 500}}'], {"now_ms": 600}, 65535
    )
    assert isinstance(found, Fetched)
    assert found.messages[0].remaining_ms == 800


def test_an_argument_that_nothing_is_called_is_refused() -> None:
    with pytest.raises(InputError, match='"begin" is no number, column or field; did you mean "began"'):
        reader("fetch", shape="records", columns=["ttl", "began"], fields={"remaining_ms": "ttl|subtract:begin"})


@pytest.mark.parametrize(
    ("members", "reply", "told"),
    [
        (["job.id"], b'{"job":{"id":"a"}}', "a"),
        (["job.id", "token", "gone"], b'{"job":{"id":"a"},"token":3.0}', ("a", 3, None)),
        (["jobs.1.id", "jobs.2.id"], b'{"jobs":[{"id":"a"},{"id":"b"}]}', ("b", None)),
        (["0", "1"], b'["\xff", true]', (b"\xff", 1)),
        (["job", "list"], b'{"job":{"id":"a"},"list":[1,[null]]}', ('{"id":"a"}', (1, (None,)))),
        (["half"], b'{"half":0.5}', "0.5"),
        (["job.id", "token"], b"null", None),
        (["job.id"], None, None),
        (["job.id"], b"no json", "no json"),
        (["job.id"], b"[" * 100_000, "[" * 100_000),
        (["job.id"], 7, 7),
    ],
)
def test_members_of_a_json_reply(members: list[str], reply: Any, told: object) -> None:
    read = ValueReader({}, None, paths_of(members, "here")).read(reply, {}, 1)
    assert read.reply == told
    assert type(read.reply) is type(told)


@pytest.mark.parametrize(
    ("reply", "told"),
    [(1, "ok"), (b"1", "ok"), (None, "nothing"), (0, "lost"), (b"stale", "lost"), ([1, 2], "lost"), ([], "lost")],
)
def test_a_word_for_anything_else(reply: Any, told: object) -> None:
    words = {"1": "ok", "nil": "nothing"}
    assert ValueReader(words, "lost").read(reply, {}, 1).reply == told
    assert ValueReader({}, "lost").read(reply, {}, 1).reply == "lost"
    assert isinstance(ValueReader(words, "lost").read(ErrorReply(b"ERR no"), {}, 1), Failed)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (b"NOT FOUND", "lost"),
        (b"NOT FOUND script: 1f, on @user_script:3.", "lost"),
        (b"BUSY", "refused"),
        (b"NOT", None),
        (b"NOT FOUNDED", None),
        (b"ERR NOT FOUND", None),
        (b"OOM command not allowed", None),
    ],
)
def test_a_word_for_an_error_that_is_a_reply_like_any_other(error: bytes, told: str | None) -> None:
    read = ValueReader({"1": "ok"}, "dead", errors={"NOT FOUND": "lost", "BUSY": "refused"})
    assert read.read(ErrorReply(error), {}, 1) == (Failed(error) if told is None else ContractReply(told))


def test_a_word_is_for_the_member_that_is_taken() -> None:
    reader_ = ValueReader({"1": "ok"}, "lost", paths_of(["done"], "here"))
    assert [reader_.read(one, {}, 1).reply for one in (b'{"done":true}', b'{"done":false}', b"{}")] == [
        "ok",
        "lost",
        "lost",
    ]


@pytest.mark.parametrize(
    ("members", "reply", "told"),
    [
        (["0", "1.id", "2.0"], [7, b'{"id":"a"}', [b"x", 1]], (7, "a", "x")),
        (["0"], [1, 2], 1),
        (["2", "0.id", "1.x"], [b"no json", 5], (None, None, None)),
        (["1"], [b"7", None], None),
        (["0.id", "1"], [None, None], None),
    ],
)
def test_members_of_an_array_and_of_the_texts_in_it(members: list[str], reply: Any, told: object) -> None:
    assert ValueReader({}, None, paths_of(members, "here")).read(reply, {}, 1).reply == told


def test_members_of_messagepack_alone_and_in_an_array() -> None:
    packed = b"\x82\xa2id\xa1j\xa1n\x92\x01\xcb?\xe0\x00\x00\x00\x00\x00\x00"
    reader_ = ValueReader({}, None, paths_of(["id", "n.0", "n.1"], "here"), "msgpack")
    assert reader_.read(packed, {}, 1).reply == ("j", 1, "0.5")
    inner = ValueReader({}, None, paths_of(["1.id", "0"], "here"), "msgpack")
    assert inner.read([3, packed], {}, 1).reply == ("j", 3)
    assert reader_.read(b"\xc1", {}, 1).reply == b"\xc1"  # no MessagePack


@pytest.mark.parametrize("member", ["", ".", "job.", "job..id"])
def test_a_member_with_an_empty_part_is_refused(member: str) -> None:
    with pytest.raises(InputError, match=r"here\[1\]: .* has an empty part; write names with a dot between"):
        paths_of(["job", member], "here")


def test_arrays_within_each_other_without_end_are_told_down_to_a_depth() -> None:
    reply: Any = b"x"
    for _ in range(5000):
        reply = [reply]
    value: Any = plain(reply)
    while isinstance(value, tuple):
        (value,) = value
    assert value == "an array within 16 others"
    assert plain([b"a", [1, [None]]]) == ("a", (1, (None,)))
