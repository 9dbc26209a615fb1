"""Compiled encoders and decoders: bytes by hand, bounds, refusals; parity with Kafka is in test_java_parity."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from klamm.protocol import decoder
from klamm.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.regions import FileRegion
from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int32,
    Malformed,
    NotEncodable,
    String,
    TooManyElements,
    UInt16,
    Uuid,
    put_uvarint,
)


@struct
class Leaf:
    small: Int8 = field(default=-1)
    name: String = field(default="")


@message(kind="data", versions="0-1", flexible="1+")
class Everything:
    flag: Bool = field()
    port: UInt16 = field()
    ratio: Float64 = field()
    uuid: Uuid = field()
    text: String | None = field(nullable="0+")
    blob: Bytes | None = field(nullable="0+")
    leaf: Leaf | None = field(nullable="0+", default=None)
    names: list[String] | None = field(nullable="0+")
    uuids: list[Uuid] = field()
    numbers: list[Int32] = field()
    leaves: list[Leaf] = field()
    extra: Leaf = field("1+", tag=0, ignorable=True)
    late: String = field("1+", tag=5, default="x", ignorable=True)


@struct
class Small:
    small: Int8 = field()


@message(kind="data", versions="0")
class Holder:
    maybe: Small | None = field(nullable="0+", default=None)
    after: Int8 = field()


@message(kind="data", versions="0")
class Numbers:
    values: list[Int32] = field()


@message(kind="data", versions="0")
class Uuids:
    values: list[Uuid] = field()


FULL = Everything(
    flag=True,
    port=65535,
    ratio=-0.5,
    uuid=bytes(range(16)),
    text="é",
    blob=b"\x01\x02",
    leaf=Leaf(small=2, name="n"),
    names=["a", ""],
    uuids=[b"\xaa" * 16],
    numbers=[1, -1],
    leaves=[Leaf()],
    extra=Leaf(small=9),
    late="",
)
FIXED = "01ffffbfe0000000000000000102030405060708090a0b0c0d0e0f"


def encode(value: Message, version: int) -> bytes:
    return bytes(type(value).encode[version](value, bytearray()))


def test_bytes_of_a_version_that_is_not_flexible() -> None:
    expected = (
        FIXED + "0002"
        "c3a9"  # text
        "00000002"
        "0102"  # blob
        "01"
        "02"
        "0001"
        "6e"  # leaf
        "00000002"
        "0001"
        "61"
        "0000"  # names
        "00000001" + "aa" * 16 + "00000002"
        "00000001"
        "ffffffff"  # numbers
        "00000001"
        "ff"
        "0000"  # leaves
    )
    assert encode(FULL, 0).hex() == expected


def test_bytes_of_a_flexible_version() -> None:
    expected = (
        FIXED + "03"
        "c3a9"  # text
        "03"
        "0102"  # blob
        "01"
        "02"
        "02"
        "6e"
        "00"  # leaf
        "03"
        "02"
        "61"
        "01"  # names
        "02" + "aa" * 16 + "03"
        "00000001"
        "ffffffff"  # numbers
        "02"
        "ff"
        "01"
        "00"  # leaves
        "02"
        "00"
        "03"
        "09"
        "01"
        "00"
        "05"
        "01"
        "01"  # tagged: extra, late
    )
    assert encode(FULL, 1).hex() == expected
    assert Everything.decode[1](bytes.fromhex(expected)) == (FULL, len(expected) // 2)


@pytest.mark.parametrize("version", [0, 1])
def test_nulls(version: int) -> None:
    empty = Everything(text=None, blob=None, leaf=None, names=None)
    data = encode(empty, version)
    assert Everything.decode[version](memoryview(data)) == (empty, len(data))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 126, 127, 128, 5000])
@pytest.mark.parametrize("version", [0, 1])
def test_lengths_around_the_edges_of_the_fast_paths(version: int, count: int) -> None:
    value = Everything(
        text="t" * count,
        blob=b"b" * count,
        names=["n" * count] * count,
        uuids=[b"u" * 16] * count,
        numbers=list(range(count)),
        leaves=[Leaf(small=1)] * count,
        late="l" * count,
    )
    if version == 0:
        value.late = "x"
    data = encode(value, version)
    assert Everything.decode[version](memoryview(data)) == (value, len(data))


@pytest.mark.parametrize("version", [0, 1])
def test_bytes_may_be_longer_than_strings(version: int) -> None:
    value = Everything(blob=bytes(100_000))
    data = encode(value, version)
    assert Everything.decode[version](memoryview(data)) == (value, len(data))


@pytest.mark.parametrize("version", [0, 1])
def test_arrays_may_be_longer_than_strings(version: int) -> None:
    value = Everything(names=[""] * 40_000, numbers=[7] * 40_000, leaves=[Leaf()] * 40_000)
    data = encode(value, version)
    assert Everything.decode[version](memoryview(data)) == (value, len(data))


def test_decoding_starts_and_ends_at_the_given_positions() -> None:
    data = encode(FULL, 1)
    assert Everything.decode[1](b"??" + data + b"junk", 2) == (FULL, 2 + len(data))


def test_unknown_tagged_fields_are_skipped() -> None:
    known = encode(Everything(), 1)
    assert known[-1] == 0
    data = known[:-1] + bytes.fromhex("0300030901000702eeee810100")
    assert Everything.decode[1](data) == (Everything(extra=Leaf(small=9)), len(data))


@pytest.mark.parametrize("count", [1, 126, 127, 128, 129, 300])
def test_any_number_of_tagged_fields(count: int) -> None:
    tags = bytearray()
    put_uvarint(tags, count)
    data = encode(Everything(), 1)[:-1] + tags + b"\x07\x00" * count
    assert Everything.decode[1](data) == (Everything(), len(data))


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ("01000409010000", "tagged field extra has a wrong size"),
        ("010002090100", "tagged field extra has a wrong size"),
        ("01070500", "tagged field longer than the frame"),
        ("01070200", "tagged field longer than the frame"),
        ("050700", "more tagged fields than bytes"),
        ("02070007", "more tagged fields than bytes"),
        ("ffffffff0f", "more tagged fields than bytes"),
        ("ffffffffff0f", "varint"),
    ],
)
def test_bad_tagged_fields_are_malformed(tags: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        Everything.decode[1](encode(Everything(), 1)[:-1] + bytes.fromhex(tags))


def test_a_nullable_struct_is_null_only_below_zero() -> None:
    for present, expected in (("ff", None), ("80", None), ("00", Small(small=5)), ("01", Small(small=5))):
        data = bytes.fromhex(present + ("05" if expected else "") + "07")
        assert Holder.decode[0](data) == (Holder(maybe=expected, after=7), len(data))


def test_fields_around_a_nullable_struct_of_fixed_size() -> None:
    assert encode(Holder(maybe=None, after=7), 0).hex() == "ff07"
    assert encode(Holder(maybe=Small(small=5), after=7), 0).hex() == "010507"


def test_strings_are_at_most_32767_bytes() -> None:
    def data(size: int) -> bytes:
        out = bytearray(b"\x02" + bytes(16))
        put_uvarint(out, size + 1)
        return bytes(out + b"x" * size + b"\x00" + b"\x01\x00\x00" + b"\x00")

    decoded, _ = MetadataRequest.decode[10](data(32767))
    assert len(decoded.topics[0].name) == 32767
    with pytest.raises(Malformed, match="name is too long"):
        MetadataRequest.decode[10](data(32768))


def test_every_truncation_is_malformed() -> None:
    for version in (0, 1):
        data = encode(FULL, version)
        for size in range(len(data)):
            with pytest.raises(Malformed, match=rf"Everything v{version}"):
                Everything.decode[version](memoryview(data)[:size])


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, "7fffffff"),
        (1, "00000002000161"),
        (9, "ffffffff0f00"),
        (9, "ffffffffff0f"),
        (9, "028180808000"),
        (9, "02000001000000"),  # the name must not be null
        (9, "02ffffff7f61"),
    ],
)
def test_malformed_arrays_and_strings(version: int, data: str) -> None:
    with pytest.raises(Malformed, match=rf"MetadataRequest v{version}"):
        MetadataRequest.decode[version](bytes.fromhex(data))


def test_negative_length_is_null() -> None:
    decoded, _ = MetadataRequest.decode[1](bytes.fromhex("fffffffe"))
    assert decoded.topics is None
    with pytest.raises(Malformed, match="topics must not be null"):
        MetadataRequest.decode[0](bytes.fromhex("ffffffff"))


def test_array_is_held_against_the_bytes_left_before_it_is_read() -> None:
    # 40,000 topics of three bytes each, were there 120,000 bytes
    with pytest.raises(Malformed, match="40000 elements in 11000 bytes"):
        MetadataRequest.decode[9](bytes.fromhex("c1b802") + bytes(11000))


@pytest.mark.parametrize("size", [4, 16])
def test_arrays_of_fixed_size_are_held_against_the_bytes_left(size: int) -> None:
    values = [1] * 20 if size == 4 else [bytes(16)] * 20
    cls = Numbers if size == 4 else Uuids
    data = encode(cls(values=values), 0)
    assert len(data) == 4 + 20 * size
    with pytest.raises(Malformed, match=f"values: 20 elements in {20 * size - 1} bytes"):
        cls.decode[0](data[:-1])


def test_elements_are_counted_over_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_REQUEST_ELEMENTS", 10)
    decode = decoder.compile_decoder(MetadataRequest, 1)
    for count in (10, 11):
        data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * count), 1)
        if count == 10:
            assert len(decode(data)[0].topics) == 10
        else:
            with pytest.raises(Malformed, match="too many elements"):
                decode(data)


def test_long_arrays_of_numbers_count_as_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_RESPONSE_ELEMENTS", 20)
    decode = decoder.compile_decoder(Numbers, 0)
    assert len(decode(encode(Numbers(values=[1] * 20), 0))[0].values) == 20
    with pytest.raises(Malformed, match="too many elements"):
        decode(encode(Numbers(values=[1] * 21), 0))


@pytest.mark.parametrize(
    ("data", "elements"),
    [
        (bytes.fromhex("02 0261 00 00 00 00 00"), 1),  # one topic
        (bytes.fromhex("01 00 0000 05") + b"\0\0" * 5, 5),  # five tagged fields, which nobody knows
    ],
)
def test_a_decoder_stops_at_as_many_elements_as_it_is_given(data: bytes, elements: int) -> None:
    MetadataRequest.decode[9](data, 0, elements)
    with pytest.raises(TooManyElements, match="too many elements"):
        MetadataRequest.decode[9](data, 0, elements - 1)


def test_long_strings_and_short_arrays_of_a_request_count() -> None:
    long = encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 1280)]), 1)
    numbers = encode(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[1, 2, 3])]), 0)
    for cls, version, data, elements in (
        (MetadataRequest, 1, long, 1 + 10),
        (DescribeProducersRequest, 0, numbers, 1 + 3),
    ):
        cls.decode[version](data, 0, elements)
        with pytest.raises(TooManyElements):
            cls.decode[version](data, 0, elements - 1)


def test_invalid_utf8_is_replaced() -> None:
    decoded, _ = MetadataRequest.decode[1](bytes.fromhex("00000001000361ff62"))
    assert decoded.topics == [MetadataRequestTopic(name="a\ufffdb")]


def test_records_are_a_view_of_the_frame() -> None:
    data = bytearray(
        encode(ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"abc")])]), 9)
    )
    decoded, _ = ProduceRequest.decode[9](memoryview(data))
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"abc")] = ord("X")
    assert records == b"Xbc"


@pytest.mark.parametrize("version", range(19))
def test_file_regions_leave_holes_that_the_file_fills(version: int, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(bytes(range(256)) * 4)

    def response(pieces: list[object]) -> FetchResponse:
        topic = "t" if version < 13 else ""
        partitions = [PartitionData(partition_index=i, records=piece) for i, piece in enumerate(pieces)]
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=partitions)])

    with path.open("rb") as file:
        pieces = [FileRegion(file, 10, 20), None, b"plain", FileRegion(file, 0, 0), FileRegion(file, 100, 900)]
        expected = encode(response([p.read() if isinstance(p, FileRegion) else p for p in pieces]), version)
        assert encode(response(pieces), version) == expected
        regions: list[tuple[int, FileRegion]] = []
        head = FetchResponse.encode[version](response(pieces), bytearray(b"head"), regions)
        assert [region for _, region in regions] == [p for p in pieces if isinstance(p, FileRegion)]
        wire, last = b"", 0
        for position, region in regions:
            wire += bytes(head[last:position]) + region.read()
            last = position
        assert wire + bytes(head[last:]) == b"head" + expected


def test_ignorable_field_is_dropped_in_a_version_without_it() -> None:
    assert encode(MetadataResponse(cluster_id="c", controller_id=4), 0) == encode(MetadataResponse(), 0)


def test_other_fields_are_refused_in_a_version_without_them() -> None:
    with pytest.raises(NotEncodable, match=r"v3 has no MetadataRequest\.allow_auto_topic_creation, and False"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)
    with pytest.raises(NotEncodable, match="diverging_epoch"):
        partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1))
        encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 11)
    with pytest.raises(NotEncodable, match="forgotten_topics_data"):
        encode(FetchRequest(forgotten_topics_data=[None]), 6)


@pytest.mark.parametrize(
    "value",
    [
        MetadataRequest(topics=None),  # null from v1 only
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]),
        MetadataRequest(topics=[MetadataRequestTopic(name=b"bytes")]),
        MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]),
        MetadataRequest(topics=7),
    ],
    ids=["null array", "null string", "not a string", "string too long", "not a list"],
)
def test_wrong_values_are_not_encodable(value: MetadataRequest) -> None:
    with pytest.raises(NotEncodable, match="MetadataRequest v0"):
        encode(value, 0)


def test_long_strings_are_not_encodable_in_flexible_versions() -> None:
    topic = MetadataRequestTopic(name="x" * 32767)
    encode(MetadataRequest(topics=[topic]), 9)
    topic.name += "x"
    with pytest.raises(NotEncodable, match="too long"):
        encode(MetadataRequest(topics=[topic]), 9)


def test_numbers_out_of_range_are_not_encodable() -> None:
    with pytest.raises(NotEncodable):
        encode(Everything(port=65536), 0)


def test_tracebacks_show_the_generated_source() -> None:
    try:
        MetadataRequest.encode[1](None, bytearray())
    except NotEncodable as error:
        shown = "".join(traceback.format_exception(error))
    assert "topics_1 = message.topics" in shown
