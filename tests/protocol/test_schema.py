"""Declarations: defaults, versions, constructors; no Java needed."""

from __future__ import annotations

import copy
import pickle

import pytest

from klamm.protocol.fields import parse_versions, specs
from klamm.protocol.messages.fetch import FetchResponse, LeaderIdAndEpoch, PartitionData
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Bytes, Float64, Int8, Int32, Records, String, Uuid


@message(kind="data", versions="0-3", flexible="2+")
class Outer:
    number: Int32 = field(default=7)
    ratio: Float64 = field("1+", ignorable=True)
    names: list[String] = field()
    ids: list[Uuid] | None = field("1+", nullable="1+", default=None, ignorable=True)
    inner: Inner = field("1+", ignorable=True)
    maybe: Inner | None = field("2+", nullable="2+", default=None, ignorable=True)
    blob: Bytes | None = field(nullable="1+")
    data: Records = field(nullable="0+")


@struct
class Inner:
    small: Int8 = field(default=-1)


@pytest.mark.parametrize(
    ("text", "expected"), [("3+", (3, 32767)), ("0-7", (0, 7)), ("4", (4, 4)), ("none", (1, 0)), ("0+", (0, 32767))]
)
def test_parse_versions(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected


def test_defaults_are_kafkas_for_the_type() -> None:
    outer = Outer()
    assert (outer.number, outer.ratio, outer.names, outer.ids) == (7, 0.0, [], None)
    assert (outer.inner, outer.maybe, outer.blob, outer.data) == (Inner(small=-1), None, b"", None)


def test_lists_and_structs_are_never_shared_between_messages() -> None:
    first, second = Outer(), Outer()
    first.names.append("x")
    first.inner.small = 5
    assert (second.names, second.inner.small) == ([], -1)
    decoded = [Outer.decode[0](Outer.encode[0](Outer(), bytearray()))[0] for _ in range(2)]
    decoded[0].inner.small = 5
    assert decoded[1].inner.small == -1


def test_a_struct_may_be_declared_below_its_user() -> None:
    assert specs(Outer)[4].struct is Inner


def test_messages_compare_print_and_copy_by_value() -> None:
    one = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    same = copy.deepcopy(one)
    assert one == same
    assert one is not same
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != MetadataRequest(topics=None)
    assert one != MetadataResponse()
    assert repr(MetadataRequestTopic(name="t")) == f"MetadataRequestTopic(topic_id={bytes(16)!r}, name='t')"


def test_messages_have_no_room_for_misspelled_fields() -> None:
    with pytest.raises(AttributeError):
        FetchResponse().trottle_time_ms = 1
    with pytest.raises(TypeError):
        FetchResponse(trottle_time_ms=1)
    with pytest.raises(TypeError):
        PartitionData(1)


def test_class_attributes_of_a_message() -> None:
    assert issubclass(FetchResponse, Message)
    assert (FetchResponse.api_key, FetchResponse.kind) == (1, "response")
    assert (FetchResponse.versions, FetchResponse.flexible) == ((0, 18), (12, 18))
    assert not issubclass(LeaderIdAndEpoch, Message)


@pytest.mark.parametrize("version", [-1, 19, 99])
def test_unknown_version_is_a_key_error(version: int) -> None:
    with pytest.raises(KeyError, match="FetchResponse has versions 0-18"):
        FetchResponse.decode[version]
    with pytest.raises(KeyError, match="FetchResponse has versions 0-18"):
        FetchResponse.encode[version]


def test_each_version_is_compiled_once() -> None:
    assert Outer.decode[1] is Outer.decode[1]


def test_a_default_outside_field_is_refused() -> None:
    with pytest.raises(TypeError, match="number"):

        @struct
        class Wrong:
            number: Int32 = 7


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="unsupported type"):

        @struct
        class Wrong:
            number: dict[str, int] = field()
