"""What is said to be equivalent is, within the scope; what differs is shown by the first call in which it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.properties.contracts.session.mutation.equivalence import Table, compare, shown, tabulate
from orderlab.sim.redis.replies import ErrorReply, Status
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

SESSION = Path(__file__).parents[5] / "lua" / "session"


@pytest.fixture(scope="module")
def binding() -> Binding:
    return load_binding(SESSION)


@pytest.fixture(scope="module")
def table(binding: Binding) -> Table:
    return tabulate(binding, states_max=150, walks=10, is_long=False)


def edited(binding: Binding, script: str, find: bytes, replace: bytes) -> Binding:
    (source,) = (one.source for one in binding.scripts if one.name == script)
    assert source.count(find) == 1
    return binding.with_sources({script: source.replace(find, replace)})


def test_the_original_is_equivalent_to_itself(binding: Binding, table: Table) -> None:
    for script in ("save.lua", "fetch.lua", "acknowledge.lua", "clear.lua"):
        beside = compare(table, binding, script)
        assert beside.difference == ""
        assert beside.calls == sum(moment.script == script for moment in table.calls) > 20


def test_another_spelling_of_the_same_is_equivalent(binding: Binding, table: Table) -> None:
    same = edited(binding, "clear.lua", b"call('UNLINK', index, body)", b"call('DEL', body, index)")
    assert compare(table, same, "clear.lua").difference == ""


def test_a_difference_in_the_reply_alone_is_found(binding: Binding, table: Table) -> None:
    other = edited(binding, "clear.lua", b"return meta and 1 or 0", b"return meta and 2 or 0")
    beside = compare(table, other, "clear.lua")
    assert "replies int 2; the original int 1" in beside.difference
    assert not beside.is_of_keys


def test_a_difference_in_the_keys_alone_is_found(binding: Binding, table: Table) -> None:
    other = edited(binding, "clear.lua", b"call('UNLINK', index, body)", b"call('UNLINK', body)")
    beside = compare(table, other, "clear.lua")
    assert "leaves {s:" in beside.difference
    assert beside.is_of_keys


def test_a_difference_in_trouble_alone_is_found(binding: Binding, table: Table) -> None:
    """As long as nothing is wrong the extra write does the same as none; out of memory it fails where none did."""
    other = edited(
        binding,
        "save.lua",
        b"local size = call('ZCARD', index)",
        b"local size = call('ZCARD', index) call('APPEND', body .. 'x', '')",
    )
    assert (
        " while " in compare(table, other, "save.lua").difference
        or "leaves" in compare(table, other, "save.lua").difference
    )


def test_a_script_that_does_not_end_differs(binding: Binding, table: Table) -> None:
    other = binding.with_sources({"clear.lua": b"while true do end"})
    assert "did not end" in compare(table, other, "clear.lua").difference


def test_replies_are_compared_with_their_types_and_errors_by_their_code() -> None:
    assert shown([1, b"1", None, Status(b"OK")]) != shown([1, b"1", None, b"OK"])
    here, there = ErrorReply(b"ERR boom on line 3"), ErrorReply(b"ERR other")
    assert shown(here) == shown(there) != shown(ErrorReply(b"OOM command not allowed"))


def test_replies_that_the_binding_reads_alike_are_alike(binding: Binding, table: Table) -> None:
    """Of a message that is not kept the reply tells 0 0; an identifier without a sequence numbers none either."""
    alike = edited(binding, "save.lua", b"sequence > 0 and (sequence - 1)", b"sequence >= 0 and (sequence - 1)")
    assert compare(table, alike, "save.lua").difference == ""
    other = edited(binding, "save.lua", b"sequence > 0 and (sequence - 1)", b"sequence > 1 and (sequence - 1)")
    assert "save.lua" in compare(table, other, "save.lua").difference
