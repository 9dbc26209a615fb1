"""kafka-acls gives and takes rights, and kafka-console-producer and -consumer see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.config.rows_cluster import STANDARD_AUTHORIZER
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.clients.kafka_tools import KafkaTools, ToolFailed
from tests.support.broker_process import BrokerProcess
from tests.support.embedded import batch
from tests.support.java_process import JavaProcess

pytestmark = pytest.mark.java

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
OPEN = {**CONFIG, "allow.everyone.if.no.acl.found": "true"}
ANONYMOUS = ("--allow-principal", "User:ANONYMOUS")
CLUSTER = (*ANONYMOUS, "--operation", "All", "--cluster")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", OPEN) as broker:
        yield broker


@pytest.fixture
def tools(broker: BrokerProcess, commands: JavaProcess) -> KafkaTools:
    return KafkaTools(commands, broker.address)


def produce(broker: BrokerProcess) -> int:
    data = [PartitionProduceData(index=0, records=batch(b"v"))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    with NodeClient("127.0.0.1", broker.port) as client:
        response = client.request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def test_rights_are_listed_given_and_taken(tools: KafkaTools, broker: BrokerProcess) -> None:
    tools.topics("--create", "--topic", "t")
    assert tools.acls("--list").strip() == ""
    assert produce(broker) == 0
    tools.acls("--add", *CLUSTER)
    tools.acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "t")
    listed = tools.acls("--list", "--topic", "t")
    assert "resourceType=TOPIC, name=t, patternType=LITERAL" in listed
    assert all(f"operation={name}, permissionType=ALLOW" in listed for name in ("WRITE", "DESCRIBE", "CREATE"))
    assert produce(broker) == 29  # there is an ACL on it now, and none for us
    tools.acls("--add", *ANONYMOUS, "--operation", "Write", "--topic", "t", "--allow-host", "127.0.0.0/8")
    assert produce(broker) == 0
    tools.acls("--add", "--deny-principal", "User:ANONYMOUS", "--operation", "Write", "--topic", "t",
               "--resource-pattern-type", "prefixed")  # fmt: skip
    assert produce(broker) == 29
    assert "patternType=PREFIXED" in tools.acls("--list", "--topic", "tt", "--resource-pattern-type", "match")
    tools.acls("--remove", "--force", "--topic", "t", "--resource-pattern-type", "any")
    assert produce(broker) == 0
    assert "User:alice" not in tools.acls("--list")


def test_a_user_without_rights_may_not_ask(commands: JavaProcess, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "closed", CONFIG) as broker:
        tools = KafkaTools(commands, broker.address)
        with pytest.raises(ToolFailed, match=r"Cluster authorization failed\."):
            tools.acls("--list")
