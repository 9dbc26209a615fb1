"""Large requests keep the loop for no longer than a piece of them takes: what counts is how much one turn is given."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.large_requests import large_requests
from klamm.broker.apis import dispatcher, fetch, produce
from klamm.broker.apis.config_resources import MAX_KEYS
from klamm.broker.apis.dispatcher import SMALL_ELEMENTS, Route
from klamm.broker.apis.pieces import PATHS, PIECE_ELEMENTS
from klamm.broker.apis.registry import HANDLERS
from klamm.broker.network.response import CloseConnection
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.fields import Struct
from klamm.protocol.headers import MAX_HEADER_TAGS
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from klamm.protocol.messages.describe_producers import DescribeProducersRequest
from klamm.protocol.messages.describe_producers import TopicRequest as DescribedTopic
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.validate import AT_ONCE_BYTES
from tests.faults.test_number_limits import Deep
from tests.support.embedded import NOW_MS, EmbeddedBroker, encode_frame

ELEMENTS = 5000
FRAME_BYTES = 1 << 20
IN_THREAD = "klamm-codec"
FEW = (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)  # what they hold stands in one record of a group


def thread() -> str:
    return threading.current_thread().name.rpartition("_")[0]


def size_of(part: Any) -> int:
    """How many elements there are in the arrays of a message."""
    if isinstance(part, list):
        return sum(1 + size_of(item) for item in part)
    if isinstance(part, Struct):
        return sum(size_of(getattr(part, name)) for name in type(part).__slots__)
    return 0


class Watched:
    """A route that notes where its steps run, and how much each call of its handler is given."""

    def __init__(self, broker: EmbeddedBroker, api_key: int, version: int) -> None:
        self.route = Route(api_key, version)
        self.steps: list[tuple[str, str]] = []
        self.given: list[int] = []
        self._watch("encode")
        decode, handle = self.route.decode, self.route.handle

        def decoded(*arguments: Any) -> Any:
            result = decode(*arguments)  # one that stops early is not noted
            self.steps.append(("decode", thread()))
            return result

        def handled(broker: Any, context: Any, request: Any) -> Any:
            self.given.append(size_of(request))
            return handle(broker, context, request)

        self.route.decode, self.route.handle = decoded, handled
        broker._dispatcher._routes[api_key << 16 | version] = self.route

    def _watch(self, name: str) -> None:
        function: Callable[..., Any] = getattr(self.route, name)

        def noted(*arguments: Any) -> Any:
            self.steps.append((name, thread()))
            return function(*arguments)

        setattr(self.route, name, noted)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with EmbeddedBroker(tmp_path_factory.mktemp("shared"), {"auto.create.topics.enable": "false", **config}) as broker:
        for key_type, key in enumerate(("g", "tx")):
            broker.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        yield broker


@pytest.mark.parametrize("api_key", [key for key in HANDLERS if key not in FEW])
def test_no_turn_is_given_more_than_a_piece(shared: EmbeddedBroker, api_key: ApiKey) -> None:
    broker = shared
    if "t" not in broker.broker.image.topics:
        broker.create_topic("t", partitions=2)
    topic_id = broker.broker.image.topics["t"].topic_id
    watched = Watched(broker, api_key, HANDLERS[api_key].max_version)
    deep: Any = Deep(None, topic_id, None)  # type: ignore[arg-type]
    for request in large_requests(deep, api_key, ELEMENTS, FRAME_BYTES):
        watched.steps.clear()
        watched.given.clear()
        reply = broker.dispatch(request.frame[4:])
        assert reply is not None, request.title
        assert watched.steps == [("decode", IN_THREAD), ("encode", IN_THREAD)], request.title
        if any(".".join(paths.request).startswith(request.path) for paths in PATHS.get(api_key, ())):
            assert max(watched.given) <= 3 * PIECE_ELEMENTS, request.title  # each has a list of its own, too


def test_the_pieces_make_one_response(broker: EmbeddedBroker) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(ELEMENTS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    response = broker.call(request, 10)
    assert [topic.name for topic in response.topics] == ["t"]
    assert [answer.partition_index for answer in response.topics[0].partitions] == list(range(ELEMENTS))
    assert [answer.error_code for answer in response.topics[0].partitions] == [0, 0] + [3] * (ELEMENTS - 2)


def test_more_elements_than_are_allowed_close_the_connection(broker: EmbeddedBroker) -> None:
    broker.broker.max_request_elements = ELEMENTS
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(ELEMENTS)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    assert len(broker.call(request, 9).topics) == ELEMENTS
    request.topics = [*topics, topics[0]]
    with pytest.raises(CloseConnection, match=f"exceeds klamm.request.max.elements={ELEMENTS}"):
        broker.call(request, 9)


@pytest.mark.parametrize(("count", "is_read"), [(MAX_HEADER_TAGS, True), (MAX_HEADER_TAGS + 1, False)])
def test_tagged_fields_of_a_header_are_bounded(broker: EmbeddedBroker, count: int, is_read: bool) -> None:
    frame = bytes(encode_frame(MetadataRequest(topics=[]), 9, client_id=None))
    tagged = frame[:10] + bytes([count]) + b"\x01\x00" * count + frame[11:]
    if is_read:
        assert broker.dispatch(tagged) is not None
    else:
        with pytest.raises(CloseConnection, match="tagged fields in the header"):
            broker.dispatch(tagged)


def test_a_connection_that_has_closed_gets_nothing_done(broker: EmbeddedBroker) -> None:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(ELEMENTS)]
    watched = Watched(broker, ApiKey.METADATA, 9)
    broker.connection.closed = True
    assert broker.dispatch(bytes(encode_frame(MetadataRequest(topics=topics), 9))) is None
    assert watched.given == []


def test_what_is_described_at_length_is_described_once(broker: EmbeddedBroker) -> None:
    """Over all pieces of a request."""
    topic = DescribedTopic(name="t", partition_indexes=[0] * ELEMENTS + [1, 0])
    (found,) = broker.call(DescribeProducersRequest(topics=[topic]), 0).topics
    assert [partition.partition_index for partition in found.partitions] == [0, 1]
    groups = broker.call(DescribeGroupsRequest(groups=["g", "h", "g"]), 5).groups
    assert [group.group_id for group in groups] == ["g", "h"]
    twice = [MetadataRequestTopic(name="t")] * 2
    assert [topic.name for topic in broker.call(MetadataRequest(topics=twice), 9).topics] == ["t"]


@pytest.mark.parametrize("count", [MAX_KEYS, MAX_KEYS + 1])
def test_configs_of_one_resource_are_bounded(broker: EmbeddedBroker, count: int) -> None:
    keys = [f"key-{number}" for number in range(count)]
    described = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)
    (result,) = broker.call(DescribeConfigsRequest(resources=[described]), 4).results
    assert (result.error_code == ErrorCode.INVALID_REQUEST) == (count > MAX_KEYS)
    configs = [AlterableConfig(name=key, value="1") for key in keys]
    altered = AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    (answer,) = broker.call(IncrementalAlterConfigsRequest(resources=[altered]), 1).responses
    assert answer.error_code == (ErrorCode.INVALID_REQUEST if count > MAX_KEYS else ErrorCode.INVALID_CONFIG)


def wanted(count: int, *, first: int = 0) -> list[FetchTopic]:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(first, first + count)
    ]
    return [FetchTopic(topic="many", partitions=partitions)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partitions each call has read."""
    counts: list[int] = []
    read_some = fetch.Fetch._read_some

    def noted(self: Any, some: Any, found: Any) -> None:
        counts.append(len(some))
        read_some(self, some, found)

    monkeypatch.setattr(fetch.Fetch, "_read_some", noted)
    return counts


