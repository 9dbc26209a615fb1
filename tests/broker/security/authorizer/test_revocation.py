"""A right that is taken away is gone with the next request, whatever a connection or a session remembers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.broker.security.authorizer.codes import Operation, PatternType, Permission, ResourceType
from klamm.client.blocking import NodeClient
from klamm.config.rows_cluster import STANDARD_AUTHORIZER
from klamm.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker_process import BrokerProcess
from tests.support.embedded import batch

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
SUBJECT = "127.0.0.2"
REFUSED = 29
PRODUCE_VERSION, FETCH_VERSION = 9, 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("revocation") / "data", CONFIG) as broker:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        with NodeClient("127.0.0.1", broker.port) as admin:
            admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 7)
            assert produce(admin) == 0
        yield broker


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[NodeClient]:
    """A client that keeps its rights; afterwards there are no ACLs."""
    with NodeClient("127.0.0.1", broker.port) as client:
        yield client
        everything = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        client.request(DeleteAclsRequest(filters=[everything]), 3)


@pytest.fixture
def subject(broker: BrokerProcess) -> Iterator[NodeClient]:
    client = NodeClient("127.0.0.1", broker.port)
    client._socket = socket.create_connection(("127.0.0.1", broker.port), source_address=(SUBJECT, 0))
    yield client
    client.close()


def revoke(admin: NodeClient) -> None:
    """Deny the topic to clients from the subject's address."""

    def acl(host: str, permission: Permission) -> AclCreation:
        return AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:*",
            host=host,
            operation=Operation.ALL,
            permission_type=permission,
        )

    acls = [acl("*", Permission.ALLOW), acl(SUBJECT, Permission.DENY)]
    response = admin.request(CreateAclsRequest(creations=acls), 3)
    assert {result.error_code for result in response.results} == {0}


def produce(client: NodeClient) -> int:
    data = [PartitionProduceData(index=0, records=batch(b"v"))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    code: int = client.request(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code
    return code


def fetch(**options: Any) -> FetchRequest:
    rows = [FetchPartition(partition=0, fetch_offset=options.pop("offset", 0), partition_max_bytes=1 << 20)]
    topics = options.pop("topics", [FetchTopic(topic="t", partitions=rows)])
    return FetchRequest(**{"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "topics": topics, **options})


def fetched(response: Any) -> tuple[int, bool]:
    data = response.responses[0].partitions[0]
    return data.error_code, bool(data.records)


def test_a_produce_that_is_remembered_is_refused(admin: NodeClient, subject: NodeClient) -> None:
    """Row 47 of the hostile inputs."""
    assert [produce(subject) for _ in range(5)] == [0] * 5
    revoke(admin)
    assert [produce(subject) for _ in range(5)] == [REFUSED] * 5
    assert produce(admin) == 0


def test_a_fetch_that_is_remembered_is_refused(admin: NodeClient, subject: NodeClient) -> None:
    """Row 47 of the hostile inputs."""
    assert [fetched(subject.request(fetch(), FETCH_VERSION)) for _ in range(5)] == [(0, True)] * 5
    revoke(admin)
    assert [fetched(subject.request(fetch(), FETCH_VERSION)) for _ in range(5)] == [(REFUSED, False)] * 5


def test_a_session_is_refused_what_it_was_opened_with(admin: NodeClient, subject: NodeClient) -> None:
    """Row 48 of the hostile inputs."""
    opened = subject.request(fetch(session_epoch=0), FETCH_VERSION)
    assert fetched(opened) == (0, True) and opened.session_id
    revoke(admin)
    again = subject.request(fetch(session_id=opened.session_id, session_epoch=1, topics=[]), FETCH_VERSION)
    assert (again.error_code, fetched(again)) == (0, (REFUSED, False))
