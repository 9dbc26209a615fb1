"""Messages filled with values, for any declaration and version; the seed is the message's name and version."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.schema import Message

INTEGER_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}


@dataclass(frozen=True)
class Shape:
    """Lengths of arrays of structs, of other arrays and of strings, and whether everything nullable is null."""

    structs: int
    items: int
    characters: int
    nulls: bool


FILLED = Shape(structs=2, items=2, characters=9, nulls=False)
NULLS = Shape(structs=1, items=0, characters=0, nulls=True)
LONG = Shape(structs=1, items=200, characters=300, nulls=False)
SHAPES = {"filled": FILLED, "nulls": NULLS, "long": LONG}


def sample(cls: type[Message], version: int, shape: Shape) -> Any:
    """A message with every field that the version has, and defaults for the others."""
    return _struct(cls, version, shape, random.Random(f"{cls.__name__} {version} {shape}"))


def _struct(cls: type, version: int, shape: Shape, rng: random.Random) -> Any:
    return cls(**{spec.name: _field(spec, version, shape, rng) for spec in specs(cls) if spec.in_version(version)})


def _field(spec: FieldSpec, version: int, shape: Shape, rng: random.Random) -> Any:
    if shape.nulls and spec.nullable_in(version):
        return None
    if not spec.array:
        return _value(spec, version, shape, rng)
    count = shape.structs if spec.wire is None else shape.items
    return [_value(spec, version, shape, rng) for _ in range(count)]


def _value(spec: FieldSpec, version: int, shape: Shape, rng: random.Random) -> Any:
    if spec.wire is None:
        return _struct(spec.struct, version, shape, rng)
    kind, form = spec.wire.kind, spec.wire.format
    if kind == "string":
        return "".join(rng.choice("abcXYZ019._-é€𝄞") for _ in range(shape.characters))
    if kind in ("bytes", "records"):
        return rng.randbytes(shape.characters * 3)
    if form == "?":
        return rng.random() < 0.5
    if form == "d":
        return rng.randrange(-1000, 1000) / 8
    if form == "16s":
        return rng.randbytes(16)
    bits = INTEGER_BITS[form]
    value = rng.getrandbits(bits)
    return value - (1 << bits) if form.islower() and value >> (bits - 1) else value
