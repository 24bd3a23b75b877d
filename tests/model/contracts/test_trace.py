"""Traces as JSON: there and back for any steps, and one line for what is not one."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import SCHEMA, Interleave, Publication, Save, Step, Trace, Wait
from orderlab.model.errors import InputError

STEPS = st.one_of([st.from_type(kind) for kind in get_args(Step) if kind is not Interleave])


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=5), st.binary(max_size=4))
def test_a_trace_comes_back_from_json(steps: list[Step], client: bytes) -> None:
    clean = [step for step in steps if "nan" not in repr(step)]
    trace = Trace((*clean, *(Interleave(one, Wait(1), 2) for one in clean)), (client, b"\xff"), seed=3)
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


def test_fields_at_their_defaults_are_left_out() -> None:
    told = Trace((Save((Publication(1, b"x"),), fault=Fault("read-only")),)).to_json()["steps"]
    assert told == [
        {
            "do": "save",
            "messages": [{"label": 1, "payload": "x", "topic": "t", "qos": 1, "interval_ms": None}],
            "fault": {"kind": "read-only", "at": 0, "key": "", "found": ""},
        }
    ]


def trace_of(**changes: Any) -> dict[str, Any]:
    whole = {"schema": SCHEMA, "steps": [], "clients": ["a"], "default_expiry_ms": 1, "modulus": 3}
    return {name: value for name, value in (whole | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "f: not a trace"),
        (trace_of(steps=None), "f: not a trace"),
        (trace_of(schema=99), "f: schema 99; this version reads schema 1"),
        (trace_of(steps=[{"do": "sav"}]), "f: steps\\[0\\]: no such step; 'do' is one of save, "),
        (trace_of(steps=[{"do": "wait"}]), "f: steps\\[0\\]: .*missing"),
        (trace_of(steps=[{"do": "wait", "ms": "x"}]), "f: steps\\[0\\].ms: 'x' is not"),
        (trace_of(steps=[{"do": "wait", "ms": 1, "s": 2}]), "f: steps\\[0\\].s: unknown field; wait has ms"),
        (trace_of(modulus=None), "f: KeyError 'modulus'"),
    ],
)
def test_what_is_not_a_trace_is_one_line(data: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        Trace.from_json(data, "f")
    assert "\n" not in str(caught.value)
