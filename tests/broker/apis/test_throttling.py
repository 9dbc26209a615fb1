"""Requests of clients that have quotas: what they are charged with, and for how long their connections are throttled.

Time stands still unless a test moves it: `limited` brokers measure with a clock of the test's.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.broker.controller.client_quotas import Alteration
from klamm.broker.memos.fetch_memo import CountedFetch
from klamm.broker.memos.produce_memo import CountedProduce
from klamm.broker.network.response import CloseConnection, PendingResponse
from klamm.broker.quotas.alterations import Op
from klamm.protocol.apis import ApiKey, request_class, response_class
from klamm.protocol.fields import specs
from klamm.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from klamm.protocol.messages.metadata import MetadataRequest
from tests.support.embedded import EmbeddedBroker, FakeConnection, batch, encode_frame
from tests.support.samples import FILLED, sample

MINUTE_S = 60
BURST_S = 5  # an idle client uses ten seconds' worth at once, and every eleven seconds again
NEVER_THROTTLED = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.PRODUCE, ApiKey.FETCH}


@dataclass
class Limited:
    """A broker, and the time that quotas are measured with."""

    broker: EmbeddedBroker
    now_s: float = 100.0

    def limit(self, entity: dict[str, str | None], **values: float | None) -> None:
        ops = [Op(key, value or 0.0, remove=value is None) for key, value in values.items()]
        alteration = Alteration(list(entity.items()), ops)
        controller = self.broker.broker.controller
        assert self.broker.run(controller.alter_client_quotas([alteration])) == [None]
        self.broker.connection.memo = None  # as the network does
        if self.broker.broker.quotas is not None:
            self.broker.broker.quotas.now = lambda: self.now_s

    @property
    def throttled_ms(self) -> list[int]:
        return self.broker.connection.throttled_ms


@pytest.fixture
def limited(broker: EmbeddedBroker) -> Iterator[Limited]:
    yield Limited(broker)


EVERYBODY: dict[str, str | None] = {"user": None}


def produce(broker: EmbeddedBroker, size: int, *, version: int = 9, acks: int = -1, client_id: str = "test") -> Any:
    """Produce a request of exactly `size` bytes."""
    from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    def request(padding: int) -> ProduceRequest:
        data = PartitionProduceData(index=0, records=batch(b"x" * padding))
        topic = TopicProduceData(name="t", partition_data=[data])
        return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])

    padding = size - 200
    for _ in range(3):
        padding += size - len(encode_frame(request(padding), version, client_id))
    whole = request(padding)
    assert len(encode_frame(whole, version, client_id)) == size
    return broker.call(whole, version, client_id=client_id)


def fetch(broker: EmbeddedBroker, offset: int = 0, *, session: tuple[int, int] = (0, -1), version: int = 12) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=session[0], session_epoch=session[1],
        topics=[FetchTopic(topic="t", partitions=[partition])] if session[1] <= 0 else [],
        forgotten_topics_data=list[ForgottenTopic](),
    )  # fmt: skip
    return broker.call(request, version)


def records_of(response: Any) -> int:
    return sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)


# -- produce ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_produce_over_its_quota_is_answered_at_once_and_throttled(limited: Limited, version: int) -> None:
    limited.limit(EVERYBODY, producer_byte_rate=50_000)
    answers = [produce(limited.broker, 93_000, version=version) for _ in range(6)]
    assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [0] * 6
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 0, 0, 0, 1160]
    assert limited.throttled_ms == [1160]
    limited.now_s += 11.1
    assert produce(limited.broker, 93_000, version=version).throttle_time_ms == 0


def test_a_version_without_the_field_feels_the_mute_alone(limited: Limited) -> None:
    limited.limit(EVERYBODY, producer_byte_rate=1000)
    assert produce(limited.broker, 20_000, version=3).throttle_time_ms == 10_000
    from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    topic = TopicProduceData(name="none", partition_data=[PartitionProduceData(index=0, records=b"")])
    answer = limited.broker.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 0)
    assert answer.throttle_time_ms == 0
    assert len(limited.throttled_ms) == 2


def test_produce_with_errors_counts_and_acks_0_is_throttled(limited: Limited) -> None:
    limited.limit(EVERYBODY, producer_byte_rate=1000)
    limited.broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    assert produce(limited.broker, 20_000).throttle_time_ms == 10_000
    limited.broker.create_topic("t")
    assert produce(limited.broker, 20_000, acks=0) is None
    assert limited.throttled_ms == [10_000, 30_000]


def test_a_throttled_answer_lets_no_request_pass(limited: Limited) -> None:
    """The next requests are in the buffer already: they must not be dispatched."""
    limited.limit(EVERYBODY, request_percentage=1e-6)

    async def dispatch() -> Any:
        dispatcher = limited.broker._dispatcher
        answer = dispatcher(limited.broker.connection, encode_frame(MetadataRequest(topics=[]), 9))  # type: ignore[arg-type]
        assert isinstance(answer, PendingResponse) and answer.lets_pass is None and answer.future.done()

    limited.broker.run(dispatch())


@pytest.mark.parametrize(
    ("level", "shared_by_clients"),
    [
        ({"user": "ANONYMOUS"}, True),
        ({"user": None}, True),
        ({"user": "ANONYMOUS", "client-id": None}, False),
        ({"client-id": None}, False),
    ],
)
def test_a_quota_is_kept_over_a_minute(limited: Limited, level: dict[str, str | None], shared_by_clients: bool) -> None:
    """Each client sends as soon as it may; all together, or each, keep to the quota within 10 %. With fifty clients:
    `test_measure`."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    count, rate = (10, 20_000) if shared_by_clients else (2, 10_000)
    limited.limit(level, producer_byte_rate=rate)
    start_s = limited.now_s
    due = [(start_s + number / 1000, number) for number in range(count)]
    sent = [0] * count
    connections = [FakeConnection() for _ in range(count)]
    while due[0][0] < start_s + BURST_S + MINUTE_S:
        limited.now_s, number = heapq.heappop(due)
        limited.broker.connection = connections[number]
        size = chance.randrange(500, 1500)
        answer = produce(limited.broker, size, client_id=f"client-{number}")
        sent[number] += size if limited.now_s >= start_s + BURST_S else 0
        heapq.heappush(due, (limited.now_s + max(1, answer.throttle_time_ms) / 1000, number))
    for used in [sum(sent)] if shared_by_clients else sent:
        assert used / MINUTE_S == pytest.approx(rate, rel=0.1)