def test_a_session_of_many_partitions_is_read_in_turns(
    broker: EmbeddedBroker, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PARTITIONS_A_TURN", 10)
    monkeypatch.setattr(dispatcher, "SMALL_ELEMENTS", 15)
    count = 21
    broker.create_topic("many", partitions=count)
    opened = broker.call(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=0, topics=wanted(count)), 12)
    assert sum(len(topic.partitions) for topic in opened.responses) == count
    following = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_id=opened.session_id, session_epoch=1
    )
    answer = broker.start(following, 12)
    broker.produce("many", encode_batch([Record(0, NOW_MS, None, b"v")]), partition=count - 1)
    (topic,) = broker.run(answer).responses
    assert [partition.partition_index for partition in topic.partitions] == [count - 1]
    assert max(reads) == fetch.PARTITIONS_A_TURN
    # A large incremental request: partitions sent in the session before stay known.
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_id=opened.session_id,
        session_epoch=2,
        topics=wanted(count),
    )
    (topic,) = broker.call(request, 12).responses
    assert [partition.partition_index for partition in topic.partitions] == [count - 1]  # still at offset 0


def test_partitions_of_a_large_produce_are_appended_in_turns(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"v")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(SMALL_ELEMENTS + 10)]
    now_s = 0.0

    def perf_counter() -> float:
        nonlocal now_s
        now_s += 0.001
        return now_s

    monkeypatch.setattr(produce.time, "perf_counter", perf_counter)  # type: ignore[attr-defined]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    response = broker.call(request, 9)
    codes = [answer.error_code for answer in response.responses[0].partition_responses]
    assert codes == [0, 0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (len(data) - 2)
    assert broker.broker.turns.taken >= len(data) * 0.001 / produce.TURN_S * 0.9


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_inflates_a_lot_is_validated_in_a_thread(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    where: list[str] = []
    validate = produce.validate

    def noted(*arguments: Any, **options: Any) -> Any:
        where.append(thread())
        return validate(*arguments, **options)

    monkeypatch.setattr(produce, "validate", noted)
    for size, threads in ((AT_ONCE_BYTES - 100, []), (AT_ONCE_BYTES, [IN_THREAD])):
        batch = encode_batch([Record(0, NOW_MS, None, bytes(size))], codec=codec)
        for _ in range(2):  # the second time, the connection knows the request
            where.clear()
            assert broker.produce("t", batch).error_code == 0
            assert where == threads
    bad = bytearray(encode_batch([Record(0, NOW_MS, None, bytes(AT_ONCE_BYTES))], codec=codec))
    struct.pack_into(">i", bad, 57, 2)  # the count, of which the checksum knows
    assert broker.produce("t", bytes(bad)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert broker.broker.partitions.topics["t"].partitions[0].log_end_offset == 4
