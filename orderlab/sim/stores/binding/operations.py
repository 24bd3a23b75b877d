"""From the tables of a ``store.toml`` to operations that can be called: templates compiled, names checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.stores.binding.packed_values import dump_msgpack
from orderlab.sim.stores.binding.replies import ReplyReader, ValueReader, compile_reply, paths_of
from orderlab.sim.stores.binding.results import Call, CommandCall, Fields, Message, Script, ScriptCall, TransactionCall
from orderlab.sim.stores.binding.schema import (
    ContractOperation,
    ContractStore,
    JsonArgument,
    MsgpackArgument,
    Repeated,
    StepTable,
    ValueReply,
)
from orderlab.sim.stores.binding.session import (
    COMMON_FIELDS,
    LISTS,
    MESSAGE_FIELDS,
    OPERATION_FIELDS,
    SAVES,
    MessageFormat,
    Operation,
    ReplyTable,
    Store,
)
from orderlab.sim.stores.binding.templates import (
    RAW,
    Evaluate,
    FieldValues,
    MessageCodec,
    Template,
    Vocabulary,
    compile_template,
    compile_tree,
    dump_json,
    json_codec,
    packed_codec,
)

RenderList = Callable[[FieldValues], Iterable[bytes]]
Scripts = Mapping[str, Script]
KINDS_OF_CALL = ("script", "function", "command", "watch", "transaction")
_MESSAGE_ONLY = tuple(name for name in MESSAGE_FIELDS if name != "message")


@dataclass(frozen=True)
class StepBinding:
    """One call of an operation, ready to be built from a scope."""

    build: Callable[[FieldValues], Call]
    script: Script | None
    each: str | None
    """Name of the list for whose every element the step is called once."""
    when: str | None
    """Name of the captured reply or the field that must be neither nil nor empty nor the number 0 for the step to be
    called."""
    unless: str | None
    """The opposite."""
    capture: str | None
    function: str | None = None
    """Of a library, which ``script`` is then."""
    is_transaction: bool = False
    """It replies nil where a watched key has changed."""

    def scopes(self, scope: FieldValues) -> list[FieldValues]:
        """The scope of each call of this step."""
        return [scope] if self.each is None else element_scopes(scope, self.each)

    def applies(self, scope: FieldValues) -> bool:
        """Whether the step is called at all."""
        return (self.when is None or self._is_there(self.when, scope)) and (
            self.unless is None or not self._is_there(self.unless, scope)
        )

    def _is_there(self, name: str, scope: FieldValues) -> bool:
        value = scope.get(name)
        return value not in (None, [], b"", 0, ())


@dataclass(frozen=True)
class OperationBinding:
    """One operation of a store: its calls in order and the reading of its reply."""

    name: str
    steps: tuple[StepBinding, ...]
    reader: ReplyReader | ValueReader
    read_only: bool
    batch_max: int | None
    """The largest batch that save takes in one operation; None: any."""
    fields: tuple[str, ...]
    """What its caller may give."""
    tries: int = 1
    """How often its client begins, where a transaction finds a watched key changed."""
    again_from: int = 0
    """The step that it begins again from."""
    value: Evaluate | None = None
    """What it replies with; None: the reply of its last call."""
    reads: frozenset[str] = frozenset()
    """Names of the fields that its calls depend on: what no call reads, its callers have no choice in."""

    @property
    def needs_connection(self) -> bool:
        """Whether its calls must go over one connection, of which the server remembers what it watches."""
        return any(step.is_transaction for step in self.steps)

    @property
    def script(self) -> Script | None:
        """The first script that the operation runs."""
        return next((step.script for step in self.steps if step.script is not None), None)

    @property
    def is_atomic(self) -> bool:
        """Whether the operation is one call, so that nothing can come between its parts."""
        return len(self.steps) == 1 and self.steps[0].each is None


def message_scope(scope: FieldValues, message: Message, index: int) -> FieldValues:
    """``scope`` with the fields of one message; ``index`` counts from 1."""
    return scope | {
        "payload": message.payload,
        "topic": message.topic,
        "qos": message.qos,
        "expiry_ms": message.expiry_ms,
        "time_ms": message.time_ms,
        "retained": message.retained,
        "properties": dict(message.properties) or None,
        "index": index,
    }


def element_scopes(scope: FieldValues, name: str) -> list[FieldValues]:
    """One scope for each message, or for each item of a captured list."""
    elements = scope[name] or ()
    if name == "messages":
        return [message_scope(scope, message, index) for index, message in enumerate(elements, 1)]
    return [scope | {"item": element, "index": index} for index, element in enumerate(elements, 1)]


class OperationCompiler:
    """Compiles the operations of one store. ``place`` is how error messages call its file.

    ``fields`` are the fields of each operation beside those that all have.
    """

    def __init__(
        self,
        store: Store | ContractStore,
        scripts: Scripts,
        place: str,
        fields: Mapping[str, tuple[str, ...]] = OPERATION_FIELDS,
    ) -> None:
        self.store = store
        self.fields = fields
        self.common = COMMON_FIELDS if fields is OPERATION_FIELDS else ("now_ms",)
        self.scripts = scripts
        self.place = place
        self.codec = self._message_codec(store.message)
        everything = (*self.common, *dict.fromkeys(sum(fields.values(), ())), *_MESSAGE_ONLY)
        self.keys: dict[str, Template] = {
            name: compile_template(text, Vocabulary(everything, {}), f"{place}: keys.{name}")
            for name, text in store.keys.items()
        }

    def _message_codec(self, table: MessageFormat | None) -> MessageCodec:
        if table is None or table.format == "raw":
            return RAW
        fields = (*COMMON_FIELDS, *OPERATION_FIELDS[SAVES], *_MESSAGE_ONLY)
        vocabulary = Vocabulary(tuple(name for name in fields if name != "messages"), {})
        part = "fields" if table.format == "json" else "layout"
        content: Any = table.fields if table.format == "json" else table.layout
        if content is None:
            raise InputError(f'{self.place}: message.{part}: missing; format "{table.format}" needs it')
        codec = json_codec if table.format == "json" else packed_codec
        return codec(content, vocabulary, f"{self.place}: message.{part}")

    def compile(self, name: str, table: Operation | ContractOperation) -> OperationBinding:
        """The operation ``name``. Raises InputError for whatever the tables get wrong."""
        place = f"{self.place}: operations.{name}"
        given = {key for key in ("script", "library", "function", "command") if getattr(table, key) is not None}
        if table.steps is not None and (given or table.keys or table.args):
            raise InputError(f"{place}: has steps and a call of its own; move the call into the steps")
        steps = table.steps if table.steps is not None else [_single_step(table)]
        if table.batch_max is not None and name != SAVES:
            raise InputError(f"{place}.batch_max: only {SAVES} takes a batch; remove it")
        vocabulary = Vocabulary((*self.common, *self.fields[name]), {})
        if table.batch_max == 1:
            vocabulary = vocabulary.with_fields(*_MESSAGE_ONLY)
        compiled: list[StepBinding] = []
        reads: set[str] = set()
        captures: set[str] = set()
        for index, step in enumerate(steps):
            here = place if table.steps is None else f"{place}.steps[{index}]"
            vocabulary = replace(vocabulary, read=set())
            compiled.append(self._step(name, step, vocabulary, here, table.read_only))
            reads |= self._with_those_of_keys(vocabulary.read) - captures
            if step.capture is not None:
                captures.add(step.capture)
                vocabulary = vocabulary.with_fields(step.capture)
        if not compiled:
            raise InputError(f"{place}.steps: empty; name a script or a command")
        if isinstance(table, ContractOperation):
            told = table.reply or ValueReply()
            value_reader, value = _value_reader(told, f"{place}.reply"), told.value
            return OperationBinding(
                name,
                tuple(compiled),
                value_reader,
                table.read_only,
                None,
                (*self.common, *self.fields[name]),
                table.tries,
                _checked_start(table, compiled, place),
                None if value is None else compile_template(value, vocabulary, f"{place}.reply.value").value,
                frozenset(reads),
            )
        if (watching := [f"steps[{at}]" for at, step in enumerate(steps) if step.watch or step.transaction]) != []:
            raise InputError(
                f"{place}.{watching[0]}: session stores are validated without WATCH and MULTI; make it a script, or "
                "give the store a contract"
            )
        reply = table.reply or ReplyTable.model_validate({"shape": "strings" if name == LISTS else "ignored"})
        captured = tuple(step.capture for step in compiled if step.capture)
        if reply.source is not None and reply.source not in captured:
            raise InputError(
                f'{place}.reply.from: unknown capture "{reply.source}"; {did_you_mean(reply.source, captured)}'
            )
        reader = compile_reply(name, reply, f"{place}.reply", self.codec.unpack, self.store.modulus)
        return OperationBinding(
            name, tuple(compiled), reader, table.read_only, table.batch_max, (*self.common, *self.fields[name])
        )

    def _step(self, operation: str, step: StepTable, base: Vocabulary, place: str, read_only: bool) -> StepBinding:
        for name in (step.each, step.when, step.unless):
            if name is not None and name not in base.fields:
                raise InputError(f'{place}: unknown list "{name}"; {did_you_mean(name, base.fields)}')
            base.read.update(() if name is None else (name,))
        vocabulary = self._inside(base, step.each)
        kinds = [kind for kind in KINDS_OF_CALL if getattr(step, kind) is not None]
        if len(kinds) != 1:
            raise InputError(
                f"{place}: {' and '.join(kinds) or 'no call'}; give one of script, function with library, command, "
                "watch, transaction"
            )
        if step.transaction is not None:
            return self._transaction(operation, step, vocabulary, place)
        if step.command is not None or step.watch is not None:
            kind = "watch" if step.command is None else "command"
            if step.keys or step.args:
                raise InputError(f"{place}: a {kind} has no keys or args of its own; put them into the {kind}")
            given: list[Any] = [*(step.command or step.watch or ())]
            render = self._list(given, vocabulary, f"{place}.{kind}", None if step.command else self.keys)
            first = () if step.command else (b"WATCH",)
            return StepBinding(
                lambda scope: CommandCall(operation, (*first, *render(scope))),
                None,
                step.each,
                step.when,
                step.unless,
                step.capture,
            )
        if (step.library is None) != (step.function is None):
            raise InputError(f"{place}: function and library belong together; give both")
        script = self.scripts[step.script or step.library or ""]
        keys = self._list(step.keys, vocabulary, f"{place}.keys", self.keys)
        args = self._list(step.args, vocabulary, f"{place}.args")
        function = step.function

        def build(scope: FieldValues) -> Call:
            return ScriptCall(operation, script, tuple(keys(scope)), tuple(args(scope)), read_only, function)

        return StepBinding(build, script, step.each, step.when, step.unless, step.capture, function)

    def _transaction(self, operation: str, step: StepTable, vocabulary: Vocabulary, place: str) -> StepBinding:
        """MULTI, what ``transaction`` lists, EXEC."""
        if step.keys or step.args or step.each:
            raise InputError(f"{place}: a transaction has no keys, args or each of its own; put them into its calls")
        inner: list[StepBinding] = []
        for index, one in enumerate(step.transaction or ()):
            here = f"{place}.transaction[{index}]"
            if one.watch or one.transaction or one.capture:
                raise InputError(
                    f"{here}: watch, transaction and capture cannot stand between MULTI and EXEC; capture the "
                    "transaction's reply"
                )
            inner.append(self._step(operation, one, vocabulary, here, False))

        def build(scope: FieldValues) -> Call:
            calls = [one.build(each) for one in inner if one.applies(scope) for each in one.scopes(scope)]
            return TransactionCall(operation, tuple(one for one in calls if not isinstance(one, TransactionCall)))

        return StepBinding(build, None, None, step.when, step.unless, step.capture, is_transaction=True)

    def _inside(self, vocabulary: Vocabulary, each: str | None) -> Vocabulary:
        """The vocabulary inside ``each``, with the keys and the message as far as their fields are there."""
        if each == "messages":
            vocabulary = vocabulary.with_fields(*_MESSAGE_ONLY)
        elif each is not None:
            vocabulary = vocabulary.with_fields("item", "index")
        computed: dict[str, Evaluate] = {}
        if "payload" in vocabulary.fields:
            computed["message"] = self.codec.encode
        if "messages" in vocabulary.fields:
            computed["messages"] = self._all_messages
        for name, template in self.keys.items():
            if template.names <= set(vocabulary.fields):
                computed[f"key.{name}"] = template.value
        return replace(vocabulary, computed=computed)

    def _with_those_of_keys(self, names: Iterable[str]) -> set[str]:
        """``names``, those of keys (``key.NAME``) replaced by what their templates read."""
        found: set[str] = set()
        for name in names:
            key = self.keys.get(name.removeprefix("key.")) if name.startswith("key.") else None
            found |= {name} if key is None else key.names
        return found

    def _all_messages(self, scope: FieldValues) -> list[Any]:
        return [self.codec.encode(inner) for inner in element_scopes(scope, "messages")]

    def _list(
        self, items: Sequence[Any], vocabulary: Vocabulary, place: str, named: Mapping[str, Template] | None = None
    ) -> RenderList:
        parts = [self._item(item, vocabulary, f"{place}[{index}]", named) for index, item in enumerate(items)]
        single = [part for part, is_single in parts if is_single]
        if len(single) == len(parts):
            return lambda scope: [part(scope) for part in single]

        def render(scope: FieldValues) -> list[bytes]:
            values: list[bytes] = []
            for part, is_single in parts:
                if is_single:
                    values.append(part(scope))
                else:
                    values += part(scope)
            return values

        return render

    def _item(
        self, item: Any, vocabulary: Vocabulary, place: str, named: Mapping[str, Template] | None
    ) -> tuple[Callable[[FieldValues], Any], bool]:
        """What renders one item, and whether it makes one value rather than a list of them."""
        if isinstance(item, Repeated):
            if item.each not in vocabulary.fields:
                raise InputError(
                    f'{place}.each: unknown list "{item.each}"; {did_you_mean(item.each, vocabulary.fields)}'
                )
            each = item.each
            vocabulary.read.add(each)
            inner = self._list(item.items, self._inside(vocabulary, each), f"{place}.items", named)
            return lambda scope: [value for one in element_scopes(scope, each) for value in inner(one)], False
        if isinstance(item, JsonArgument):
            tree = compile_tree(item.content, vocabulary, f"{place}.json")
            return lambda scope: dump_json(tree(scope)), True
        if isinstance(item, MsgpackArgument):
            packed = compile_tree(item.content, vocabulary, f"{place}.msgpack")
            return lambda scope: dump_msgpack(packed(scope)), True
        if named is not None and "<" not in item:
            if item not in named:
                raise InputError(f'{place}: unknown key "{item}"; {did_you_mean(item, tuple(named))}')
            item = f"<key.{item}>"
        return compile_template(item, vocabulary, place).render, True


def _value_reader(table: ValueReply, place: str) -> ValueReader:
    if table.otherwise is not None and not table.words:
        raise InputError(
            f"{place}.otherwise: every reply would be {table.otherwise!r}; name in words the replies that mean "
            'something else, such as words = { "1" = 1 }'
        )
    if table.format != "json" and table.members is None:
        raise InputError(f"{place}.format: nothing is taken of the reply; give members, or remove it")
    members = paths_of(table.members or (), f"{place}.members")
    return ValueReader(dict(table.words), table.otherwise, members, table.format, dict(table.errors))


def _checked_start(table: ContractOperation, steps: Sequence[StepBinding], place: str) -> int:
    """``again_from``, which must stand before a transaction."""
    last = max((at for at, step in enumerate(steps) if step.is_transaction), default=-1)
    if table.tries > 1 and last < 0:
        raise InputError(f"{place}.tries: no step is a transaction that could find a watched key changed; remove it")
    if table.again_from > max(last, 0):
        raise InputError(
            f"{place}.again_from: step {table.again_from} does not come before a transaction; give one of 0 to "
            f"{max(last, 0)}"
        )
    return table.again_from


def _single_step(table: Operation | ContractOperation) -> StepTable:
    shared = StepTable.model_fields.keys() & type(table).model_fields.keys()
    return StepTable.model_construct(None, **{name: getattr(table, name) for name in shared})


def base_of(operation: OperationBinding, defaults: Mapping[str, Any]) -> FieldValues:
    """The scope of an operation of which no field is given."""
    return {name: defaults.get(name) for name in operation.fields}


def scope_of(operation: OperationBinding, fields: Fields, base: FieldValues) -> FieldValues:
    """The scope that ``fields`` describe. Raises InputError for an unknown field or too large a batch."""
    scope = {**base, **fields}
    if len(scope) > len(base):
        name = next(name for name in fields if name not in base)
        raise InputError(f'{operation.name}: unknown field "{name}"; {did_you_mean(name, operation.fields)}')
    if operation.batch_max is not None:
        messages = scope["messages"]
        if len(messages) > operation.batch_max:
            raise InputError(
                f"{operation.name}: a batch of {len(messages)}, but batch_max is {operation.batch_max}; split it"
            )
        if operation.batch_max == 1 and messages:
            scope = message_scope(scope, messages[0], 1)
    return scope