# -- fetch ------------------------------------------------------------------------------------------------------


def test_fetch_over_its_quota_gets_nothing_and_its_bytes_are_taken_back(limited: Limited) -> None:
    for _ in range(10):
        limited.broker.produce("t", batch(b"x" * 20_000))
    limited.limit(EVERYBODY, consumer_byte_rate=15_000)
    fetch(limited.broker, 10)  # begins the first sample
    limited.now_s += 0.5
    first = fetch(limited.broker)
    assert (first.throttle_time_ms, first.error_code) == (0, 0)
    assert 120_000 < records_of(first) <= 150_000, "no more is asked for than is allowed at once"
    metrics = limited.broker.broker.partitions.topics["t"].metrics
    sent = metrics.bytes_out
    second = fetch(limited.broker)
    assert second.throttle_time_ms > 5000
    assert (second.responses, metrics.bytes_out) == ([], sent)
    again = fetch(limited.broker)
    assert abs(again.throttle_time_ms - second.throttle_time_ms) <= 1, "unsent bytes do not count"
    assert limited.throttled_ms == [second.throttle_time_ms, again.throttle_time_ms]
    limited.now_s += 12
    fetch(limited.broker, 10)
    limited.now_s += 0.5
    assert records_of(fetch(limited.broker)) == records_of(first)


