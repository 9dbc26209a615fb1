"""The declared properties of fields, as the compilers read them. Declarations are written with `schema`."""

from __future__ import annotations

import copy
import sys
from functools import cache
from typing import Any

from klamm.protocol.wire import Wire

FOREVER = 0x7FFF
HIDDEN = "[hidden]"
UNSET: Any = type("_Unset", (), {"__repr__": lambda self: "<default>"})()


class Struct:
    """The base of every declared struct and message."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show every field. A sensitive one is shown as `[hidden]`, so no log or error text has its value."""
        shown = (f"{spec.name}={spec.shown(getattr(self, spec.name))}" for spec in specs(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


@cache
def parse_versions(text: str) -> tuple[int, int]:
    """Return (first, last) of "3+", "0-7", "4"; "none" is the empty range (1, 0)."""
    if text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), FOREVER)
    first, _, last = text.partition("-")
    return (int(first), int(last or first))


class FieldSpec:
    """One declared field. `wire` is None for a struct; then `struct` is its class."""

    __slots__ = (
        "array",
        "default",
        "encoded",
        "flexible",
        "ignorable",
        "module",
        "name",
        "nullable",
        "sensitive",
        "struct_name",
        "tag",
        "tagged",
        "versions",
        "wire",
    )

    def __init__(
        self,
        versions: str,
        nullable: str,
        default: Any,
        tag: int | None,
        tagged: str,
        ignorable: bool,
        flexible: str,
        encoded: bool = False,
        sensitive: bool = False,
    ) -> None:
        self.name = ""
        self.module = ""
        self.struct_name = ""
        self.wire: Wire | None = None
        self.array = False
        self.versions = parse_versions(versions)
        self.nullable = parse_versions(nullable)
        self.default = default
        self.tag = tag
        self.tagged = parse_versions(tagged)
        self.ignorable = ignorable
        self.flexible = parse_versions(flexible)
        self.encoded = encoded
        self.sensitive = sensitive

    def shown(self, value: Any) -> str:
        """Return the text of a value for people; of a sensitive field, only whether there is one."""
        return HIDDEN if self.sensitive and value else repr(value)

    def in_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def nullable_in(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    def tagged_in(self, version: int) -> bool:
        return self.tagged[0] <= version <= self.tagged[1]

    @property
    def struct(self) -> type[Struct]:
        found = vars(sys.modules[self.module]).get(self.struct_name)
        if not (isinstance(found, type) and issubclass(found, Struct)):
            raise TypeError(f"{self.module}: field {self.name} has the unknown type {self.struct_name!r}")
        return found

    def bind(self, name: str, annotation: str, module: str) -> None:
        """Set name and type from the class body; the annotation is text, thanks to the __future__ import."""
        self.name, self.module = name, module
        text = annotation.removesuffix("| None").strip()
        if text.startswith("list[") and text.endswith("]"):
            self.array, text = True, text[5:-1].strip()
        self.struct_name = text
        metadata = getattr(vars(sys.modules[module]).get(text), "__metadata__", ())
        if metadata and isinstance(metadata[0], Wire):
            self.wire = metadata[0]
        elif not text.isidentifier():
            raise TypeError(f"{module}: field {name} has the unsupported type {annotation!r}")
        if self.default is UNSET and self.wire is not None and not self.array:
            self.default = self.wire.default
        elif self.array and isinstance(self.default, list):
            self.default = UNSET  # always a fresh empty list

    def element(self) -> FieldSpec:
        """Return the element of an array as a field. It is never null."""
        element = copy.copy(self)
        element.array, element.nullable = False, parse_versions("none")
        return element

    @property
    def has_fresh_default(self) -> bool:
        """True when the default is a new empty list or a new struct of defaults, not a constant."""
        return self.default is UNSET


_SPECS: dict[type, tuple[FieldSpec, ...]] = {}


def specs(cls: type) -> tuple[FieldSpec, ...]:
    """Return the fields of a declared class, in wire order."""
    return _SPECS[cls]


def declare_specs(cls: type, fields: tuple[FieldSpec, ...]) -> None:
    """Remember the fields of a class."""
    _SPECS[cls] = fields
