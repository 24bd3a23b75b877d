"""Translation of sets, records and sequences: their values are integers in a packed row, and so are these expressions.

Taken: reading and assigning, fields and `replace` of records, elements, `[k:]` and `[:-1]` of sequences, `in`, `len`,
truth, `==`; `|`, `&`, `-`, `^` and `<=` of sets; `+ (value,)` where the sum is assigned; loops and quantifiers over
members. Where Python would raise for a value outside its domain, `error` is marked; where it would not raise at once,
the value must be proved to lie inside, or the expression is refused.
"""

from __future__ import annotations

import ast

from orderlab.model.explorer.compiled.intervals import TRUTH, ValueInterval
from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.explorer.compiled.translated import (
    RAISES,
    UNKNOWN,
    IndexStretch,
    MethodScope,
    Translating,
    Value,
    reading,
    shortened,
    unsubscripted,
)
from orderlab.model.spec.compounds import RecordDomain, SequenceDomain, SetDomain
from orderlab.model.spec.variables import Domain, SpecificationError

_SET_OPERATORS: dict[type[ast.operator], str] = {
    ast.BitOr: "({0} | {1})", ast.BitAnd: "({0} & {1})", ast.Sub: "({0} & ~{1})", ast.BitXor: "({0} ^ {1})",
}  # fmt: skip
_SET_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.LtE: "(({0} & ~{1}) == 0)", ast.GtE: "(({1} & ~{0}) == 0)",
    ast.Lt: "((({0} & ~{1}) == 0) & ({0} != {1}))", ast.Gt: "((({1} & ~{0}) == 0) & ({0} != {1}))",
}  # fmt: skip


