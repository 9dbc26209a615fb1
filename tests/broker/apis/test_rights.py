"""Every API in every version as a user without any right: nothing is done or shown, and the refusal has the
shape that the API gives errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.broker.apis.rights.table import RIGHTS
from klamm.broker.security.authorizer.acls import Acl, AclFilter
from klamm.config.rows_cluster import STANDARD_AUTHORIZER
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.fields import specs
from klamm.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support import requests_by_api
from tests.support.embedded import CloseConnection, EmbeddedBroker, batch

TOPIC, GROUP, CLUSTER = 29, 30, 31
TRANSACTION, NOT_WITHOUT_LOGIN = 53, 64

EXPECTED: dict[int, set[int]] = {
    ApiKey.PRODUCE: {TOPIC, TRANSACTION},
    ApiKey.FETCH: {TOPIC},
    ApiKey.LIST_OFFSETS: {TOPIC},
    ApiKey.METADATA: {TOPIC},
    ApiKey.OFFSET_COMMIT: {GROUP},
    ApiKey.OFFSET_FETCH: {GROUP},
    ApiKey.FIND_COORDINATOR: {GROUP, TRANSACTION, CLUSTER},
    ApiKey.JOIN_GROUP: {GROUP},
    ApiKey.HEARTBEAT: {GROUP},
    ApiKey.LEAVE_GROUP: {GROUP},
    ApiKey.SYNC_GROUP: {GROUP},
    ApiKey.DESCRIBE_GROUPS: {GROUP},
    ApiKey.LIST_GROUPS: set(),
    ApiKey.SASL_HANDSHAKE: {34},
    ApiKey.SASL_AUTHENTICATE: {34},
    ApiKey.API_VERSIONS: set(),
    ApiKey.CREATE_TOPICS: {TOPIC},
    ApiKey.DELETE_TOPICS: {TOPIC},
    ApiKey.DELETE_RECORDS: {TOPIC},
    ApiKey.INIT_PRODUCER_ID: {CLUSTER, TRANSACTION},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {TOPIC},
    ApiKey.ADD_PARTITIONS_TO_TXN: {TRANSACTION, CLUSTER},
    ApiKey.ADD_OFFSETS_TO_TXN: {TRANSACTION},
    ApiKey.END_TXN: {TRANSACTION},
    ApiKey.WRITE_TXN_MARKERS: {CLUSTER},
    ApiKey.TXN_OFFSET_COMMIT: {TRANSACTION},
    ApiKey.DESCRIBE_TRANSACTIONS: {TRANSACTION},
    ApiKey.LIST_TRANSACTIONS: set(),
    ApiKey.DESCRIBE_CONFIGS: {TOPIC, GROUP, CLUSTER},
    ApiKey.ALTER_CONFIGS: {TOPIC, GROUP, CLUSTER, 42},  # log levels are not altered so, whoever asks
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {TOPIC, GROUP, CLUSTER},
    ApiKey.CREATE_PARTITIONS: {TOPIC},
    ApiKey.CREATE_DELEGATION_TOKEN: {NOT_WITHOUT_LOGIN},
    ApiKey.RENEW_DELEGATION_TOKEN: {NOT_WITHOUT_LOGIN},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {NOT_WITHOUT_LOGIN},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {NOT_WITHOUT_LOGIN},
    ApiKey.DELETE_GROUPS: {GROUP},
    ApiKey.OFFSET_DELETE: {GROUP},
    ApiKey.DESCRIBE_CLUSTER: set(),
    ApiKey.DESCRIBE_PRODUCERS: {TOPIC, 17},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {GROUP},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {GROUP},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {TOPIC},
}
"""The codes in the responses to `requests_by_api`; of all others the cluster's."""

UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
OPEN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
NO_CODES = {(ApiKey.METADATA, "all"), (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "all")}
NO_PLACE_FOR_A_CODE = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
SECRETS = {"t", "g", "x", "c", "victim"}
NOT_RETURNED = {0, -(2**31)}
TOPIC_TYPE, GROUP_TYPE, READ, WRITE, DESCRIBE, DENY, ALLOW = 2, 3, 3, 4, 8, 2, 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker with a topic, groups, offsets and transactional ids of a super user."""
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("rights"), config) as broker:
        broker.connection.principal = "User:root"
        for name in ("t", "victim"):
            broker.create_topic(name)
        broker.produce("t", batch(b"secret"))
        for kind in (0, 1):
            broker.call(FindCoordinatorRequest(key="g", key_type=kind), 3)
        while broker.broker.groups.topic.loading or broker.broker.transactions.topic.loading:
            broker.run(asyncio.sleep(0.001))
        for group in ("g", "h"):
            commit(broker, group)
        broker.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60000), 4)
        joined = ConsumerGroupHeartbeatRequest(
            group_id="c",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert broker.call(joined, 1).error_code == 0
        broker.connection.principal, broker.connection.memo = "User:nobody", None
        yield broker


def commit(broker: EmbeddedBroker, group: str) -> None:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    response = broker.call(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 8)
    assert response.topics[0].partitions[0].error_code == 0, response


def values(message: Any, wanted: str) -> Iterator[Any]:
    """The values of fields with this end of their name, at any depth."""
    if isinstance(message, list):
        for item in message:
            yield from values(item, wanted)
    elif hasattr(type(message), "__slots__") and not isinstance(message, bytes | str | int):
        for spec in specs(type(message)):
            value = getattr(message, spec.name)
            if spec.wire is None:
                yield from values(value, wanted)
            elif spec.name.endswith(wanted):
                yield value


def texts(message: Any) -> set[str]:
    """All texts in a message."""
    return {item for value in values(message, "") for item in (value if isinstance(value, list) else [value])
            if isinstance(item, str)}  # fmt: skip


def codes(message: Any) -> set[int]:
    return set(values(message, "error_code")) - {0}


CASES = [
    (api, version) for api, row in sorted(HANDLERS.items()) for version in range(row.min_version, row.max_version + 1)
]


def test_every_handler_has_a_row_in_the_table() -> None:
    assert HANDLERS.keys() <= RIGHTS.keys()
    assert all(row.rights is RIGHTS[key] for key, row in HANDLERS.items())


@pytest.mark.parametrize(("api", "version"), CASES, ids=[f"{ApiKey(api).name}-{version}" for api, version in CASES])
def test_without_any_right(broker: EmbeddedBroker, api: int, version: int) -> None:
    ids = {name: topic.topic_id for name, topic in broker.broker.image.topics.items()}
    before = broker.broker.image
    found: set[int] = set()
    expected = set() if (api, version) in NO_PLACE_FOR_A_CODE else EXPECTED.get(api, {CLUSTER})
    for label, request in requests_by_api.requests(api, version, ids).items():
        response = broker.call(request, version)
        got = codes(response)
        assert got or (api, label) in NO_CODES or not expected, response
        found |= got
        if api not in OPEN:
            assert texts(response) & SECRETS <= texts(request), (label, response)
        assert set(values(response, "authorized_operations")) <= NOT_RETURNED
        assert all(not records for records in values(response, "records"))
    assert found - {UNKNOWN_TOPIC_ID} <= expected, found
    assert broker.broker.image is before  # nothing was done


def test_produce_without_answers_closes_the_connection(broker: EmbeddedBroker) -> None:
    with pytest.raises(CloseConnection):
        broker.produce("t", batch(b"v"), acks=0)


def test_a_fetch_that_waits_ends_with_what_it_had(broker: EmbeddedBroker) -> None:
    """Rights are asked when a request is handled, and again with the next one."""
    rows = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=rows)]
    )
    controller = broker.broker.controller
    broker.run(controller.create_acls([Acl(TOPIC_TYPE, "t", 3, "User:nobody", "*", READ, ALLOW)]))
    waiting = broker.start(request, 12)
    broker.run(controller.create_acls([Acl(TOPIC_TYPE, "t", 3, "User:nobody", "*", READ, DENY)]))
    broker.connection.principal = "User:root"
    broker.produce("t", batch(b"more"))
    broker.connection.principal, broker.connection.memo = "User:nobody", None
    data = broker.run(waiting).responses[0].partitions[0]
    assert (data.error_code, bool(data.records)) == (0, True)
    assert codes(broker.call(request, 12)) == {TOPIC}
    broker.run(controller.delete_acls([AclFilter(1, None, 1, None, None, 1, 1)]))


def test_an_expression_matches_what_its_member_may_describe(broker: EmbeddedBroker) -> None:
    """Row 51 of the hostile inputs: `.*` finds only topics that the member may describe, and no more after a change."""
    controller = broker.broker.controller
    acls = [
        Acl(GROUP_TYPE, "r", 3, "User:nobody", "*", READ, ALLOW),
        Acl(TOPIC_TYPE, "t", 3, "User:nobody", "*", READ, ALLOW),
    ]
    broker.run(controller.create_acls(acls))
    join = ConsumerGroupHeartbeatRequest(
        group_id="r",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    assert broker.call(join, 1).error_code == 0
    assert broker.broker.groups.consumers.groups["r"].topic_names == {"t"}
    broker.run(controller.delete_acls([AclFilter(TOPIC_TYPE, None, 1, None, None, 1, 1)]))
    assert broker.call(join, 1).error_code == 0
    assert broker.broker.groups.consumers.groups["r"].topic_names == set()
    broker.run(controller.delete_acls([AclFilter(1, None, 1, None, None, 1, 1)]))


def test_a_described_group_hides_members_that_are_assigned_hidden_topics(broker: EmbeddedBroker) -> None:
    """Row 50 of the hostile inputs."""
    broker.run(broker.broker.controller.create_acls([Acl(GROUP_TYPE, "c", 3, "User:nobody", "*", DESCRIBE, ALLOW)]))
    request = ConsumerGroupDescribeRequest(group_ids=["c"], include_authorized_operations=False)
    group = broker.call(request, 1).groups[0]
    assert (group.error_code, group.members) == (TOPIC, [])
    broker.run(broker.broker.controller.delete_acls([AclFilter(1, None, 1, None, None, 1, 1)]))


def test_very_many_topics_are_asked_about_in_turns(tmp_path: Path) -> None:
    """All topics of a large cluster, and a Produce to more topics than are handled at once."""
    names = [f"many-{number:03}" for number in range(520)]
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root", "num.partitions": 1}
    with EmbeddedBroker(tmp_path, config) as broker:
        broker.connection.principal = "User:root"
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        created = broker.call(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5)
        assert codes(created) == set()
        acl = Acl(TOPIC_TYPE, "many-51", 4, "User:nobody", "*", WRITE, ALLOW)
        broker.run(broker.broker.controller.create_acls([acl]))
        broker.connection.principal = "User:nobody"
        visible = names[510:520]
        found = broker.call(MetadataRequest(topics=None), 9)
        assert sorted(topic.name for topic in found.topics) == visible
        found = broker.call(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100), 0)
        assert [topic.name for topic in found.topics] == visible
        data = [PartitionProduceData(index=index, records=batch(b"v")) for index in (0, 1)]
        produced = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=data) for name in names]
        )
        answers = broker.call(produced, 9).responses
        assert {topic.name for topic in answers if topic.partition_responses[0].error_code == 0} == set(visible)
        assert {topic.name for topic in answers if codes(topic) == {TOPIC}} == set(names) - set(visible)
