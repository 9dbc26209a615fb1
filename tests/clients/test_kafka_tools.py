"""Apache Kafka's command line tools of 4.3 do their work: each is judged by its effect, as another client sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.client.blocking import NodeClient
from tests.clients.conftest import MakeTopic
from tests.clients.driver import Driver
from tests.clients.kafka_tools import KafkaTools, ToolFailed
from tests.clients.raw import fetch_all
from tests.clients.samples import ends, sample
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.java

NODE = "1"


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has."""
    return re.sub(r"[^a-z0-9-]", "-", request.node.name.lower().removeprefix("test_"))


@pytest.fixture
def back_to_defaults(tools: KafkaTools) -> Iterator[Callable[..., None]]:
    """`back_to_defaults(*entity, key)`: the dynamic config is deleted after the test, for the other tests' sake."""
    changed: list[tuple[str, ...]] = []
    yield lambda *what: changed.append(what)
    for *entity, key in changed:
        tools.configs("--alter", *entity, "--delete-config", key)


def test_topics_creates_lists_describes_and_deletes(tools: KafkaTools, new_name: str) -> None:
    config = ["--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete"]
    tools.topics("--create", "--topic", new_name, "--partitions", "3", "--replication-factor", "1", *config)
    assert new_name in tools.topics("--list").split()
    head, *rows = tools.topics("--describe", "--topic", new_name).splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1" in head
    assert set(head.rpartition("Configs: ")[2].split(",")) == {"retention.ms=1000", "cleanup.policy=compact", "delete"}
    assert len(rows) == 3
    for number, row in enumerate(rows):
        assert f"Partition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1" in row
    with pytest.raises(ToolFailed, match="already exists"):
        tools.topics("--create", "--topic", new_name)
    tools.topics("--delete", "--topic", new_name)
    assert new_name not in tools.topics("--list").split()
    with pytest.raises(ToolFailed, match="does not exist"):
        tools.topics("--describe", "--topic", new_name)


def test_topics_adds_partitions_that_can_be_used(
    tools: KafkaTools, broker: BrokerProcess, make_topic: MakeTopic, stock_client: Callable[[str], Driver]
) -> None:
    topic = make_topic(1)
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.topics("--describe", "--topic", topic)
    sent = sample()
    stock_client("confluent-kafka").produce(broker.address, topic, sent, {})
    assert tools.get_offsets("--topic", topic) == {f"{topic}:{number}": end for number, end in ends(sent).items()}
    with pytest.raises(ToolFailed, match=r"has 3 partition\(s\)"):
        tools.topics("--alter", "--topic", topic, "--partitions", "2")


def test_topics_refuses_what_kafka_refuses(tools: KafkaTools, new_name: str) -> None:
    with pytest.raises(ToolFailed, match=r"cannot place 2 replica\(s\)"):
        tools.topics("--create", "--topic", new_name, "--replication-factor", "2")
    with pytest.raises(ToolFailed, match=r"Unknown topic config name: no\.such\.config"):
        tools.topics("--create", "--topic", new_name, "--config", "no.such.config=1")
    with pytest.raises(ToolFailed, match="Invalid value"):
        tools.topics("--create", "--topic", new_name, "--config", "segment.bytes=a")
    assert new_name not in tools.topics("--list").split()


