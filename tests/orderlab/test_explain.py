"""`orderlab explain` and `orderlab docs`: whatever a report names can be looked up, and every page opened."""

from __future__ import annotations

import json

import pytest

from orderlab.exit_codes import ExitCode
from orderlab.model.laws import LAWS
from orderlab.properties.lint.linter import RULES
from orderlab.report.explanations import explained, page_named, page_names
from tests.in_process import orderlab


@pytest.mark.parametrize("name", [*LAWS, *RULES, *(str(int(code)) for code in ExitCode), "mutual-exclusion", "binding"])
def test_laws_rules_codes_and_words_are_explained(name: str) -> None:
    assert all(one.text for one in explained(name))


def test_a_rule_is_shown_with_both_examples() -> None:
    told = orderlab("explain", "nil-reply").stdout
    assert "== nil then return 0" in told
    assert "if not redis.call" in told
    assert json.loads(orderlab("explain", "nil-reply", "--json").stdout)["explained"][0]["kind"] == "rule of lint"


def test_what_is_not_known_is_one_line_with_what_is_alike() -> None:
    ended = orderlab("explain", "nil-replay")
    assert ended.returncode == 2
    assert 'did you mean "nil-reply"?' in ended.stderr
    assert orderlab("docs", "binding").returncode == 2


def test_pages_are_listed_and_opened() -> None:
    listed = orderlab("docs").stdout.split()
    assert listed == page_names()
    assert orderlab("docs", "bindings").stdout == page_named("bindings").read_text()
