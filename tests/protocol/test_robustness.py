"""Every message of every version: any value survives the wire, and any bytes are a message or Malformed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.apis import API, request_class, response_class
from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed
from tests.support.samples import FILLED, INTEGER_BITS, sample

CLASSES = [make(key) for key in API for make in (request_class, response_class)]


def versions(cls: type[Message]) -> range:
    return range(cls.versions[0], cls.versions[1] + 1)


def values(spec: FieldSpec, version: int) -> st.SearchStrategy[object]:
    if spec.wire is None:
        one = messages(spec.struct, version)
    elif spec.wire.kind == "string":
        one = st.text(st.characters(codec="utf-8"), max_size=20)
    elif spec.wire.kind in ("bytes", "records"):
        one = st.binary(max_size=20)
    elif spec.wire.format == "?":
        one = st.booleans()
    elif spec.wire.format == "d":
        one = st.floats(allow_nan=False)
    elif spec.wire.format == "16s":
        one = st.binary(min_size=16, max_size=16)
    else:
        bits, form = INTEGER_BITS[spec.wire.format], spec.wire.format
        low = -(1 << bits - 1) if form.islower() else 0
        one = st.integers(low, low + (1 << bits) - 1)
    if spec.array:
        one = st.lists(one, max_size=3)
    return st.none() | one if spec.nullable_in(version) else one


def messages(cls: type, version: int) -> st.SearchStrategy[object]:
    present = [spec for spec in specs(cls) if spec.in_version(version)]
    # Records are null where none are given, which not every version can say.
    needed = [spec for spec in present if spec.wire and spec.wire.kind == "records" and not spec.nullable_in(version)]
    return st.fixed_dictionaries(
        {spec.name: values(spec, version) for spec in needed},
        optional={spec.name: values(spec, version) for spec in present if spec not in needed},
    ).map(lambda chosen: cls(**chosen))


@given(st.data())
def test_any_message_survives_the_wire(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(CLASSES))
    version = data.draw(st.sampled_from(versions(cls)))
    message = data.draw(messages(cls, version))
    wire = bytes(cls.encode[version](message, bytearray()))
    assert cls.decode[version](memoryview(wire)) == (message, len(wire))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_truncated_bytes_are_malformed(cls: type[Message]) -> None:
    for version in versions(cls):
        wire = bytes(cls.encode[version](sample(cls, version, FILLED), bytearray()))
        rng = random.Random(f"{cls.__name__} {version}")
        sizes = {0, len(wire) - 1, *(rng.randrange(len(wire)) for _ in range(20))} if wire else set()
        for size in sizes:
            with pytest.raises(Malformed):
                cls.decode[version](memoryview(wire)[:size])


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_mutated_bytes_are_a_message_or_malformed(cls: type[Message]) -> None:
    for version in versions(cls):
        wire = bytes(cls.encode[version](sample(cls, version, FILLED), bytearray()))
        rng = random.Random(f"{cls.__name__} {version}")
        for _ in range(25 if wire else 0):
            mutated = bytearray(wire)
            for _ in range(rng.randrange(1, 4)):
                mutated[rng.randrange(len(mutated))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            decode_or_malformed(cls, version, bytes(mutated))


@given(st.data(), st.binary(max_size=200))
def test_random_bytes_are_a_message_or_malformed(data: st.DataObject, wire: bytes) -> None:
    cls = data.draw(st.sampled_from(CLASSES))
    decode_or_malformed(cls, data.draw(st.sampled_from(versions(cls))), wire)


def decode_or_malformed(cls: type[Message], version: int, wire: bytes) -> None:
    try:
        message, pos = cls.decode[version](memoryview(wire))
    except Malformed:
        return
    assert isinstance(message, cls)
    assert pos <= len(wire)
