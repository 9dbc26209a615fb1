"""Kafka's own message definitions, read from the `kafka-clients` jars, and Klamm's in the same shape.

A definition is JSON with `//` comments. The newest jar has the versions that are still valid, the old jar the removed
ones. `layout` turns a definition, and `declared_layout` a declaration, into comparable fields.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from dataclasses import field as plain_field
from functools import cache
from typing import Any, Final

from klamm.protocol.fields import FOREVER, FieldSpec, parse_versions, specs
from klamm.protocol.schema import Message
from tests.support.jars import JarSet, jar

# Kafka 4.4 for its versions, 3.9 for the ones that 4.0 removed.
NEWEST: Final[JarSet] = "clients"
OLD: Final[JarSet] = "clients-old"


@dataclass(frozen=True)
class FieldLayout:
    """A field as one version of a message sees it. `present` False: the version does not have it."""

    name: str
    present: bool
    type: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    ignorable: bool
    flexible: bool
    fields: tuple[FieldLayout, ...]
    versions: tuple[int, int] = plain_field(compare=False)


@dataclass(frozen=True)
class Definition:
    """One JSON definition."""

    name: str
    kind: str
    api_key: int | None
    listeners: tuple[str, ...]
    valid: tuple[int, int]
    flexible: tuple[int, int]
    latest_version_unstable: bool
    fields: tuple[dict[str, Any], ...]
    structs: dict[str, tuple[dict[str, Any], ...]]

    @staticmethod
    def within(version: int, versions: str) -> bool:
        """Whether a version is one of `versions`, as written in a definition."""
        first, last = parse_versions(versions)
        return first <= version <= last


def snake_case(name: str) -> str:
    """`LeaderId` is `leader_id`; `Enable2Pc` is `enable2_pc`, as Kafka itself does it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def definitions(project: JarSet) -> dict[str, Definition]:
    """All definitions in the kafka-clients jar of a project, by name."""
    found = {}
    with zipfile.ZipFile(jar(project, "kafka-clients-")) as archive:
        for entry in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", entry):
                definition = parse_definition(archive.read(entry).decode())
                found[definition.name] = definition
    return found


def definition_of(name: str, version: int) -> Definition | None:
    """The newest definition that has this version."""
    projects: tuple[JarSet, ...] = (NEWEST, OLD)
    for project in projects:
        found = definitions(project).get(name)
        if found is not None and found.valid[0] <= version <= found.valid[1]:
            return found
    return None


def parse_definition(text: str) -> Definition:
    """A definition as it stands in a jar."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
    loaded = json.loads("\n".join(lines))
    fields = tuple(loaded.get("fields", ()))
    structs = {common["name"]: tuple(common["fields"]) for common in loaded.get("commonStructs", ())}
    return Definition(
        name=loaded["name"],
        kind=loaded["type"],
        api_key=loaded.get("apiKey"),
        listeners=tuple(loaded.get("listeners", ())),
        valid=parse_versions(loaded["validVersions"]),
        flexible=parse_versions(loaded.get("flexibleVersions", "none")),
        latest_version_unstable=bool(loaded.get("latestVersionUnstable", False)),
        fields=fields,
        structs=structs,
    )


_ZERO: dict[str, Any] = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}


def layout(definition: Definition, version: int) -> tuple[FieldLayout, ...]:
    """The fields of a definition in wire order, the absent ones included."""
    return tuple(_field_layout(definition, field, version) for field in definition.fields)


def _field_layout(definition: Definition, field: dict[str, Any], version: int) -> FieldLayout:
    kind = field["type"]
    array, element = kind.startswith("[]"), kind.removeprefix("[]")
    nested: tuple[dict[str, Any], ...] = ()
    if element[0].isupper():
        nested = tuple(field["fields"]) if "fields" in field else definition.structs[element]
    tagged = "tag" in field and Definition.within(version, field.get("taggedVersions", "none"))
    present = Definition.within(version, field["versions"])
    own = field.get("flexibleVersions")
    return FieldLayout(
        name=snake_case(field["name"]),
        present=present,
        type=element,
        array=array,
        nullable=present and Definition.within(version, field.get("nullableVersions", "none")),
        tag=field["tag"] if tagged else None,
        default=_default(element, array, bool(nested), field.get("default")),
        ignorable=bool(field.get("ignorable", False)),
        flexible=own is None or Definition.within(version, own),
        fields=tuple(_field_layout(definition, inner, version) for inner in nested),
        versions=parse_versions(field["versions"]),
    )


def _default(element: str, array: bool, is_struct: bool, given: Any) -> Any:
    if given in ("null", None) and given is not None:
        return None
    if array:
        return []
    if is_struct:
        return "new"
    if given is None:
        return _ZERO.get(element, 0)
    if element == "bool":
        return given is True or given == "true"
    if element in ("string", "bytes"):
        return given
    if element == "float64":
        return float(given)
    return int(given, 0) if isinstance(given, str) else given


def declared_layout(cls: type, version: int) -> tuple[FieldLayout, ...]:
    """The fields of one of Klamm's classes in wire order, the absent ones included."""
    return tuple(_declared_field(spec, version) for spec in specs(cls))


def _declared_field(spec: FieldSpec, version: int) -> FieldLayout:
    default = spec.default
    if spec.has_fresh_default:
        default = [] if spec.array else "new"
    present = spec.in_version(version)
    return FieldLayout(
        name=spec.name,
        present=present,
        type=spec.wire.name if spec.wire else spec.struct.__name__,
        array=spec.array,
        nullable=present and spec.nullable_in(version),
        tag=spec.tag if spec.tagged_in(version) else None,
        default=default,
        ignorable=spec.ignorable,
        flexible=spec.flexible[0] <= version <= spec.flexible[1],
        fields=() if spec.wire else declared_layout(spec.struct, version),
        versions=spec.versions,
    )


def is_flexible(definition: Definition | type[Message], version: int) -> bool:
    """Whether a version of a message is flexible."""
    first, last = definition.flexible
    return first <= version <= min(last, FOREVER)
