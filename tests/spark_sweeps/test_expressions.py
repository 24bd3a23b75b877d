"""Derived parameters: arithmetic and nothing else."""

import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.sweep_file.expressions import Expression

VALUES = {"rate": 2.5, "brokers": 4, "mode": "fast"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000 * brokers", 4000),
        ("ceil(rate) + brokers // 3", 4),
        ("max(1, min(rate, 2)) ** 3", 8),
        ("'a-' + str(brokers)", "a-4"),
        ("3 if mode == 'fast' and rate > 1 else 5", 3),
        ("not (1 < brokers < 4)", True),
        ("brokers or 1 / 0", 4),
        ("-brokers % 3", 2),
    ],
)
def test_values(text, value):
    assert Expression(text, "x").evaluate(VALUES) == value


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("__import__('os').system('id')", "cannot be called"),
        ("mode.__class__", "cannot be written here"),
        ("[1 for x in mode]", "cannot be written here"),
        ("mode[0]", "cannot be written here"),
        ("(lambda: 1)()", "cannot be called"),
        ("open('x')", '"open" cannot be called'),
        ("round(1, ndigits=2)", '"round" cannot be called'),
        ("1 +", "is not an expression"),
        ("", "is not an expression"),
        ("rat * 2", 'unknown name "rat"; did you mean "rate"?'),
        ("1 / (brokers - 4)", "has no value here"),
        ("9 ** 9 ** 9", "too large"),
        ("10.0 ** 500", "has no value here"),
        ("mode * 1000000000", "text cannot be multiplied"),
        ("mode % 3", "text has no remainder"),
        ("1j", "is not a number"),
        ("-" * 100 + "1", "nested more than"),
        ("1+" * 600 + "1", "characters"),
        ("log(0 * rate)", "has no value here"),
        ("1e308 * 10", "is inf here"),
        ("int(str(brokers) + 'x')", "has no value here"),
    ],
)
def test_refused(text, complaint):
    with pytest.raises(InputError, match=r"^s\.toml: derived\.d: ") as caught:
        Expression(text, "s.toml: derived.d").evaluate(VALUES)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
