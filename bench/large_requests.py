"""Requests with as many elements as a broker accepts, for every API: sent by `bench pauses`.

They are made from the declarations. One request that reaches deep into its handler has one array after the other
filled, with equal or different elements; and each list of bytes or strings with long ones. The rest of the frame is
filled with bytes that nothing reads. `special` has the requests that do not follow from the declarations.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.apis import API, ApiKey
from klamm.protocol.fields import FieldSpec, Struct, specs
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import HEADER_BYTES, Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.schema import Message
from klamm.protocol.wire import TooManyElements
from tests.faults.test_number_limits import Deep
from tests.faults.wire import header, payload_of, sized

LONG_STRING_BYTES = 32_000
ELEMENT_BYTES = 128  # of a long string
SOME = 20  # elements of a request beside those of the filled array
DRY = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.UPDATE_FEATURES)


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """One frame, with its size prefix, and a description of its content."""

    api_key: ApiKey
    title: str
    elements: int
    frame: bytes
    path: str = ""  # to the filled value


Place = tuple[tuple[str, ...], FieldSpec]


def large_requests(deep: Deep, api_key: ApiKey, elements: int, frame_bytes: int) -> Iterator[LargeRequest]:
    """Yield all requests of one API, at its highest version."""
    version = HANDLERS[api_key].max_version
    request = deep.request(api_key, version)
    if api_key in DRY:
        request.validate_only = True
    for path, spec in places(request, version):
        for title, filled in fillings(spec, value_at(request, path), elements - SOME, version):
            while True:
                payload = payload_of(with_value(request, path, filled), version)
                if is_allowed(payload, type(request), version, elements):
                    break
                filled = filled[: len(filled) * 2 // 3]  # its tagged fields count, too
            if len(payload) <= frame_bytes:
                name = f"{API[api_key].name} v{version}, {'.'.join(path)}: {title}"
                yield LargeRequest(api_key, name, len(filled), sized(payload.ljust(frame_bytes, b"\0")), ".".join(path))


def is_allowed(payload: bytes, cls: type[Message], version: int, elements: int) -> bool:
    head = len(header(cls.api_key, version))
    try:
        cls.decode[version](payload, head, elements)
    except TooManyElements:
        return False
    return True


def places(part: Any, version: int) -> Iterator[Place]:
    """Yield the arrays and bytes in a request, by the path of names to them. Only an array's first element counts."""
    for spec in specs(type(part)):
        value = getattr(part, spec.name)
        if not spec.in_version(version) or value is None:
            continue
        if spec.array or (spec.wire is not None and spec.wire.kind == "bytes"):
            yield (spec.name,), spec
        inner = value[0] if spec.array and value else value
        if isinstance(inner, Struct):
            for path, found in places(inner, version):
                yield (spec.name, *path), found


def value_at(part: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        part = getattr(part[0] if isinstance(part, list) else part, name)
    return part


def with_value(part: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return a copy of the request with another value at the path."""
    made = copy.copy(part)
    if len(path) == 1:
        setattr(made, path[0], value)
        return made
    inner = getattr(part, path[0])
    changed = with_value(inner[0] if isinstance(inner, list) else inner, path[1:], value)
    setattr(made, path[0], [changed] if isinstance(inner, list) else changed)
    return made


def fillings(spec: FieldSpec, value: Any, elements: int, version: int) -> Iterator[tuple[str, Any]]:
    """Yield replacements for a value: `elements` of them, counted as the decoder does."""
    if not spec.array:
        yield "as long as may be", bytes(min(elements, 80_000) * ELEMENT_BYTES)
        return
    if spec.wire is None:
        element = value[0] if value else spec.struct()
        count = elements // size_of(element)
        yield "the same", [element] * count
        yield "different", [numbered(element, number, version) for number in range(count)]
    elif spec.wire.kind == "string":
        yield "different", [f"t-{number}" for number in range(elements)]
        yield "long", ["\ufffd" * (LONG_STRING_BYTES // 3)] * (elements * ELEMENT_BYTES // LONG_STRING_BYTES)
    elif spec.wire.format == "16s":
        yield "different", [struct.pack(">qq", 1, number) for number in range(elements)]
    else:
        if elements < 1 << 8 * spec.wire.size - 1:
            yield "different", list(range(elements))
        yield "the same", [0] * elements


def size_of(element: Any) -> int:
    """Return the number of elements in an element, itself included."""
    lists = [value for name in type(element).__slots__ if isinstance(value := getattr(element, name), list)]
    return 1 + sum(size_of(inner) if isinstance(inner, Struct) else 1 for items in lists for inner in items)


def numbered(element: Any, number: int, version: int) -> Any:
    """Return a copy with another index or name: its first such field is changed."""
    made = copy.copy(element)
    for spec in specs(type(element)):
        value = getattr(element, spec.name)
        if spec.array or spec.wire is None or not spec.in_version(version):
            continue
        if type(value) is str:
            setattr(made, spec.name, f"{value}-{number}")
            break
        if type(value) is int and spec.wire.size >= 4:
            setattr(made, spec.name, number)
            break
        if type(value) is bytes and spec.wire.format == "16s":
            setattr(made, spec.name, struct.pack(">qq", 1, number))
            break
    return made


def beyond(frame_bytes: int) -> LargeRequest:
    """Return a request with more elements than are allowed, as many as fit."""
    count = frame_bytes // 8
    request = payload_of(MetadataRequest(topics=[]), 0)[:-4] + struct.pack(">i", count) + b"\0\1t" * count
    return LargeRequest(ApiKey.METADATA, "Metadata v0, more elements than are allowed", count, sized(request))


def header_tags(frame_bytes: int) -> LargeRequest:
    """Return a header with as many tagged fields as fit."""
    count = (frame_bytes - 100) // 2
    varint = bytearray()
    left = count
    while left > 127:
        varint.append(left & 127 | 128)
        left >>= 7
    varint.append(left)
    frame = header(ApiKey.METADATA, 12, flexible=False) + bytes(varint) + b"\1\0" * count
    return LargeRequest(ApiKey.METADATA, "tagged fields of the header", count, sized(frame))


def bomb(codec: Codec, size: int, now_ms: int, *, records: int = 1) -> bytearray:
    """Return a batch that inflates to this size."""
    value = bytes(max(1, size // records - 14))
    return encode_batch([Record(offset, now_ms, None, value) for offset in range(records)], codec=codec)


def expanding(codec: Codec, topic: str, size: int, now_ms: int, *, records: int = 1) -> LargeRequest:
    """Return a Produce of a batch that inflates to this size."""
    batch = bomb(codec, size, now_ms, records=records)
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    title = (
        f"Produce v9, {codec.name.lower()}: {len(batch) - HEADER_BYTES:,} bytes inflate to {size:,}, {records} records"
    )
    return LargeRequest(ApiKey.PRODUCE, title, records, sized(payload_of(request, 9)))
