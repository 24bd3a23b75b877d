"""The EDN reader reads all of EDN's data and says where it cannot."""

from fractions import Fraction

import pytest

from orderlab.model.history.jepsen import EdnError, Keyword, Symbol, read_values

VALUES = [
    ("nil true false", [None, True, False]),
    ("1 -2 +3 4N 5.5 -6e3 7M 8.25M", [1, -2, 3, 4, 5.5, -6000.0, 7, 8.25]),
    (r'"a\"b\\\né" \a \newline \u0041', ['a"b\\\né', "a", "\n", "A"]),
    (r"[\a\b] \formfeed \backspace", [("a", "b"), "\f", "\b"]),
    ("0 -0 0N 0.5 - ... a' :a:b", [0, 0, 0, 0.5, Symbol("-"), Symbol("..."), Symbol("a'"), Keyword("a:b")]),
    ("1/2 -6/3 ##Inf ##-Inf", [Fraction(1, 2), -2, float("inf"), float("-inf")]),
    (":read :a/b sym +", [Keyword("read"), Keyword("a/b"), Symbol("sym"), Symbol("+")]),
    ("[1 [2 3]] (4) #{5 6}", [(1, (2, 3)), (4,), frozenset({5, 6})]),
    ("{:a 1, :b {:c [2]}}", [{"a": 1, "b": {"c": (2,)}}]),
    ("1 ; rest of the line\n2 #_ 3 #_ [4 5] 6 #_#_ 7 8 9", [1, 2, 6, 9]),
    ('#inst "2020" #jepsen.history.Op{:index 1}', ["2020", {"index": 1}]),
    ("#{[1 2] {:a 1}}", [frozenset({(1, 2), (("a", 1),)})]),
    (
        '#object[a.B 0x1A2f "#"] #"a\\d" #\'a/b #:op{:index 1}',
        [(Symbol("a.B"), 0x1A2F, "#"), "a\\d", Symbol("a/b"), {"index": 1}],
    ),
    ("9" * 4300, [10**4300 - 1]),
    ("", []),
]


@pytest.mark.parametrize(("text", "values"), VALUES)
def test_values(text, values):
    assert [value for _, value in read_values(text)] == values


def test_offsets_of_items_in_a_vector():
    assert list(read_values("[1\n {:a 2}] 3", flat=True)) == [(1, 1), (4, {"a": 2}), (12, 3)]


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("[1 2", 0),
        ("1 ]", 2),
        ("{:a}", 0),
        ('"open', 0),
        ("[1 }", 3),
        ('"\\q"', 0),
        ("1 12ab", 2),
        ("1/0", 0),
        ("1 " + "9" * 4301, 2),
        ("1 -1a", 2),  # neither a number nor a symbol: a sign or a point before a digit begins a number
        ("1 .5", 2),
        ("1 0777", 2),  # octal to Clojure, and none of EDN's integers begins with 0
        ("[1 \\newlin]", 3),  # one token, not the character n and a symbol
        ("[1 \\o377]", 3),
        ("1 ::a/b", 2),
        ("1 :", 2),
        ("1 @x", 2),
        ("1 `x", 2),
        ("1 ~x", 2),
        ("1 ^x", 2),
    ],
)
def test_what_is_not_edn_is_said_with_its_place(text, offset):
    with pytest.raises(EdnError) as error:
        list(read_values(text))
    assert error.value.offset == offset


def test_deep_nesting_is_no_recursion():
    ((_, value),) = read_values("[" * 5000 + "]" * 5000)
    depth = 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 4999
