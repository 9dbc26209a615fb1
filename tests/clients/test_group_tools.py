"""Apache Kafka's tools for groups, of 4.3: each is judged by its effect, or by what it tells about what others did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import MakeMember
from tests.clients.driver import Driver, Member
from tests.clients.kafka_tools import PACKAGE, KafkaTools
from tests.clients.matrix import COUNT, PARTITIONS, poll_until, text, values
from tests.support.broker_process import BrokerProcess
from tests.support.jars import run_java
from tests.support.java_process import JavaProcess

pytestmark = pytest.mark.java

EACH = COUNT // PARTITIONS  # records of one sending, in each partition


@pytest.fixture(scope="module")
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    return group_broker


@pytest.fixture(scope="module")
def tools(commands: JavaProcess, broker: BrokerProcess) -> KafkaTools:
    return KafkaTools(commands, broker.address)


@pytest.fixture
def send(broker: BrokerProcess, topic: str, stock_client: Callable[[str], Driver]) -> Callable[[str], None]:
    """`send("a")` fills all partitions of the test's topic."""
    client = stock_client("confluent-kafka")
    return lambda beginning: client.produce(broker.address, topic, text(beginning, partitions=PARTITIONS)) and None


@pytest.fixture
def reader(send: Callable[[str], None], member: MakeMember) -> Member:
    """A member that has read and committed all records that were sent."""
    send("a")
    made: Member = member("confluent-kafka", {"client.id": "reader"})
    seen: set[bytes | None] = set()
    poll_until(lambda: seen == values("a"), [made], seen)
    made.commit()
    return made


def groups(tools: KafkaTools, *arguments: str) -> str:
    return tools._ask(PACKAGE + "consumer.group.ConsumerGroupCommand", *arguments)


def rows(described: str) -> list[dict[str, str]]:
    """A table by its header."""
    lines = [line.split() for line in described.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[start], line, strict=False)) for line in lines[start + 1 :]]


def offsets(tools: KafkaTools, group: str) -> dict[int, str]:
    """Return the committed offsets, by partition."""
    described = rows(groups(tools, "--describe", "--group", group))
    return {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in described}


def test_list_and_describe(topic: str, send: Callable[[str], None], reader: Member, tools: KafkaTools) -> None:
    send("b")
    assert topic in groups(tools, "--list").split()
    described = rows(groups(tools, "--describe", "--group", topic))
    assert {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described} == {
        str(index): (str(EACH), str(2 * EACH), str(EACH)) for index in range(PARTITIONS)
    }
    assert {row["CLIENT-ID"] for row in described} == {"reader"}
    (state,) = rows(groups(tools, "--describe", "--state", "--group", topic))
    assert "Stable" in state.values() and "range" in state.values(), state
    (members,) = rows(groups(tools, "--describe", "--members", "--verbose", "--group", topic))
    assert members["CLIENT-ID"] == "reader" and str(PARTITIONS) in members.values()
    assert topic in groups(tools, "--list", "--state", "stable")
    assert topic in groups(tools, "--list", "--type", "classic")
    assert topic not in groups(tools, "--list", "--type", "consumer").split()
    reader.leave()
    assert topic in groups(tools, "--list", "--state", "empty")


def test_kafka_groups(topic: str, reader: Member, tools: KafkaTools) -> None:
    listed = tools._ask(PACKAGE + "GroupsCommand", "--list")
    (row,) = [line.split() for line in listed.splitlines() if line.startswith(topic)]
    assert row == [topic, "Classic", "consumer"]
    assert topic in tools._ask(PACKAGE + "GroupsCommand", "--list", "--group-type", "classic")
    assert topic not in tools._ask(PACKAGE + "GroupsCommand", "--list", "--group-type", "share")


def test_a_group_with_members_is_neither_reset_nor_deleted(topic: str, reader: Member, tools: KafkaTools) -> None:
    refused = groups(tools, "--delete", "--group", topic)
    assert "GroupNotEmptyException" in refused, refused
    refused = groups(tools, "--reset-offsets", "--execute", "--group", topic, "--topic", topic, "--to-earliest")
    assert "inactive" in refused, refused
    refused = groups(tools, "--delete-offsets", "--group", topic, "--topic", topic)
    assert "subscribed" in refused, refused
    assert set(offsets(tools, topic).values()) == {str(EACH)}


