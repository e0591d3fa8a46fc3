"""Write docs/manifest.schema.json: the JSON Schema of manifests, from the classes that read them.

The schema is of the current format. What it cannot say, such as fields that go together, loading
checks nevertheless.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tilewright.base.checked_json import MAX_INTEGER, MIN_INTEGER, Such
from tilewright.runtime.manifest import FORMAT_VERSION, ManifestFields
from tilewright.runtime.signature import ABI_VERSION

PAGE = Path(__file__).resolve().parent.parent / "docs" / "manifest.schema.json"
_PLAIN = {Any: {}, bool: {"type": "boolean"}, float: {"type": "number"}, str: {"type": "string"}}
_INTEGER = {"type": "integer", "minimum": MIN_INTEGER, "exclusiveMaximum": MAX_INTEGER}
_RANGE = re.compile(r"a number from (-?\d+) (?:on|to (-?\d+))")


def render() -> str:
    """The text of the schema."""
    known: dict[str, Any] = {}
    whole = _object(ManifestFields, known)
    versions = {"format": {"const": FORMAT_VERSION}, "abi": {"const": ABI_VERSION}}
    digest = {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "SHA-256 of the rest as JSON with sorted keys and no white space.",
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The manifest of an artifact of Tilewright",
        **whole,
        "properties": {**versions, **whole["properties"], "digest": digest},
        "required": [*versions, *whole["required"], "digest"],
        "$defs": dict(sorted(known.items())),
    }
    return json.dumps(schema, indent=2) + "\n"


def _schema(annotation: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The schema of what `checked_json.read` takes for an annotation; classes go to `known`."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    if annotation is int:
        return dict(_INTEGER)
    if kind is Annotated:
        return _schema(parts[0], known) | _conditions(parts[1:])
    if kind in (Union, UnionType):
        (part,) = (part for part in parts if part is not NoneType)
        return {"anyOf": [_schema(part, known), {"type": "null"}]}
    if kind is Literal:
        return {"enum": [*parts]}
    if kind is list or (kind is tuple and parts[1:] == (...,)):
        return {"type": "array", "items": _schema(parts[0], known)}
    if kind is tuple:
        each = [_schema(part, known) for part in parts]
        return {"type": "array", "prefixItems": each, "minItems": len(each), "items": False}
    if kind is Mapping:
        return {"type": "object", "additionalProperties": _schema(parts[-1], known)}
    if not is_dataclass(annotation):
        raise TypeError(f"{annotation} has no schema")
    name = annotation.__name__
    if name not in known:
        known[name] = {}  # a class may have fields of itself
        known[name] = _object(annotation, known)
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    kinds = get_type_hints(kind, include_extras=True)
    own = fields(kind)
    required = [f.name for f in own if f.default is MISSING and f.default_factory is MISSING]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "properties": {field.name: _schema(kinds[field.name], known) for field in own},
        "required": required,
        "additionalProperties": False,
    }


def _conditions(conditions: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for condition in conditions:
        assert isinstance(condition, Such), "what it means is for people"
        found["description"] = condition.meaning
        if (limits := _RANGE.fullmatch(condition.meaning)) is not None:
            low, high = limits.groups()
            found["minimum"] = int(low)
            found |= {} if high is None else {"maximum": int(high)}
    return found


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
