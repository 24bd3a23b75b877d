"""The JSON Schema of store.toml: every bundled store validates, and what the loader refuses by its tables does not."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding.json_schema import schema_of_stores
from orderlab.sim.stores.binding.loader import check_store
from tests.in_process import ROOT, orderlab

STORES = sorted((ROOT / "orderlab" / "lua").rglob("store.toml"))
WHOLE = ("session", "pending", "feed", "job_queue", "lock", "limiter")


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = schema_of_stores()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_bundled_store_validates(validator: Any) -> None:
    assert len(STORES) > 50
    wrong = {str(path): [e.message for e in validator.iter_errors(tomllib.loads(path.read_text()))] for path in STORES}
    assert {path: errors for path, errors in wrong.items() if errors} == {}


@pytest.mark.filterwarnings("error")
def test_a_store_is_written_as_json_without_a_warning() -> None:
    """Its digest is taken of that: a form that pydantic does not know again warns the user."""
    for name in WHOLE:
        content = tomllib.loads((ROOT / "orderlab" / "lua" / name / "store.toml").read_text())
        store = check_store(content, name)
        assert json.loads(store.model_dump_json())["operations"]


def damaged(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The content of a file with one mistake in each."""

    def places(table: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if isinstance(table, dict):
            yield path
            for key, inner in table.items():
                yield from places(inner, (*path, key))

    def at(path: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
        whole = copy.deepcopy(content)
        inner: Any = whole
        for step in path:
            inner = inner[step]
        return whole, inner

    for path in places(content, ()):
        whole, inner = at(path)
        inner["no_such_key"] = 1
        yield f"{path}: an unknown key", whole
        for key, value in at(path)[1].items():
            whole, inner = at(path)
            inner[key] = 1.5 if not isinstance(value, dict) else "text"
            yield f"{(*path, key)}: another type", whole
    whole = copy.deepcopy(content)
    del whole["operations"]
    yield "without operations", whole


@pytest.mark.parametrize("name", WHOLE)
def test_what_the_loader_refuses_by_its_tables_the_schema_refuses(validator: Any, name: str) -> None:
    content = tomllib.loads((ROOT / "orderlab" / "lua" / name / "store.toml").read_text())
    refused = 0
    for mistake, wrong in damaged(content):
        try:
            check_store(wrong, "store.toml")
        except InputError:
            refused += 1
            assert not validator.is_valid(wrong), f"{name}: {mistake}"
    assert refused > 10


def test_a_misspelt_operation_of_a_contract_is_seen(validator: Any) -> None:
    content = tomllib.loads((ROOT / "orderlab" / "lua" / "feed" / "store.toml").read_text())
    content["operations"]["clame"] = content["operations"].pop("claim")
    assert not validator.is_valid(content)


def test_the_command_prints_it(tmp_path: Path) -> None:
    ended = orderlab("binding", "schema")
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == schema_of_stores()
    assert orderlab("binding", "schema", tmp_path).returncode == 2
    assert orderlab("binding", "check").returncode == 2
