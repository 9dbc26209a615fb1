"""Messages as the JSON of Kafka's converters, for people and for tools that read dumps.

Names are Kafka's in camelCase, bytes are base64, uuids have Kafka's text form. Fields that a version does not have are
left out, as are tagged fields with their default.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from klamm.protocol.fields import FieldSpec, Struct, specs
from klamm.protocol.wire import uuid_to_text


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a message or struct that `version` has, in their order."""
    return {
        camel_case(spec.name): _value(spec, getattr(message, spec.name), version)
        for spec in specs(type(message))
        if spec.in_version(version) and not (spec.tagged_in(version) and _is_default(spec, getattr(message, spec.name)))
    }


def camel_case(name: str) -> str:
    """Convert `leader_id` to `leaderId`."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def _value(spec: FieldSpec, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        element = spec.element()
        return [_value(element, item, version) for item in value]
    if spec.wire is None:
        return to_json(value, version)
    if spec.wire.name == "uuid":
        return uuid_to_text(value)
    if spec.wire.kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value


def _is_default(spec: FieldSpec, value: Any) -> bool:
    if not spec.has_fresh_default:
        return bool(value == spec.default)
    return bool(value == ([] if spec.array else spec.struct()))