def test_a_group_of_the_new_protocol(
    topic: str, send: Callable[[str], None], member: MakeMember, tools: KafkaTools
) -> None:
    send("a")
    made = member("confluent-kafka", {"client.id": "reader", "group.protocol": "consumer"})
    seen: set[bytes | None] = set()
    poll_until(lambda: seen == values("a"), [made], seen)
    made.commit()
    send("b")
    described = rows(groups(tools, "--describe", "--group", topic))
    assert {(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CLIENT-ID"]) for row in described} == {
        (str(EACH), str(2 * EACH), str(EACH), "reader")
    }
    (state,) = rows(groups(tools, "--describe", "--state", "--group", topic))
    assert "Stable" in state.values() and "uniform" in state.values(), state
    (members,) = rows(groups(tools, "--describe", "--members", "--verbose", "--group", topic))
    assert members["CLIENT-ID"] == "reader" and str(PARTITIONS) in members.values()
    assert topic in groups(tools, "--list", "--type", "consumer").split()
    (row,) = [line.split() for line in tools._ask(PACKAGE + "GroupsCommand", "--list").splitlines() if topic in line]
    assert row == [topic, "Consumer", "consumer"]
    assert "GroupNotEmptyException" in groups(tools, "--delete", "--group", topic)
    made.leave()
    groups(tools, "--group", topic, "--topic", topic, "--reset-offsets", "--execute", "--to-offset", "3")
    assert offsets(tools, topic) == dict.fromkeys(range(PARTITIONS), "3")
    assert "Successful" in groups(tools, "--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    assert sorted(offsets(tools, topic)) == [1, 2, 3]
    assert "successful" in groups(tools, "--delete", "--group", topic)
    assert topic not in groups(tools, "--list").split()


@pytest.mark.parametrize(
    ("option", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], EACH),
        (["--to-offset", "3"], 3),
        (["--shift-by", "-2"], 5),
        (["--shift-by", "2"], 9),
        (["--shift-by", "-100"], 0),
        (["--to-datetime", "2000-01-01T00:00:00.000"], 0),
        (["--to-datetime", "2999-01-01T00:00:00.000"], EACH),
        (["--by-duration", "P100D"], 0),
        (["--to-current"], 7),
    ],
    ids=lambda value: "-".join(value).strip("-").replace(":", "") if isinstance(value, list) else None,
)
def test_reset_offsets(
    topic: str, send: Callable[[str], None], tools: KafkaTools, option: list[str], offset: int
) -> None:
    send("a")
    everything = ["--group", topic, "--topic", topic, "--reset-offsets"]
    groups(tools, *everything, "--execute", "--to-offset", "7")
    planned = rows(groups(tools, *everything, *option, "--dry-run"))
    assert [row["NEW-OFFSET"] for row in planned] == [str(offset)] * PARTITIONS
    assert set(offsets(tools, topic).values()) == {"7"}
    groups(tools, *everything, *option, "--execute")
    assert offsets(tools, topic) == dict.fromkeys(range(PARTITIONS), str(offset))


def test_reset_offsets_from_a_file(topic: str, send: Callable[[str], None], tools: KafkaTools, tmp_path: Path) -> None:
    send("a")
    file = tmp_path / "plan.csv"
    file.write_text("".join(f"{topic},{partition},{partition + 1}\n" for partition in range(PARTITIONS)))
    arguments = ["--group", topic, "--reset-offsets", "--from-file", str(file), "--execute"]
    groups(tools, *arguments)
    assert offsets(tools, topic) == {partition: str(partition + 1) for partition in range(PARTITIONS)}
    groups(tools, "--group", topic, "--topic", f"{topic}:0,2", "--reset-offsets", "--to-latest", "--execute")
    exported = groups(tools, "--group", topic, "--topic", topic, "--reset-offsets", "--to-current", "--export")
    assert f'"{topic}",0,{EACH}' in exported and f'"{topic}",1,2' in exported, exported


def test_delete_offsets_and_groups(topic: str, send: Callable[[str], None], tools: KafkaTools) -> None:
    send("a")
    groups(tools, "--group", topic, "--topic", topic, "--reset-offsets", "--execute", "--to-latest")
    assert "Successful" in groups(tools, "--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    assert sorted(offsets(tools, topic)) == [1, 2, 3]
    assert "successful" in groups(tools, "--delete", "--group", topic)
    assert topic not in groups(tools, "--list").split()
    assert "GroupIdNotFoundException" in groups(tools, "--delete", "--group", topic)


def test_console_consumer_in_a_group(topic: str, send: Callable[[str], None], tools: KafkaTools) -> None:
    arguments = ["--topic", topic, "--group", topic, "--timeout-ms", "10000", "--max-messages", str(COUNT)]
    for beginning in "ab":
        send(beginning)
        printed = tools.console_consumer(*arguments, "--from-beginning").splitlines()
        assert sorted(printed) == sorted(str(value, "utf-8") for value in values(beginning) if value)


def test_kafka_reads_our_offsets_topic(broker: BrokerProcess, topic: str, reader: Member, tools: KafkaTools) -> None:
    everything = ["--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "2000", "--formatter"]
    events = tools.console_consumer(*everything, PACKAGE + "consumer.OffsetsMessageFormatter")
    assert f'"group":"{topic}"' in events and f'"offset":{EACH}' in events
    events = tools.console_consumer(*everything, PACKAGE + "consumer.GroupMetadataMessageFormatter")
    assert f'"group":"{topic}"' in events and '"clientId":"reader"' in events
    files = [file for file in broker.data.glob("__consumer_offsets-*/*.log") if topic.encode() in file.read_bytes()]
    assert files
    dumped = tools.dump_log(files, "--offsets-decoder")
    assert f'"group":"{topic}"' in dumped and f'"offset":{EACH}' in dumped


def test_verifiable_producer_and_consumer(topic: str, tools: KafkaTools) -> None:
    produced = events(tools, "VerifiableProducer", "--topic", topic, "--max-messages", "500")
    assert sum(event["name"] == "producer_send_success" for event in produced) == 500
    arguments = ["--topic", topic, "--group-id", topic, "--max-messages", "500"]
    consumed = events(tools, "VerifiableConsumer", *arguments, "--reset-policy", "earliest")
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == 500
    commits = [event for event in consumed if event["name"] == "offsets_committed"]
    assert commits and all(event["success"] for event in commits)
    assert sum(int(offset) for offset in offsets(tools, topic).values()) == 500


def events(tools: KafkaTools, name: str, *arguments: str) -> list[dict[str, Any]]:
    """The events that a verifiable client prints, a JSON line each; it prints the last when its JVM ends."""
    printed = run_java("tools", PACKAGE + name, "--bootstrap-server", tools.address, *arguments)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_what_is_not_there_is_said(tools: KafkaTools) -> None:
    assert "GroupIdNotFoundException" in groups(tools, "--delete", "--group", "no-such-group")