def test_a_session_sends_later_what_a_throttled_response_left_out(limited: Limited) -> None:
    sessions = limited.broker.broker.fetch_sessions
    limited.broker.produce("t", batch(b"x" * 1000))
    limited.limit(EVERYBODY, consumer_byte_rate=200)
    session_id = fetch(limited.broker, session=(0, 0)).session_id
    assert session_id and len(sessions) == 1
    throttled = fetch(limited.broker, session=(session_id, 1))
    assert throttled.throttle_time_ms > 0
    assert (throttled.session_id, throttled.responses) == (session_id, [])
    refused = fetch(limited.broker, session=(0, 0))
    assert refused.throttle_time_ms > 0
    assert (refused.session_id, len(sessions)) == (0, 1), "a session is not kept unless its id was sent"
    limited.now_s += 12
    assert records_of(fetch(limited.broker, session=(session_id, 2))) > 1000


def test_a_fetch_that_waited_is_charged(limited: Limited) -> None:
    limited.limit(EVERYBODY, consumer_byte_rate=100)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    waiting = limited.broker.start(request, 12)
    limited.broker.produce("t", batch(b"x" * 10_000))
    response = limited.broker.run(waiting)
    assert response.throttle_time_ms > 0
    assert response.responses == []


# -- request time, and every API --------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", sorted(HANDLERS.keys() - NEVER_THROTTLED))
def test_every_api_tells_its_throttle_time(limited: Limited, api_key: int) -> None:
    """This holds for each version; those without the field are throttled all the same."""
    limited.limit(EVERYBODY, request_percentage=1e-6)
    row = HANDLERS[api_key]
    for version in range(row.min_version, row.max_version + 1):
        has_field = any(
            spec.name == "throttle_time_ms" and spec.in_version(version) for spec in specs(response_class(api_key))
        )
        limited.throttled_ms.clear()
        try:
            response = limited.broker.call(sample(request_class(api_key), version, FILLED), version)
        except CloseConnection:
            continue
        assert limited.throttled_ms == [1000], "one window at most"
        if has_field:
            assert response.throttle_time_ms == 1000, version


def test_request_time_is_that_of_the_loop(limited: Limited) -> None:
    limited.limit(EVERYBODY, request_percentage=100)
    waiting = limited.broker.start(
        FetchRequest(
            max_wait_ms=300, min_bytes=1, max_bytes=1000,
            topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        ),
        12,
    )  # fmt: skip
    limited.broker.run(waiting)
    quotas = limited.broker.broker.quotas
    assert quotas is not None
    [(_, sensor)] = quotas.request.items()
    assert 0 < sensor.per_second(limited.now_s) * 10 < 0.2, "the wait is not counted"


# -- partitions made and deleted --------------------------------------------------------------------------------


def create(broker: EmbeddedBroker, *names: str, version: int) -> Any:
    topics = [CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in names]
    return broker.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), version)


def test_new_versions_refuse_what_begins_over_the_quota(limited: Limited) -> None:
    """The figures are Apache Kafka's: one per second, three topics of six partitions."""
    limited.limit(EVERYBODY, controller_mutation_rate=1)
    response = create(limited.broker, "a", "b", "c", version=6)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 0), ("b", 0), ("c", 89)]
    assert response.throttle_time_ms == 1000 and limited.throttled_ms == [1000]
    assert set(limited.broker.broker.image.topics) == {"t", "a", "b"}
    growth = CreatePartitionsTopic(name="a", count=7, assignments=None)
    grown = limited.broker.call(CreatePartitionsRequest(topics=[growth], timeout_ms=1000), 3)
    assert (grown.results[0].error_code, grown.throttle_time_ms) == (89, 1000)
    deleted = limited.broker.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (89, 1000)
    limited.now_s += 1
    grown = limited.broker.call(CreatePartitionsRequest(topics=[growth], timeout_ms=1000), 3)
    assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 0)


def test_old_versions_do_everything_and_are_throttled(limited: Limited) -> None:
    limited.limit(EVERYBODY, controller_mutation_rate=1)
    response = create(limited.broker, "a", "b", "c", version=5)
    assert [topic.error_code for topic in response.topics] == [0, 0, 0]
    assert response.throttle_time_ms == 7000
    growth = CreatePartitionsTopic(name="a", count=7, assignments=None)
    grown = limited.broker.call(CreatePartitionsRequest(topics=[growth], timeout_ms=1000), 2)
    assert (grown.results[0].error_code, grown.throttle_time_ms) == (0, 8000)
    deleted = limited.broker.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4)
    assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (0, 15_000)