def test_configs_of_a_topic_take_effect(tools: KafkaTools, broker: BrokerProcess, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.configs("--alter", *entity, "--add-config", "max.message.bytes=2000,retention.ms=5000")
    described = tools.configs("--describe", *entity)
    assert (
        "  max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, " in described
    )
    assert "DEFAULT_CONFIG:message.max.bytes=1048588}" in described
    assert "  retention.ms=5000 " in described
    assert tools.producer_perf_test(topic, 1, 3000).startswith("0 records sent")
    assert tools.get_offsets("--topic", topic) == {f"{topic}:0": 0}
    tools.configs("--alter", *entity, "--delete-config", "max.message.bytes")
    described = tools.configs("--describe", *entity)
    assert "max.message.bytes" not in described
    assert "  retention.ms=5000 " in described
    assert tools.producer_perf_test(topic, 1, 3000).startswith("1 records sent")
    assert tools.get_offsets("--topic", topic) == {f"{topic}:0": 1}
    with pytest.raises(ToolFailed, match=r"InvalidConfigurationException|Invalid value"):
        tools.configs("--alter", *entity, "--add-config", "retention.ms=soon")


@pytest.mark.parametrize("entity", [("--entity-default",), ("--entity-name", NODE)])
def test_configs_of_brokers_take_effect(
    entity: tuple[str, ...], tools: KafkaTools, make_topic: MakeTopic, back_to_defaults: Callable[..., None]
) -> None:
    entity = ("--entity-type", "brokers", *entity)
    back_to_defaults(*entity, "log.retention.ms")
    tools.configs("--alter", *entity, "--add-config", "log.retention.ms=123456")
    assert "  log.retention.ms=123456 " in tools.configs("--describe", *entity)
    # A topic without a value of its own has the broker's.
    everything = tools.configs("--describe", "--entity-type", "topics", "--entity-name", make_topic(1), "--all")
    assert "  retention.ms=123456 " in everything
    with pytest.raises(ToolFailed, match="Cannot update these configs dynamically"):
        tools.configs("--alter", *entity, "--add-config", "log.dirs=/elsewhere")


def test_configs_describes_all_of_a_broker(tools: KafkaTools, broker: BrokerProcess) -> None:
    lines = tools.configs("--describe", "--entity-type", "brokers", "--entity-name", NODE, "--all").splitlines()
    values = dict(line.split()[0].split("=", 1) for line in lines[1:])
    assert values["log.dirs"] == str(broker.data)
    assert values["num.partitions"] == "1"
    assert len(values) > 80


CLIENT = ("--entity-type", "clients")
QUOTAS_OF = [
    (("--entity-type", "users", "--entity-name", "ann", *CLIENT, "--entity-name", "c"), "producer_byte_rate=1000000.0"),
    (("--entity-type", "users", "--entity-default", *CLIENT, "--entity-default"), "request_percentage=150.5"),
    ((*CLIENT, "--entity-name", "some client"), "consumer_byte_rate=2000000.0"),
    ((*CLIENT, "--entity-default"), "controller_mutation_rate=50.0"),
    (("--entity-type", "ips", "--entity-name", "192.0.2.7"), "connection_creation_rate=500.0"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=1000.0"),
]


@pytest.mark.parametrize(("entity", "quota"), QUOTAS_OF)
def test_configs_of_quotas(
    entity: tuple[str, ...], quota: str, tools: KafkaTools, back_to_defaults: Callable[..., None]
) -> None:
    back_to_defaults(*entity, quota.partition("=")[0])
    assert quota not in tools.configs("--describe", *entity)
    tools.configs("--alter", *entity, "--add-config", quota)
    assert quota in tools.configs("--describe", *entity)
    with pytest.raises(ToolFailed, match="must be greater than 0"):
        tools.configs("--alter", *entity, "--add-config", f"{quota.partition('=')[0]}=-1")


@pytest.mark.parametrize("entity", [("--entity-default",), ("--entity-name", "ann")])
def test_configs_sets_quotas_of_users(entity: tuple[str, ...], tools: KafkaTools) -> None:
    entity = ("--entity-type", "users", *entity)
    assert "Completed updating" in tools.configs("--alter", *entity, "--add-config", "producer_byte_rate=1000000")
    assert "Completed updating" in tools.configs("--alter", *entity, "--delete-config", "producer_byte_rate")


def test_configs_changes_log_levels(tools: KafkaTools, broker: BrokerProcess) -> None:
    logger = "klamm.broker.network.connection"
    entity = ("--entity-type", "broker-loggers", "--entity-name", NODE)
    assert f"  {logger}=INFO " in tools.configs("--describe", *entity)
    tools.configs("--alter", *entity, "--add-config", f"{logger}=DEBUG")
    assert f"  {logger}=DEBUG " in tools.configs("--describe", *entity)
    assert f"DEBUG {logger}: " in broker.log()
    tools.configs("--alter", *entity, "--delete-config", logger)
    assert f"  {logger}=INFO " in tools.configs("--describe", *entity)


def test_console_producer_and_consumer(tools: KafkaTools, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    lines = [f"key-{number}\tvalue-{number}" for number in range(20)]
    more = ["--reader-property", "parse.key=true", "--compression-codec", "zstd"]
    tools.console_producer("--topic", topic, *more, text="".join(line + "\n" for line in lines))
    assert tools.get_offsets("--topic", topic) == {f"{topic}:0": 20}
    where = ["--topic", topic, "--partition", "0", "--timeout-ms", "20000", "--formatter-property", "print.key=true"]
    printed = tools.console_consumer(*where, "--offset", "earliest", "--max-messages", "20")
    assert printed.splitlines() == lines
    printed = tools.console_consumer(*where, "--offset", "15", "--max-messages", "5")
    assert printed.splitlines() == lines[15:]


def test_get_offsets_knows_all_special_times(tools: KafkaTools, broker: BrokerProcess, make_topic: MakeTopic) -> None:
    from confluent_kafka import Producer

    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": broker.address})
    for number, timestamp in enumerate([1000, 5000, 3000, 4000]):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=timestamp)
        assert producer.flush(10) == 0  # a batch each
    here, empty = f"{topic}:0", f"{topic}:1"

    def at(time: str) -> dict[str, int]:
        return tools.get_offsets("--topic", topic, "--time", time)

    assert at("latest") == at("-1") == {here: 4, empty: 0}
    assert at("earliest") == at("-2") == at("earliest-local") == {here: 0, empty: 0}
    assert at("max-timestamp") == {here: 1}
    assert at("1001") == {here: 1}
    assert at("2000") == {here: 1}
    assert at("5001") == {}
    assert at("latest-tiered") == {}
    assert tools.get_offsets("--topic-partitions", f"{topic}:0-1") == {here: 4}


def test_delete_records_moves_the_start(
    tools: KafkaTools, broker: BrokerProcess, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1)
    tools.console_producer("--topic", topic, text="a\nb\nc\nd\ne\n")

    def delete(offset: int) -> str:
        file = tmp_path / "delete.json"
        what = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "version": 1}
        file.write_text(json.dumps(what))
        return tools.delete_records("--offset-json-file", str(file))

    assert f"partition: {topic}-0\tlow_watermark: 3" in delete(3)
    assert tools.get_offsets("--topic", topic, "--time", "earliest") == {f"{topic}:0": 3}
    where = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "20000"]
    assert tools.console_consumer(*where, "--max-messages", "2").split() == ["d", "e"]
    assert "OffsetOutOfRangeException" in delete(6)
    assert f"partition: {topic}-0\tlow_watermark: 5" in delete(-1)
    assert tools.get_offsets("--topic", topic, "--time", "earliest") == {f"{topic}:0": 5}


