"""Steps that are WATCH or a transaction: what a client sends, when it begins again, and what others do between its
calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import Begin, Die, Fault, Resume, Wait
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import validate_contract
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.backends import Backend, KernelBackend, ServerBackend
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.results import CommandCall, ContractReply, Failed, GivenUp, TransactionCall

COUNTER = """
from orderlab.contract import Call, Contract

class Counter(Contract):
    operations = {"add": ("by",), "read": ()}

    def initial(self):
        return 0

    def calls(self, client, seen):
        return [Call.of("add", by=1 + client), Call.of("read")]

    def outcomes(self, state, call, now_ms):
        if call.name == "read":
            yield state, state
        else:
            yield state + call["by"], state + call["by"]
"""
ADD = """
specification = "counter.py:Counter"
[keys]
sum = "sum"
[operations.read]
reply = { value = "<sum|or:0|add:0>" }
steps = [{ command = ["GET", "<key.sum>"], capture = "sum" }]
[operations.add]
reply = { value = "<sum|or:0|add:by>" }
"""
WATCHED = """
tries = 2
steps = [
    { watch = ["sum"] },
    { command = ["GET", "<key.sum>"], capture = "sum" },
    { transaction = [{ command = ["SET", "<key.sum>", "<sum|or:0|add:by>"] }, { command = ["PING"] }], capture = "done" },
]
"""  # noqa: E501


def counter(folder: Path, steps: str = WATCHED) -> Binding:
    (folder / "counter.py").write_text(COUNTER)
    (folder / "store.toml").write_text(ADD + steps)
    return load_binding(folder, trust_adapter=True)


def run(binding: Binding, backend: Backend | None = None, clients: int = 2) -> ContractRun:
    assert binding.contract is not None
    return ContractRun(binding, binding.contract, backend or KernelBackend(), clients)  # type: ignore[arg-type]


def add(client: int, trouble: Fault | None = None) -> Begin:
    return Begin(client, Call("add", (("by", 1 + client),)), trouble)


def read(client: int) -> Begin:
    return Begin(client, Call("read", ()))


def test_a_client_sends_its_steps_and_begins_again_where_exec_replies_nil(tmp_path: Path) -> None:
    step = counter(tmp_path).step
    watch, get = CommandCall("add", (b"WATCH", b"sum")), CommandCall("add", (b"GET", b"sum"))

    def transaction(value: bytes) -> TransactionCall:
        return TransactionCall("add", (CommandCall("add", (b"SET", b"sum", value)), CommandCall("add", (b"PING",))))

    assert [step("add", {"by": 3}, replies) for replies in ((), (b"OK",), (b"OK", b"4"))] == [
        watch,
        get,
        transaction(b"7"),
    ]
    again = (b"OK", b"4", None)
    assert [step("add", {"by": 3}, (*again, *more)) for more in ((), (b"OK",), (b"OK", b"9"))] == [
        watch,
        get,
        transaction(b"12"),
    ]
    assert step("add", {"by": 3}, (*again, b"OK", b"9", [b"OK", b"PONG"])) == ContractReply(12)
    assert step("add", {"by": 3}, (*again, *again)) == GivenUp(b"it gave up: watched keys had changed 2 times")


@pytest.mark.parametrize("reply", [[b"OK", ErrorReply(b"OOM no")], ErrorReply(b"OOM no")])
def test_an_error_in_a_transaction_ends_it(tmp_path: Path, reply: object) -> None:
    assert counter(tmp_path).step("add", {"by": 3}, (b"OK", b"4", reply)) == Failed(b"OOM no")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as started:
        yield started


@pytest.fixture(params=["kernel", pytest.param("server", marks=pytest.mark.server)])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "kernel":
        return KernelBackend()
    server: ServerProcess = request.getfixturevalue("server")
    return ServerBackend(server.host, server.port, 3)


def test_what_others_write_meanwhile_makes_a_client_begin_again(tmp_path: Path, backend: Backend) -> None:
    with backend:
        of = run(counter(tmp_path), backend)
        steps = [add(0), add(1), Resume(0), Resume(1), Resume(1), Resume(0), Resume(0), Resume(0), Resume(0), read(1)]
        reports = [of.perform(one) for one in steps]
        assert [one.is_over for one in reports] == [False] * 4 + [True] + [False] * 3 + [True, True]
        assert [one.reply for one in reports if one.is_over] == [2, 3, 3]
        assert not any(one.violation for one in reports)


def test_a_client_that_has_tried_often_enough_has_done_nothing(tmp_path: Path, backend: Backend) -> None:
    with backend:
        of = run(counter(tmp_path), backend)
        whole = [add(1), Resume(1), Resume(1)]
        steps = [add(0), Resume(0), *whole, Resume(0), Resume(0), Resume(0), *whole, Resume(0), read(0)]
        reports = [of.perform(one) for one in steps]
        assert reports[-2].stopped == "it gave up: watched keys had changed 2 times"
        assert reports[-1].reply == 4
        assert not any(one.violation for one in reports)


@pytest.mark.parametrize("ends", [Die(0), Resume(0, Fault("reply-lost")), Resume(0, Fault("out-of-memory"))])
def test_an_operation_that_ended_watches_nothing_any_more(tmp_path: Path, ends: Die | Resume) -> None:
    of = run(counter(tmp_path))
    for step in (add(0), Resume(0), ends):
        of.perform(step)
    assert of.state.core.watches == (((), False), ((), False))


def test_a_state_that_is_come_back_to_has_the_watches_of_then(tmp_path: Path) -> None:
    of = run(counter(tmp_path))
    for step in (add(0), Resume(0)):
        of.perform(step)
    watching = of.state
    for step in (add(1), Resume(1), Resume(1)):
        of.perform(step)
    changed = of.state
    assert (watching.core.watches[0], changed.core.watches[0]) == ((((b"sum", False),), False), ((), True))
    of.go_to(watching)
    assert of.perform(Resume(0)).is_over
    of.go_to(changed)
    assert not of.perform(Resume(0)).is_over
    of.go_to(watching)
    of.perform(Wait(5))
    assert of.state.core.watches == watching.core.watches


@pytest.mark.parametrize(
    ("steps", "law"),
    [
        (WATCHED, ""),
        (WATCHED.replace('    { watch = ["sum"] },\n', "").replace("tries = 2", ""), "specification"),
        (WATCHED + "again_from = 2\n", "specification"),
        (
            WATCHED.replace("{ transaction = [{", "{").replace(', { command = ["PING"] }], capture = "done" }', ""),
            "specification",
        ),
    ],
    ids=["watched", "unwatched", "sent again as it was", "no transaction"],
)
def test_interleavings_tell_who_loses_an_update(tmp_path: Path, steps: str, law: str) -> None:
    steps = steps if "transaction" in steps else steps.replace("tries = 2\n", "")
    found = validate_contract(counter(tmp_path, steps), WorkOrder(0.02, any_law=True))
    assert {one.law for one in found.results if one.outcome is Outcome.VIOLATED} == ({law} if law else set())


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (
            WATCHED + "again_from = 3\n",
            "operations.add.again_from: step 3 does not come before a transaction; give one of 0 to 2",
        ),
        (
            'tries = 2\nsteps = [{ command = ["PING"] }]',
            "operations.add.tries: no step is a transaction that could find a watched key changed; remove it",
        ),
        ('steps = [{ watch = ["sun"] }]', 'operations.add.steps[0].watch[0]: unknown key "sun"; did you mean "sum"?'),
        ('steps = [{ watch = ["sum"], command = ["PING"] }]', "command and watch; give one of script"),
        (
            'steps = [{ transaction = [{ watch = ["sum"] }] }]',
            "transaction[0]: watch, transaction and capture cannot stand between MULTI and EXEC",
        ),
        ("steps = [{ transaction = [] }]", "transaction"),
    ],
)
def test_a_transaction_that_is_none_is_one_line(tmp_path: Path, steps: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        counter(tmp_path, steps.replace("reply =", "#"))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_session_stores_have_no_transactions(tmp_path: Path) -> None:
    (tmp_path / "store.toml").write_text(
        "[operations.save]\nsteps = [{ transaction = [{ command = ['SET', 'q', '1'] }] "
        "}]\n[operations.fetch]\ncommand = ['LRANGE', 'q', '0', '-1']\n"
    )
    with pytest.raises(
        InputError, match=r"operations.save.steps\[0\]: session stores are validated without WATCH and MULTI"
    ):
        load_binding(tmp_path)


def test_a_crash_of_the_node_is_a_conflict_to_whoever_watched() -> None:
    binding = load_binding(Path(__file__).parents[4] / "lua" / "feed_watched")
    of = run(binding, KernelBackend(), clients=3)
    first, second = (Call.of("post", posts=((name, f"p{name}"),), ttl_ms=3000) for name in "ab")
    crashed = (Begin(0, first), Resume(0), Begin(1, second), Resume(1), Resume(1, Fault("crashed")))
    again = (Begin(1, second), Resume(1), Resume(1), Begin(2, Call.of("list", marker="", count=1)))
    reports = [of.perform(step) for step in (*crashed, *again, *[Resume(0)] * 4)]
    assert reports[4].stopped == "the node crashed"
    assert [report.is_over for report in reports[-4:]] == [False, False, False, True]
    told = of.perform(Begin(2, Call.of("list", marker="1", count=9)))
    assert told.violation is None
    assert told.reply == ("2", 1, ("a", "pa"))
