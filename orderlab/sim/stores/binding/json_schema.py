"""A JSON Schema of ``store.toml``, for editors that complete and check it while it is written: made of the tables by
which it is loaded, so that the two cannot differ in keys and types.

What it does not say: templates, filters, whether scripts are there, promises that exclude each other. ``orderlab
binding check`` says those. A file with ``base`` may leave out whatever its base has.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from orderlab.sim.stores.binding.schema import CONTRACTS, ContractStore
from orderlab.sim.stores.binding.session import Specification, Store

OWN = r"^[^:]+\.py:[A-Za-z_][A-Za-z0-9_]*$"
ONE_NAME = [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
"""A script: a file, or several put one after the other."""
SCRIPTS = ("script", "library")


def schema_of_stores() -> dict[str, Any]:
    """The schema, for every contract that there is and for owners' own."""
    definitions: dict[str, Any] = {"session": _shape_of(Store)}
    _take_specification(definitions["session"], {"enum": list(get_args(Specification))})
    for name, reference in CONTRACTS.items():
        module, _, attribute = reference.partition(":")
        definitions[name] = _of_contract(name, getattr(importlib.import_module(module), attribute))
    definitions["own"] = _shape_of(ContractStore)
    _take_specification(definitions["own"], {"type": "string", "pattern": OWN})
    whole = {}
    for name, shape in definitions.items():
        for inner, table in shape.pop("$defs", {}).items():
            whole[f"{name}.{inner}"] = table
        whole[name] = shape
    text = json.dumps(whole)
    for name in definitions:  # each has tables of its own
        text = _within(text, name)
    known: dict[str, Any] = json.loads(text)
    kinds = list(definitions)
    variants = {f"variant.{name}": _partial(known[name], known) for name in kinds}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "store.toml of orderlab",
        "type": "object",
        "if": {"required": ["base"]},
        "then": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in variants]},
        "else": _by_specification(kinds),
        "$defs": {**known, **variants},
    }


def _by_specification(kinds: list[str]) -> dict[str, Any]:
    """The kind that ``specification`` names alone, so that an editor completes and complains about that one."""
    chosen: dict[str, Any] = {"$ref": "#/$defs/session"}
    own = {"properties": {"specification": {"type": "string", "pattern": OWN}}, "required": ["specification"]}
    chosen = {"if": own, "then": {"$ref": "#/$defs/own"}, "else": chosen}
    for name in kinds:
        if name in CONTRACTS:
            named = {"properties": {"specification": {"const": name}}, "required": ["specification"]}
            chosen = {"if": named, "then": {"$ref": f"#/$defs/{name}"}, "else": chosen}
    return chosen


def _of_contract(name: str, contract: Any) -> dict[str, Any]:
    shape = _shape_of(ContractStore)
    _take_specification(shape, {"const": name})
    shape["properties"]["operations"]["propertyNames"] = {"enum": list(contract.operations)}
    promises = _shape_of(contract.promises_table)
    shape["$defs"] = {**shape.get("$defs", {}), **promises.pop("$defs", {})}
    shape["properties"]["promises"] = promises
    return shape


def _shape_of(table: type[BaseModel]) -> dict[str, Any]:
    """The schema of one table, with what stands below its fields in the text as descriptions."""
    shape = table.model_json_schema(by_alias=True)
    _take_scripts(shape)
    tables = {table.__name__: shape, **shape.get("$defs", {})}
    for inner in _tables_in(table):
        for key, text in described(inner).items():
            if inner.__name__ in tables and key in tables[inner.__name__].get("properties", {}):
                tables[inner.__name__]["properties"][key]["description"] = text
    return shape


def _take_specification(shape: dict[str, Any], taken: dict[str, Any]) -> None:
    """What ``specification`` takes in stores of one kind, with what it means."""
    shape["properties"]["specification"] = {**taken, "description": shape["properties"]["specification"]["description"]}


def _take_scripts(shape: Any) -> None:
    if isinstance(shape, dict):
        for key, inner in shape.items():
            if key in SCRIPTS and isinstance(inner, dict) and "anyOf" in inner:
                inner["anyOf"] = [*ONE_NAME, *[one for one in inner["anyOf"] if one.get("type") == "null"]]
            _take_scripts(inner)
    elif isinstance(shape, list):
        for inner in shape:
            _take_scripts(inner)


def _tables_in(table: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The table, and those that its fields are made of."""
    pending, known = [table], {table}
    while pending:
        current = pending.pop()
        yield current
        for field in current.model_fields.values():
            for inner in _models_in(field.annotation):
                if inner not in known:
                    known.add(inner)
                    pending.append(inner)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def described(table: type[BaseModel]) -> Mapping[str, str]:
    """Key -> what stands below it in the text of the table."""
    owners = [owner for owner in reversed(table.__mro__) if issubclass(owner, BaseModel) and owner is not BaseModel]
    text = "\n".join(map(inspect.getsource, owners))  # what is said of a key last is said of this table
    rows = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', text, re.MULTILINE | re.DOTALL)
    fields = table.model_fields
    return {(fields[name].alias or name): " ".join(words.split()) for name, words in rows if name in fields}


def _within(text: str, name: str) -> str:
    """The references of one kind, to its own tables."""
    whole = json.loads(text)
    for place, shape in whole.items():
        if place == name or place.startswith(f"{name}."):
            whole[place] = json.loads(re.sub(r'"#/\$defs/([A-Za-z]\w*)"', rf'"#/$defs/{name}.\1"', json.dumps(shape)))
    return json.dumps(whole)


def _partial(shape: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A shape of which anything may be left out, in its tables as well."""
    loose = copy.deepcopy(shape)
    loose.pop("required", None)
    operations = loose["properties"].get("operations", {})
    operations.pop("minProperties", None)
    if "$ref" in operations:
        inner = copy.deepcopy(known[operations["$ref"].rpartition("/")[2]])
        inner.pop("required", None)
        loose["properties"]["operations"] = inner
    return loose