def test_log_dirs_tells_the_sizes_on_disk(tools: KafkaTools, broker: BrokerProcess, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    tools.console_producer("--topic", topic, text="some words\n" * 100)
    printed = tools.log_dirs("--describe", "--topic-list", topic)
    found = json.loads(printed[printed.index("{") :])
    ((log_dir,),) = [entry["logDirs"] for entry in found["brokers"]]
    assert log_dir["logDir"] == str(broker.data)
    assert log_dir["error"] is None
    sizes = {entry["partition"]: entry["size"] for entry in log_dir["partitions"]}
    on_disk = {
        f"{topic}-{number}": sum(file.stat().st_size for file in (broker.data / f"{topic}-{number}").glob("*.log"))
        for number in range(2)
    }
    assert sizes == on_disk
    assert sum(sizes.values()) > 0


def test_broker_api_versions_prints_what_is_registered(tools: KafkaTools) -> None:
    printed = tools.broker_api_versions()
    rows = re.findall(r"^\s+\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", printed, re.MULTILINE)
    assert {int(key): (int(low), int(high or low)) for key, low, high in rows} == {
        key: (handler.min_version, handler.max_version) for key, handler in HANDLERS.items()
    }


def test_features_describes_and_refuses(tools: KafkaTools) -> None:
    described = tools.features("describe")
    assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: ", described)
    with pytest.raises(ToolFailed, match=r"[Cc]ould not upgrade|not support"):
        tools.features("upgrade", "--feature", "no.such.feature=1")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_perf_test_writes_all_its_records(acks: str, tools: KafkaTools, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    idempotence = "true" if acks == "all" else "false"
    printed = tools.producer_perf_test(topic, 20_000, 100, f"acks={acks}", f"enable.idempotence={idempotence}")
    assert "20000 records sent, " in printed
    assert sum(tools.get_offsets("--topic", topic).values()) == 20_000


def test_dump_log_reads_our_files(
    tools: KafkaTools,
    broker: BrokerProcess,
    node: NodeClient,
    make_topic: MakeTopic,
    stock_client: Callable[[str], Driver],
) -> None:
    """Several segments, each with its indexes and a producer snapshot, are what Kafka's own reader expects."""
    topic = make_topic(1, {"segment.bytes": "1048576", "index.interval.bytes": "4096"})
    tools.producer_perf_test(topic, 30_000, 100, "batch.size=2000")
    files = sorted((broker.data / f"{topic}-0").iterdir())
    logs = [file for file in files if file.suffix == ".log"]
    assert len(logs) > 2
    printed = tools.dump_log(logs, "--deep-iteration")
    assert len(re.findall(r"^\| offset: ", printed, re.MULTILINE)) == 30_000
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    assert len(indexes) >= 2 * (len(logs) - 1)
    printed = tools.dump_log(indexes, "--verify-index-only")
    printed = tools.dump_log(indexes, "--index-sanity-check")
    assert printed.count("passed sanity check") == len(indexes)
    snapshots = [file for file in files if file.suffix == ".snapshot"]
    assert snapshots
    printed = tools.dump_log(snapshots)
    assert len(re.findall(r"^producerId: \d+ producerEpoch: 0 ", printed, re.MULTILINE)) == len(snapshots)
    assert fetch_all(node, topic, 0) == b"".join(log.read_bytes() for log in logs)
