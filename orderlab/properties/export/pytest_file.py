"""A trace as a pytest file that stands alone: redis-py and the scripts' texts, nothing of this suite."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files

from orderlab.model.errors import InputError
from orderlab.properties.export.on_server import (
    Elapsed,
    Held,
    Left,
    LeftOut,
    Plan,
    Put,
    ReplayedStep,
    StoreCall,
    Text,
    TimePasses,
    Unknown,
    Woven,
    digest_of,
)
from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.replies import ErrorReply

UNTIL_FIXED = '''
def until_fixed(violation, last):
    """A test that fails while the steps come out as the broken run did, and passes once they do not."""

    def decorate(steps):
        def test(server):
            try:
                steps(server)
            except Late:
                raise
            except AssertionError as difference:
                if difference.is_error_of not in (None, last):
                    raise  # an error on the way is no repair
                return
            pytest.fail(violation)

        test.__doc__ = steps.__doc__
        return test

    return decorate
'''
"""What a regression test has beyond the fixture that every file has."""


def pytest_file(plan: Plan) -> str:
    """The text of a test that asserts each reply and each key as the run had them."""
    return _test(plan, plan.steps, None)


def regression_test(plan: Plan) -> str:
    """The text of a test that fails while replies, and the keys at the step that breaks the law, are those of the run.

    Raises:
        InputError: no step breaks a law.
    """
    for index, step in enumerate(plan.steps):
        if step.move.broken:
            return _test(plan, plan.steps[: index + 1], step)
    raise InputError("--expect fixed: no step of this run breaks a law; name a finding whose steps do with --finding")


def _test(plan: Plan, steps: tuple[ReplayedStep, ...], breaking: ReplayedStep | None) -> str:
    """The text of a file; of a regression test where the step is given that breaks the law."""
    told = plan.transcript
    name = re.sub(r"\W+", "_", f"{told.store} {told.law or 'trace'}").strip("_").lower()
    lines = [
        *_heading(plan, breaking is not None),
        "",
        files("orderlab.properties.export").joinpath("standalone_test.txt").read_text().rstrip(),
        *([UNTIL_FIXED.rstrip()] if breaking else []),
        "",
        "",
    ]
    lines += [
        f"ALIGN_MS = {plan.align_ms}",
        '"""The steps begin when the server\'s clock, in ms, is a multiple of it."""',
    ]
    lines += [f"SLEEPS = {plan.sleeps}", '"""Time passes by waiting; otherwise by moving the deadlines of keys."""']
    words = (
        "By how much the steps may be late before a difference is put down to that, for leases run out "
        "meanwhile; then they are taken again."
    )
    lines += [f"LATE_MS = {plan.late_ms}", f'"""{words}"""']
    lines += [
        "SCRIPTS = {",
        *(f"    {name!r}: {_text_literal(source)}," for name, source in told.scripts.items()),
        "}",
        "",
        "",
    ]
    if breaking:
        violation = "; ".join(f"{law} is violated: {text}" for law, text in breaking.move.broken)
        lines += [f"@until_fixed({violation!r}, {_named(breaking)!r})"]
    lines += ["@in_time", f"def test_{name}(server):", f"    {_quoted(_comment(told.title))}"]
    digests = {hashlib.sha1(source).hexdigest().encode(): name for name, source in told.scripts.items()}
    for step in steps:
        lines += [f"    {line}".rstrip() for line in _step(step, digests, breaking in (None, step))]
    return "\n".join(lines) + "\n"


def _heading(plan: Plan, is_regression_test: bool) -> Iterator[str]:
    told = plan.transcript
    is_broken = any(move.broken for move in told.moves)
    yield "# " + _comment(told.title)
    yield "#"
    if is_regression_test:
        yield "# A regression test: it FAILS while replies, and the keys at the step that breaks the law, are those of"
        yield "# the broken run. It PASSES once one of them differs; an error before that step, where the run had none,"
        yield "# is no repair. It runs the texts below; SCRIPTS_FROM=FOLDER pytest ... runs those of your working tree."
    elif is_broken:
        yield (
            "# This test PASSES while the scripts break the law in the way that is shown: every reply and every "
            "key is asserted as the"
        )
        yield (
            "# broken run had them. It FAILS once the scripts do something else: SCRIPTS_FROM=FOLDER pytest ... "
            "tries fixed ones."
        )
    else:
        yield (
            "# No law is broken on the way: this test PASSES while the scripts reply and leave the keys as they "
            "did here."
        )
    yield (
        "# Needs pytest, redis (redis-py), and redis-server on PATH or the address of an empty server in REDIS_URL "
        "(Redis 7)."
    )
    for note in plan.notes:
        yield f"# Note: {_comment(note)}"
    if told.seed is not None:
        yield f"# Seed of the search that found it: {told.seed}"


