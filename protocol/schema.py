"""Declare messages: one class per message for all its versions.

A struct is a class annotated with wire types, other structs, `list[...]` of either, or any of those `| None`:

    @struct
    class MetadataResponseBroker:
        node_id: Int32 = field()
        rack: String | None = field("1+", nullable="1+", default=None, ignorable=True)

    @message(key=3, kind="response", versions="0-13", flexible="9+")
    class MetadataResponse:
        brokers: list[MetadataResponseBroker] = field()

Versions are written as in Kafka: "0+", "3-7", "4", "none". A field without a default has Kafka's default for its type.
A plain annotation works like `field()`, but a type checker takes it for a required keyword. The decorators replace the
class with a slotted one with a keyword constructor, equality and repr; a message also gets `decode[version]` and
`encode[version]`, compiled on first use.

Class creation is cheap (no dataclass, no evaluated type hints), since a broker declares some five hundred structs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from klamm.protocol.decoder import compile_decoder
from klamm.protocol.encoder import compile_encoder
from klamm.protocol.fields import UNSET, FieldSpec, Struct, declare_specs, parse_versions, specs
from klamm.protocol.regions import FileRegion
from klamm.protocol.wire import Buffer

__all__ = ["Decoder", "Encoder", "FieldSpec", "Message", "Struct", "encode_part", "field", "message", "specs", "struct"]

T = TypeVar("T")


def field(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = UNSET,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
    encoded: bool = False,
    sensitive: bool = False,
) -> Any:
    """Declare versions, default and tag of a field, all in Kafka's meaning.

    `ignorable`: dropped silently in versions without the field; otherwise a non-default value is refused there.
    `tagged`: versions in which it is a tagged field, all of its versions if only `tag` is given. `flexible="none"`: its
    length is never compact. `encoded`: for an array of structs; its elements may be `bytes` made by `encode_part`.
    `sensitive`: a secret, or may be one; the repr hides it.
    """
    if tag is not None and tagged == "none":
        tagged = versions
    compact = "0+" if flexible is None else flexible
    return FieldSpec(versions, nullable, default, tag, tagged, ignorable, compact, encoded, sensitive)


class Decoder(Protocol):
    def __call__(self, buf: Buffer, pos: int = 0, elements: int = 0, /) -> tuple[Any, int]: ...


class Encoder(Protocol):
    def __call__(
        self, message: Any, out: bytearray, regions: list[tuple[int, FileRegion]] | None = None, /
    ) -> bytearray: ...


class VersionTable(dict[int, Any]):
    """A map from version to function, compiled on first use. Raises KeyError for other versions."""

    __slots__ = ("build", "cls")

    def __init__(self, cls: type[Message], build: Callable[[type[Message], int], Any]) -> None:
        super().__init__()
        self.cls = cls
        self.build = build

    def __missing__(self, version: int) -> Any:
        first, last = self.cls.versions
        if not first <= version <= last:
            raise KeyError(f"{self.cls.__name__} has versions {first}-{last}, not {version}")
        function = self[version] = self.build(self.cls, version)
        return function


class Message(Struct):
    """A top-level message.

    `decode[version](buf, pos=0) -> (message, next position)` raises `Malformed`. `encode[version](message, out,
    regions=None) -> out` raises `NotEncodable`. `regions` collects (position in `out`, FileRegion) for record data to
    be inserted there; without it the data is read into `out`. After an error `out` may hold a part of the message.
    """

    __slots__ = ()
    api_key: ClassVar[int | None]
    kind: ClassVar[str]
    versions: ClassVar[tuple[int, int]]
    flexible: ClassVar[tuple[int, int]]
    decode: ClassVar[dict[int, Decoder]]
    encode: ClassVar[dict[int, Encoder]]


@cache
def encode_part(cls: type[Message], part: type[Struct], version: int) -> Callable[[Any, bytearray], bytearray]:
    """Return the encoder of a struct as part of one version of a message: `encode(part, out) -> out`."""
    return compile_encoder(cls, version, part)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct, a part of messages (class decorator)."""
    return _declare(cls, Struct)


@dataclass_transform(kw_only_default=True)
def message(
    *, key: int | None = None, kind: str, versions: str, flexible: str = "none"
) -> Callable[[type[T]], type[T]]:
    """Declare a message. `kind` is "request", "response", "header" or "data"; `versions` are all ever published."""

    def declare(cls: type[T]) -> type[T]:
        made: Any = _declare(cls, Message)
        for name in ("api_key", "kind", "versions", "flexible", "decode", "encode"):
            assert name not in made.__slots__, f"{cls.__name__}.{name}: the name is taken"
        made.api_key, made.kind = key, kind
        made.versions = parse_versions(versions)
        first, last = parse_versions(flexible)
        made.flexible = (first, min(last, made.versions[1]))
        made.decode = VersionTable(made, compile_decoder)
        made.encode = VersionTable(made, compile_encoder)
        return made  # type: ignore[no-any-return]

    return declare


def _declare(cls: type[T], base: type) -> type[T]:
    fields = []
    body = dict(vars(cls))
    for name, annotation in body.get("__annotations__", {}).items():
        spec = body.pop(name, None)
        if spec is None:
            spec = field()
        if not isinstance(spec, FieldSpec):
            raise TypeError(f"{cls.__qualname__}.{name}: a default must be given with field(default=...)")
        spec.bind(name, annotation, cls.__module__)
        fields.append(spec)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body["__slots__"] = tuple(spec.name for spec in fields)
    body["__init__"] = _make_init(cls, fields)
    made: Any = type(cls.__name__, (base,), body)
    declare_specs(made, tuple(fields))
    return made  # type: ignore[no-any-return]


def _make_init(cls: type, fields: list[FieldSpec]) -> Any:
    if not fields:
        return object.__init__
    lines = [f"def __init__(self, *, {', '.join(f'{spec.name}=None' for spec in fields)}):"]
    for spec in fields:
        fresh = "[]" if spec.array else f"{spec.struct_name}()"
        value = f"{fresh} if {spec.name} is UNSET else {spec.name}" if spec.has_fresh_default else spec.name
        lines.append(f"    self.{spec.name} = {value}")
    env: dict[str, Any] = {"UNSET": UNSET}
    for spec in fields:
        if spec.wire is None and not spec.array and spec.has_fresh_default:
            declared = vars(sys.modules[spec.module]).get(spec.struct_name)
            env[spec.struct_name] = declared or _later(spec)
    exec("\n".join(lines), env)
    init = env["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__kwdefaults__ = {spec.name: spec.default for spec in fields}
    return init


def _later(spec: FieldSpec) -> Callable[[], Any]:
    """Return a function that makes a struct declared below its user."""
    return lambda: spec.struct()  # noqa: PLW0108 the struct is not declared yet
