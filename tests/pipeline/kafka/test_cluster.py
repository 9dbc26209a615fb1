"""Topics, leaders and offsets of a real cluster, and the errors when it does not answer."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from klamm.client.blocking import NodeClient
from klamm.pipeline.errors import BadOption, ClusterError, UnknownTopic
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster, parse_servers
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.records.batch import Record, encode_batch
from tests.clients.raw import create, produce
from tests.support.apache_kafka import free_ports
from tests.support.broker_process import BrokerProcess
from tests.support.transactions import Client, codes

pytestmark = pytest.mark.clients
FLIGHTS = [TopicPartition("flights", 0), TopicPartition("flights", 1)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with two topics; `flights` has ten records in partition 1, `t` an open transaction."""
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process:
        with NodeClient(process.host, process.port) as client:
            create(client, "flights", 2)
            create(client, "t")
            records = [Record(index, 1000 + index, None, b"v", ()) for index in range(10)]
            assert produce(client, "flights", encode_batch(records), 9, partition=1).error_code == 0
            client.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["pipeline"]), 4)  # makes its topic
            producer = Client(client)
            identity = producer.started("pipeline", 4)
            producer.add("pipeline", identity, 3, 0)
            assert codes(producer.produce("pipeline", identity, 9)) == {0}
        yield process


def test_topics_with_their_partitions_and_ids(broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        topics = cluster.topics()
        assert [name for name, topic in topics.items() if not topic.is_internal] == ["flights", "t"]
        assert topics["__transaction_state"].is_internal
        assert topics["flights"].topic_partitions == FLIGHTS
        assert any(topics["flights"].topic_id)
        assert cluster.topics(["flights"]) == {"flights": topics["flights"]}
        assert cluster.topics([]) == {}


def test_a_missing_topic_is_one_line_or_left_out(broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        with pytest.raises(UnknownTopic, match=rf"^topic nosuch does not exist on {broker.address}$"):
            cluster.topics(["flights", "nosuch"])
        assert list(cluster.topics(["flights", "nosuch"], missing_ok=True)) == ["flights"]


def test_offsets_at_both_ends_and_by_time(broker: BrokerProcess) -> None:
    first, second = FLIGHTS
    with Cluster(broker.address) as cluster:
        assert cluster.earliest(FLIGHTS) == {first: 0, second: 0}
        assert cluster.latest(FLIGHTS) == {first: 0, second: 10}
        assert cluster.offsets_for_times({first: 0, second: 1004}) == {first: None, second: 4}
        assert cluster.offsets_for_times({second: 2000}) == {second: None}


def test_an_open_transaction_ends_what_is_committed(broker: BrokerProcess) -> None:
    partition = TopicPartition("t", 0)
    with Cluster(broker.address) as cluster:
        assert cluster.latest([partition]) == {partition: 0}
        assert cluster.latest([partition], READ_UNCOMMITTED) == {partition: 1}


def test_a_missing_partition_is_one_line(broker: BrokerProcess) -> None:
    with Cluster(broker.address, timeout_s=0.2) as cluster, pytest.raises(ClusterError, match=r"^flights-7: .*tried"):
        cluster.latest([TopicPartition("flights", 7)])


def test_a_connection_that_was_lost_is_opened_again(broker: BrokerProcess) -> None:
    with Cluster(broker.address) as cluster:
        cluster.latest(FLIGHTS)
        connected = cluster.client(broker.host, broker.port)._socket
        assert connected is not None
        connected.shutdown(2)
        assert cluster.latest(FLIGHTS) == {FLIGHTS[0]: 0, FLIGHTS[1]: 10}


def test_the_next_server_is_asked_when_the_first_is_dead(broker: BrokerProcess) -> None:
    (port,) = free_ports(1)
    with Cluster(f"127.0.0.1:{port},{broker.address}") as cluster, pickle.loads(pickle.dumps(cluster)) as other:
        assert other.topics(["t"]) == cluster.topics(["t"])


def test_servers_that_do_not_answer_are_named() -> None:
    (port,) = free_ports(1)
    with (
        Cluster(f"127.0.0.1:{port}", timeout_s=0.1) as cluster,
        pytest.raises(ClusterError, match=rf"^no broker answers at 127.0.0.1:{port}: .*refused"),
    ):
        cluster.topics()


@pytest.mark.parametrize("text", ["", "host", "host:", ":9092", "host:99999", "a:1,,b:2", "SSL//h:x"])
def test_servers_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match=r"kafka.bootstrap.servers has the form host:port"):
        parse_servers(text)


def test_servers_are_read() -> None:
    assert parse_servers("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