def _comment(text: str) -> str:
    """One line that ends no comment."""
    return text.encode("unicode_escape").decode("ascii").replace("\\\\", "\\") if not text.isprintable() else text


def _quoted(text: str) -> str:
    return f'"""{text}"""' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)


def _step(step: ReplayedStep, digests: dict[bytes, str], has_keys: bool) -> Iterator[str]:
    """The lines of one step, with what its keys must be if they are to be compared."""
    move = step.move
    if step.number or step.acts:
        yield f"# {step.number}. {_comment(move.action)}"
    for line in (move.answer, *(f"{law} is violated: {text}" for law, text in move.broken)):
        if line:
            yield f"#    {_comment(line)}"
    for act in step.acts:
        if isinstance(act, TimePasses):
            yield f"server.wait({act.ms})"
        elif isinstance(act, Put):
            yield f"# {_comment(act.why)}"
            yield from (f"server.call({', '.join(map(_value, argv))})" for argv in act.commands)
        elif isinstance(act, LeftOut):
            yield f"# not sent ({_comment(act.why)}): {_comment(shown_bytes(b' '.join(act.argv))[:200])}"
        else:
            yield from _sent(act, _named(step), digests)
    if has_keys and (step.number or step.acts):
        keys = ", ".join(f"{name!r}: {_held(held)}" for name, held in step.keys.items())
        yield f"server.expect(server.keys(), {{{keys}}}, 'the keys after step {step.number}')"


def _named(step: ReplayedStep) -> str:
    """What a difference in a reply is told of."""
    return f"step {step.number}"


def _sent(act: StoreCall, what: str, digests: dict[bytes, str]) -> Iterator[str]:
    yield from (f"server.raw({', '.join(map(repr, argv))})" for argv in act.enter)
    argv = list(map(_value, act.argv))
    digest = digest_of(act.argv)
    if digest in digests:
        argv[:2] = [repr(act.argv[0].upper().replace(b"SHA", b"")), f"script({digests[digest]!r})"]
    yield f"reply = server.call({', '.join([*argv, *([f'client={act.connection}'] if act.connection else [])])})"
    yield from (f"server.raw({', '.join(map(repr, argv))})" for argv in act.leave)
    yield f"server.expect(reply, {_value(act.reply)}, {what!r})"


def _held(held: Held) -> str:
    deadline = "None" if held.deadline is None else _value(held.deadline)
    return f"({held.kind!r}, {_value(held.value)}, {deadline})"


def _value(value: Woven) -> str:
    """A value as Python."""
    if isinstance(value, Unknown):
        return "ANY"
    if isinstance(value, Elapsed):
        return f"at{'' if value.unit == 'ms' else '_' + value.unit}({value.offset_ms})"
    if isinstance(value, Left):
        return f"about({value.value})"
    if isinstance(value, Text):
        return f"Reply({', '.join(map(_value, value.parts))})"
    if isinstance(value, ErrorReply):
        return f"Error({value.message.decode('latin-1')!r})"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(bytes(value)) if isinstance(value, bytes) else repr(value)


def _text_literal(source: bytes) -> str:
    """A script's text as Python, readable where it is plain."""
    plain = all(byte == 10 or 32 <= byte < 127 for byte in source) and b'"""' not in source and b"\\" not in source
    if plain and not source.endswith(b'"'):
        return f'b"""{source.decode()}"""'
    return (
        "(\n" + "\n".join(f"        {line!r}" for line in source.splitlines(keepends=True)) + "\n    )"
        if source
        else "b''"
    )
