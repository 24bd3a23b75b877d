"""Commands read as operations: what a binding calls is read back as what was called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from orderlab.model.contracts.base import Contract
from orderlab.model.errors import InputError
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.operations import Call
from orderlab.sim.stores.binding.read_back import ReadBack

STORES = ("lua/lock", "lua/limiter", "lua/feed", "lua/job_queue", "lua/job_queue_blocking")


def as_bytes(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(as_bytes, value))
    return value.encode() if isinstance(value, str) else b"%d" % value if isinstance(value, int) else value


@pytest.mark.parametrize("store", STORES)
def test_a_call_is_read_back_as_it_was_made(store: str) -> None:
    binding = load_binding(store, trust_adapter=True)
    read_back, read = ReadBack(binding), 0
    for client in range(2):
        for call in cast(Contract, binding.contract).calls(client, ()):
            if call.name not in binding.operations or call.name in read_back.unreadable:
                continue
            made = binding.step(call.name, dict(call.fields))
            assert isinstance(made, Call)
            operation = read_back.find(made.argv)  # type: ignore[union-attr]
            assert operation is not None
            assert operation.name == call.name
            fields = {name: value for name, value in call.fields if name in operation.fields}
            assert {name: as_bytes(operation.fields[name]) for name in fields} == {
                name: as_bytes(value) for name, value in fields.items()
            }
            read += 1
    assert read


def written(folder: Path, operation: str, key: str = "{q}") -> ReadBack:
    (folder / "store.toml").write_text(
        f'specification = "lock"\npromises = {{ tokens = "caller" }}\nkeys = {{ lease = "{key}" }}\n'
        f"operations.acquire = {operation}\n"
    )
    return ReadBack(load_binding(folder))


@pytest.mark.parametrize(
    ("template", "argument", "value"),
    [
        ("<ttl_ms>", b"1500", b"1500"),
        ("<ttl_ms|seconds>", b"1.5", 1500),
        ("x<ttl_ms>", b"x7", b"7"),
        ("<ttl_ms|add:5>", b"12", 7),
        ("<ttl_ms>", b"", b""),
        ("x<ttl_ms>", b"7", None),
        ("<ttl_ms|seconds>", b"1,5", None),
        ("<ttl_ms|seconds>", b"1.50", None),  # this is not how it is written
    ],
)
def test_what_a_placeholder_stood_for_is_undone(tmp_path: Path, template: str, argument: bytes, value: Any) -> None:
    read_back = written(tmp_path, f'{{ command = ["SET", "<key.lease>", "<token>", "PX", "{template}", "NX"] }}')
    operation = read_back.find([b"set", b"{q}", b"t", b"px", argument, b"nx"])
    assert (None if operation is None else operation.fields["ttl_ms"]) == value
    assert read_back.find([b"SET", b"{q}", b"t", b"EX", argument, b"NX"]) is None
    assert read_back.find([b"SET", b"{other}", b"t", b"PX", argument, b"NX"]) is None


def test_what_cannot_be_undone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='filter "length" cannot be read back'):
        written(tmp_path, '{ command = ["SET", "<key.lease>", "<token|length>"] }')
    with pytest.raises(InputError, match="several calls"):
        written(
            tmp_path, '{ steps = [{ command = ["GET", "<key.lease>"] }, { command = ["SET", "<key.lease>", "1"] }] }'
        )
