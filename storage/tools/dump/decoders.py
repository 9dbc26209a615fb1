"""Decode keys and values to text, in the form of Apache Kafka's tool: strings, numbers, or JSON of internal topics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Any, Final, NamedTuple

from klamm.protocol.as_json import to_json
from klamm.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from klamm.protocol.consumer_protocol import decode as decode_consumer
from klamm.protocol.coordinator_records import kinds
from klamm.protocol.coordinator_records.kinds import GROUP_KINDS, SHARE_STATE_KINDS, TRANSACTION_KINDS, Kinds, Versioned
from klamm.protocol.records.batch import Record
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed


class RecordText(NamedTuple):
    """The text of a record; None: there is nothing to show."""

    key: str | None
    value: str | None


RecordDecoder = Callable[[Record], RecordText]
"""A function that returns the text of a record. Raises DecoderError when the bytes do not fit."""

BytesDecoder = Callable[[bytes], str]


SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class DecoderError(ValueError):
    """The chosen decoder cannot read a record."""


def plain(key: BytesDecoder, value: BytesDecoder) -> RecordDecoder:
    """Return a decoder of user records, with one decoder each for key and value."""

    def decode(record: Record) -> RecordText:
        return RecordText(
            key(record.key) if record.key is not None else None,
            value(record.value) if record.value is not None else None,
        )

    return decode


def as_string(data: bytes) -> str:
    """Decode UTF-8 as Java does: one mark for an encoded surrogate, where Python has one for each of its bytes."""
    return SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def _number(layout: str) -> BytesDecoder:
    number = Struct(layout)

    def decode(data: bytes) -> str:
        try:
            return str(number.unpack(data)[0])
        except error:
            raise DecoderError(f"{len(data)} bytes where a number has {number.size}") from None

    return decode


strings: Final = plain(as_string, as_string)

PACKAGE: Final = "org.apache.kafka.tools.api."
BYTES_DECODERS: Final[Mapping[str, BytesDecoder]] = {
    "string": as_string,
    "long": _number(">q"),
    "integer": _number(">i"),
    "hex": bytes.hex,
    f"{PACKAGE}StringDecoder": as_string,
    f"{PACKAGE}LongDecoder": _number(">q"),
    f"{PACKAGE}IntegerDecoder": _number(">i"),
}
"""Decoders by their names on the command line: ours, and those of Kafka's classes."""


def _coordinator(known: Kinds, topic_words: str) -> RecordDecoder:
    def decode(record: Record) -> RecordText:
        if record.key is None:
            raise DecoderError(
                f"Failed to decode message at offset {record.offset} using {topic_words} decoder "
                "(message had a missing key)"
            )
        try:
            key = kinds.decode_key(known, record.key)
            value = kinds.decode_value(known, key.version, record.value) if record.value is not None else None
        except kinds.UnknownKind as unknown:
            return RecordText(f"Unknown record type {unknown.kind} at offset {record.offset}, skipping.", None)
        except Malformed as malformed:
            return RecordText(f"Error at offset {record.offset}, skipping. {malformed}", None)
        return RecordText(
            compact_json({"type": str(key.version), "data": to_json(key.message, kinds.KEY_LAYOUT)}),
            _coordinator_value(value) if value is not None else "<DELETE>",
        )

    return decode


def _coordinator_value(value: Versioned) -> str:
    data = to_json(value.message, value.version)
    if data.get("protocolType") == PROTOCOL_TYPE:
        for member, shown in zip(value.message.members, data["members"], strict=True):  # type: ignore[attr-defined]
            _open_up(shown, "subscription", member.subscription, ConsumerProtocolSubscription)
            _open_up(shown, "assignment", member.assignment, ConsumerProtocolAssignment)
    return compact_json({"version": str(value.version), "data": data})


def _open_up(shown: dict[str, Any], name: str, data: bytes, message_class: type[Message]) -> None:
    """Show the data that consumers have packed into these bytes, unless it has another format."""
    try:
        found = decode_consumer(message_class, data)
    except Malformed:
        return
    shown[name] = to_json(found.message, found.version)


def cluster_metadata(record: Record) -> RecordText:
    """Decode a record of `__cluster_metadata-0`, which has no key."""
    from klamm.protocol.cluster_metadata.kinds import UnknownRecord, decode

    try:
        version, message = decode(record.value or b"")
    except (UnknownRecord, Malformed) as error:
        return RecordText(None, f"Error at {record.offset}, skipping. {error}")
    name = _screaming(type(message).__name__)
    return RecordText(None, compact_json({"type": name, "version": version, "data": to_json(message, version)}))


def _screaming(name: str) -> str:
    """Convert `RegisterBrokerRecord` to `REGISTER_BROKER_RECORD`."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).lstrip("_").upper()


def compact_json(value: object) -> str:
    """Format JSON as Kafka's tool does: no spaces, and only the escapes that JSON requires."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


offsets: Final = _coordinator(GROUP_KINDS, "offset topic")
transactions: Final = _coordinator(TRANSACTION_KINDS, "transaction log")
share_state: Final = _coordinator(SHARE_STATE_KINDS, "share group state topic")