class Compounds(Translating):
    """The part of the translator that knows sets, records and sequences."""

    def compound(self, node: ast.expr, scope: MethodScope, assigned: bool = False) -> Value | None:
        """What looks at a set, a record or a sequence, or is one (`kind`); None for any other expression.

        `assigned` tells that the whole is assigned to a variable, where a value outside the domain raises.
        """
        if not self.layout.has_compounds:
            return None
        match node:
            case ast.Name(id=name) if scope.ranges is not None and name in scope.ranges and scope.kinds.get(name):
                return Value(f"v_{name}", scope.ranges[name], kind=scope.kinds[name])
            case ast.Attribute() | ast.Subscript():
                return self._read(node, scope)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._joined(left, operator, right, node, scope, assigned)
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._compared(left, operators, others, node, scope)
            case ast.Call():
                return self._called(node, scope)
        return None

    def _typed(self, text: str, domain: Domain) -> Value:
        interval = ValueInterval(domain.low, domain.high)
        if not interval.fits:
            raise NotCompilable(f"a value of {domain.size.bit_length()} bits, beyond 64")
        return Value(text, interval, kind=domain if domain.is_compound else None)

    def _read(self, node: ast.Attribute | ast.Subscript, scope: MethodScope) -> Value | None:
        root, indices = unsubscripted(node)
        place = self._field(root, scope)
        if place is not None and len(indices) <= len(place.shape):
            if not place.domain.is_compound or len(indices) < len(place.shape):
                return None
            state, place, index = self.field_access(node, scope)
            return self._typed(reading(state, place, index), place.domain)
        inner = self.compound(node.value, scope)
        if inner is None or inner.kind is None:
            return None
        if isinstance(node, ast.Attribute) and isinstance(inner.kind, RecordDomain):
            stride, domain = self._field_of(inner.kind, node.attr, node, scope)
            return self._typed(f"(({inner.text} // {stride}) % {domain.size} + ({domain.low}))", domain)
        if isinstance(node, ast.Subscript) and isinstance(inner.kind, SequenceDomain):
            return self._element(inner.text, inner.kind, node, scope)
        raise self.refusal(node, scope)

    def _field_of(self, kind: RecordDomain, name: str, node: ast.expr, scope: MethodScope) -> tuple[int, Domain]:
        """What its digit of a record's code is worth, and the domain of a field."""
        stride = 1
        for field, domain in reversed(kind.fields):
            if field == name:
                return stride, domain
            stride *= domain.size
        raise self.refusal(node, scope)

    def _element(self, text: str, kind: SequenceDomain, node: ast.Subscript, scope: MethodScope) -> Value:
        radix = f"{kind.longest + 1}, {kind.element.size}"
        if isinstance(node.slice, ast.Slice):
            low, high, step = (None if part is None else self.constant(part, scope) for part in _parts(node.slice))
            if step is None and high is None and type(low) is int and low >= 0:
                return self._typed(f"dropped({text}, {radix}, {min(low, kind.longest)})", kind)
            if step is None and low is None and type(high) is int and high == -1:
                return self._typed(f"without_last({text}, {radix})", kind)
            raise self.refusal(node, scope)
        at = self.value(node.slice, scope)
        return self._typed(f"(element_at({text}, {radix}, {at.number}, error) + ({kind.element.low}))", kind.element)

    def _joined(
        self,
        left: ast.expr,
        operator: ast.operator,
        right: ast.expr,
        node: ast.expr,
        scope: MethodScope,
        assigned: bool,
    ) -> Value | None:
        one, other = self.compound(left, scope, assigned), self.compound(right, scope)
        kind = (one.kind if one is not None else None) or (other.kind if other is not None else None)
        if kind is None:
            return None
        if (
            isinstance(kind, SequenceDomain)
            and isinstance(operator, ast.Add)
            and isinstance(right, ast.Tuple)
            and assigned
        ):
            text = self.as_code(left, kind, scope, assigned=True)
            for entry in right.elts:
                digit = self._digit(entry, kind.element, scope)
                text = f"appended({text}, {kind.longest + 1}, {kind.element.size}, {digit}, error)"
            return self._typed(text, kind)
        if not isinstance(kind, SetDomain) or type(operator) not in _SET_OPERATORS or (one is None and not assigned):
            raise self.refusal(node, scope)
        # What is only taken away, or kept, need not lie in the domain; what comes in raises where it is assigned.
        grows = assigned and isinstance(operator, ast.BitOr | ast.BitXor)
        texts = [self.as_code(part, kind, scope, assigned=grows) for part in (left, right)]
        return self._typed(_SET_OPERATORS[type(operator)].format(*texts), kind)

    def as_code(self, node: ast.expr, kind: Domain, scope: MethodScope, assigned: bool = False) -> str:
        """The text of an expression as a code of the domain. A value that may lie outside is refused, or marks `error`
        where Python raises at once (`assigned`)."""
        if not kind.is_compound:
            made = self.value(node, scope)
            if made.interval.within(kind.low, kind.high):
                return made.number
            if not assigned:
                raise NotCompilable(f"{scope.where}: {shortened(node)} may be outside {kind.low}..{kind.high}")
            return f"inside({made.number}, {kind.low}, {kind.high}, error)"
        known = self.constant(node, scope)
        if known is not UNKNOWN and known is not RAISES:
            try:
                return str(kind.code(known, ""))
            except SpecificationError:
                raise self.refusal(node, scope) from None
        if isinstance(node, ast.IfExp):
            one, other = (self.as_code(part, kind, scope, assigned) for part in (node.body, node.orelse))
            return f"({one} if {self.condition(node.test, scope)} else {other})"
        if isinstance(node, ast.Set) and isinstance(kind, SetDomain):
            bits = [f"(1 << {self._digit(entry, kind.member, scope, assigned)})" for entry in node.elts]
            return f"({' | '.join(bits)})"
        if isinstance(node, ast.Tuple) and isinstance(kind, SequenceDomain) and len(node.elts) <= kind.longest:
            text = "0"
            for entry in reversed(node.elts):
                text = f"({text} * {kind.element.size} + {self._digit(entry, kind.element, scope, assigned)})"
            return f"({text} * {kind.longest + 1} + {len(node.elts)})"
        made_of = self.compound(node, scope, assigned)
        if made_of is None or made_of.kind != kind:
            raise self.refusal(node, scope)
        return made_of.text

    def _digit(self, node: ast.expr, domain: Domain, scope: MethodScope, assigned: bool = True) -> str:
        return f"({self.as_code(node, domain, scope, assigned)} - ({domain.low}))"

    def _compared(
        self, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr], node: ast.expr, scope: MethodScope
    ) -> Value | None:
        made = [self.compound(part, scope) for part in (left, *others)]
        kinds = [None if one is None else one.kind for one in made]
        if not any(kinds):
            return None
        operator = operators[0]
        if len(operators) > 1:
            raise self.refusal(node, scope)
        if isinstance(operator, ast.In | ast.NotIn) and kinds[1] is not None:
            assert made[1] is not None
            text = self._has(left, made[1], node, scope)
            return Value(text if isinstance(operator, ast.In) else f"(not {text})", TRUTH, is_bool=True)
        kind = kinds[0] or kinds[1]
        assert kind is not None
        texts = [self.as_code(part, kind, scope) for part in (left, others[0])]
        if isinstance(operator, ast.Eq | ast.NotEq):
            return Value(
                f"({texts[0]} {'==' if isinstance(operator, ast.Eq) else '!='} {texts[1]})", TRUTH, is_bool=True
            )
        if not isinstance(kind, SetDomain) or type(operator) not in _SET_COMPARISONS:
            raise self.refusal(node, scope)
        return Value(_SET_COMPARISONS[type(operator)].format(*texts), TRUTH, is_bool=True)

    def _has(self, node: ast.expr, whole: Value, at: ast.expr, scope: MethodScope) -> str:
        """Whether something is a member of a set or an element of a sequence. What no member can be is none."""
        kind = whole.kind
        inner = (
            kind.member if isinstance(kind, SetDomain) else kind.element if isinstance(kind, SequenceDomain) else None
        )
        if inner is None:
            raise self.refusal(at, scope)
        if inner.is_compound:
            digit, inside = self.as_code(node, inner, scope), ""
        else:
            made = self.value(node, scope)
            digit = f"({made.number} - ({inner.low}))"
            proved = made.interval.within(inner.low, inner.high)
            inside = "" if proved else f"({inner.low} <= {made.number} <= {inner.high}) and "
        if isinstance(kind, SetDomain):
            return f"({inside}(({whole.text} >> {digit}) & 1) != 0)"
        assert isinstance(kind, SequenceDomain)
        return f"({inside}has_element({whole.text}, {kind.longest + 1}, {inner.size}, {digit}))"

    def _called(self, node: ast.Call, scope: MethodScope) -> Value | None:
        named = {one.arg: one.value for one in node.keywords if one.arg is not None}
        match node.func, node.args:
            case ast.Name(id="len"), [over] if self._is_builtin("len", scope) and not named:
                made = self.compound(over, scope)
                if made is None or made.kind is None:
                    return None
                if isinstance(made.kind, SequenceDomain):
                    return Value(f"({made.text} % {made.kind.longest + 1})", ValueInterval(0, made.kind.longest))
                if isinstance(made.kind, SetDomain):
                    return Value(f"ones({made.text})", ValueInterval(0, made.kind.member.size))
                raise self.refusal(node, scope)
            case ast.Attribute(value=whole, attr="replace"), []:
                made = self.compound(whole, scope)
                if made is None or not isinstance(made.kind, RecordDomain):
                    return None
                if len(named) != len(node.keywords):
                    raise self.refusal(node, scope)
                text = made.text
                for name, given in named.items():
                    stride, domain = self._field_of(made.kind, name, node, scope)
                    # Python looks at the domain when the record is assigned, not here.
                    digit = self._digit(given, domain, scope, assigned=False)
                    text = f"replaced({text}, {stride}, {domain.size}, {digit})"
                return self._typed(text, made.kind)
        kind = self.constant(node.func, scope)
        if not isinstance(kind, RecordDomain):
            return None
        if any(isinstance(one, ast.Starred) for one in node.args) or len(named) != len(node.keywords):
            raise self.refusal(node, scope)
        names = [name for name, _ in kind.fields]
        told = {**dict(zip(names, node.args, strict=False)), **named}
        if len(node.args) + len(named) != len(names) or told.keys() != set(names):
            raise self.refusal(node, scope)
        text = "0"
        for name, domain in kind.fields:
            text = f"({text} * {domain.size} + {self._digit(told[name], domain, scope)})"
        return self._typed(text, kind)

    def members(self, node: ast.expr, scope: MethodScope, name: str) -> IndexStretch | None:
        """A loop over the members of a set, in ascending order, or the elements of a sequence."""
        made = self.compound(node, scope)
        if made is None or made.kind is None:
            return None
        kind = made.kind
        if isinstance(kind, SetDomain):
            inner, size = kind.member, kind.member.size
            first = f"if ((all_{name} >> at_{name}) & 1) == 0:"
            digit = f"at_{name}"
            ends = "continue"
        elif isinstance(kind, SequenceDomain):
            inner, size = kind.element, kind.longest
            first = f"if at_{name} >= all_{name} % {kind.longest + 1}:"
            digit = f"element_at(all_{name}, {kind.longest + 1}, {inner.size}, at_{name}, error)"
            ends = "break"
        else:
            raise self.refusal(node, scope)
        is_plain = not inner.is_compound or (
            isinstance(inner, RecordDomain) and not any(domain.is_compound for _, domain in inner.fields)
        )
        if not is_plain and isinstance(kind, SetDomain):
            raise self.refusal(node, scope)  # whose codes may have another order
        return IndexStretch(
            f"range({size})", ValueInterval(inner.low, inner.high) if size else None, ValueInterval(0, size),
            before=(f"all_{name} = int64({made.text})",),
            first=(first, f"    {ends}", f"v_{name} = int64({digit} + ({inner.low}))"),
            kind=inner if inner.is_compound else None,
        )  # fmt: skip


def _parts(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step