# -- quotas that come and go ------------------------------------------------------------------------------------


def test_without_a_quota_for_the_client_nothing_is_measured(limited: Limited) -> None:
    limited.limit({"user": "somebody"}, producer_byte_rate=1)
    assert produce(limited.broker, 100_000).throttle_time_ms == 0
    limited.limit({"user": "somebody"}, producer_byte_rate=None)
    assert limited.broker.broker.quotas is None


def test_a_quota_holds_from_the_next_request_on_and_back(limited: Limited) -> None:
    assert produce(limited.broker, 100_000).throttle_time_ms == 0
    limited.limit(EVERYBODY, producer_byte_rate=1000)
    assert produce(limited.broker, 100_000).throttle_time_ms == 90_000
    limited.limit(EVERYBODY, producer_byte_rate=1_000_000)
    assert produce(limited.broker, 100_000).throttle_time_ms == 0
    limited.limit(EVERYBODY, producer_byte_rate=None)
    assert produce(limited.broker, 100_000).throttle_time_ms == 0


def test_quotas_of_addresses_measure_no_requests(limited: Limited) -> None:
    limited.limit({"ip": None}, connection_creation_rate=5)
    assert limited.broker.broker.quotas is None


def test_remembered_requests_are_counted(tmp_path: Path) -> None:
    """The time is real, as the paths of remembered requests look at no other clock."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        alteration = Alteration([("user", None)], [
            Op("producer_byte_rate", 1e9, remove=False), Op("consumer_byte_rate", 1e9, remove=False),
            Op("request_percentage", 1000.0, remove=False),
        ])  # fmt: skip
        broker.run(broker.broker.controller.alter_client_quotas([alteration]))
        for _ in range(100):
            assert produce(broker, 1000).throttle_time_ms == 0
        assert isinstance(broker.connection.memo, CountedProduce)
        quotas = broker.broker.quotas
        assert quotas is not None
        sensor = quotas.meter("User:ANONYMOUS", "test").produce
        sensor.change_bound(sensor.bound)  # settles
        assert sensor._rate.measure(int(quotas.now() * 1000))[0] == 100_000
        sizes = [records_of(fetch(broker)) for _ in range(20)]
        assert isinstance(broker.connection.memo, CountedFetch)
        fetched = quotas.meter("User:ANONYMOUS", "test").fetch
        fetched.change_bound(fetched.bound)
        total = fetched._rate.measure(int(quotas.now() * 1000))[0]
        assert 0 <= total - sum(sizes) < 20 * 150


def test_metrics_show_the_throttled_clients_and_cut_names(limited: Limited) -> None:
    metrics = limited.broker.broker.metrics
    assert not [
        list(family.samples) for family in metrics.families() if "quota" in family.name and list(family.samples)
    ]
    limited.limit({"client-id": None}, producer_byte_rate=1000)
    produce(limited.broker, 20_000, client_id='c"' * 300)
    shown = {family.name: dict(family.samples) for family in metrics.families() if "quota" in family.name}
    assert shown["klamm_quota_throttled_requests_total"]['{quota="producer_byte_rate"}'] == 1
    assert shown["klamm_quota_throttle_seconds_total"]['{quota="producer_byte_rate"}'] == 10
    [(labels, rate)] = shown["klamm_quota_rate"].items()
    assert rate == 2000
    assert labels == '{quota="producer_byte_rate",user="",client_id="' + 'c\\"' * 50 + '"}'


def test_near_the_bound_remembered_requests_are_throttled_as_others(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        alteration = Alteration([("user", None)], [Op("producer_byte_rate", 10_000.0, remove=False)])
        broker.run(broker.broker.controller.alter_client_quotas([alteration]))
        times = [produce(broker, 1000).throttle_time_ms for _ in range(200)]
        assert isinstance(broker.connection.memo, CountedProduce)
        assert times[:95] == [0] * 95
        assert all(times[-5:])
