"""Klamm and Apache Kafka 4.4 are asked the same questions, and the answers compared field by field.

What depends on the machine or on chance is left out, and so are the texts of errors. `DIFFERENT` lists where the two
differ on purpose, and why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.protocol.errors import ErrorCode
from tests.clients.comparison import differences
from tests.clients.questions import questions
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java]

LEFT_OUT: Final = (
    "topic_id", "error_message", "cluster_id", "host", "port", "throttle_time_ms", "log_dir", "usable_bytes",
    "total_bytes", "documentation", "batch_index_error_message",
)  # fmt: skip
NAMES: Final = ("name", "topic", "topic_name", "resource_name", "partition_index", "partition", "index")

OWN: Final = "klamm."  # keys that Apache Kafka does not have

SETTLE_S: Final = 0.2  # Apache Kafka answers an alteration before its brokers have applied it

DIFFERENT: Final = (
    # Kafka's default is no bound at all.
    ("*", "*max.decompressed.message.bytes*.value"),
    # With eligible leader replicas, Kafka writes this into the dynamic cluster config.
    ("describe *", "*[[]min.insync.replicas].*"),
    ("create*", "*[[]min.insync.replicas].config_source"),
    # Kafka quirks: a duplicate is answered with the timestamp of its batch as if it were the append time, ...
    ("produce same sequence", "*log_append_time_ms"),
    # ... the record with the largest timestamp may be one that was deleted, ...
    ("after *: offset at -3", "*"),
    # ... a control batch is refused a little later than other invalid ones.
    ("produce a control batch", "*log_start_offset"),
    # Null or empty, in partitions with errors.
    ("*fetch *", "*aborted_transactions*"),
    # Each entry has its answer, not each partition.
    ("*offset asked for twice", "*count"),
)


@pytest.fixture(scope="module")
def klamm_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def apache_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    directory: Path = tmp_path_factory.mktemp("apache")
    with apache_kafka(directory) as kafka:
        yield kafka


@pytest.mark.timeout(240)
def test_both_give_the_same_answers(klamm_alone: BrokerProcess, apache_alone: ApacheKafka) -> None:
    ours = dict(answers(klamm_alone.port))
    theirs = dict(answers(apache_alone.port))
    assert list(ours) == list(theirs)
    assert len(ours) > 200
    found = differences(ours, theirs, on_purpose)
    assert not found, found
    assert "Traceback" not in klamm_alone.log()


def on_purpose(question: str, path: str) -> bool:
    return any(fnmatchcase(question, one) and fnmatchcase(path, other) for one, other in DIFFERENT)


def answers(port: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Each question with its answer as {path: value}; a connection that ended is an answer, too."""
    client = NodeClient("127.0.0.1", port, timeout_s=10)

    def ask(message: Any, version: int) -> Any:
        return client.request(message, version)

    for name, question in questions(ask):
        if name.startswith("describe"):
            time.sleep(SETTLE_S)
        try:
            yield name, dict(flat(settled(question)))
        except ClientError as error:
            yield name, {"error": type(error).__name__}
            client.close()
            client = NodeClient("127.0.0.1", port, timeout_s=10)
    client.close()


def settled(question: Any) -> Any:
    """Ask until Apache Kafka has made its new topics and elected their leaders; return the answer."""
    busy = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.LEADER_NOT_AVAILABLE}
    for _ in range(100):
        answer = question()
        if not busy & {value for path, value in flat(answer) if path.endswith("error_code")}:
            break
    return answer


def flat(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """(path, leaf) of everything in a message, in which items of lists go by their name."""
    if isinstance(value, list):
        value = [item for item in value if not str(getattr(item, "name", "")).startswith(OWN)]
        for index, item in enumerate(value):
            yield from flat(item, f"{path}[{_label(item, index)}]")
        yield f"{path}.count", len(value)
    elif fields := getattr(type(value), "__slots__", ()):
        for field in fields:
            if field not in LEFT_OUT:
                yield from flat(getattr(value, field), f"{path}.{field}")
    elif path.endswith("error_code"):
        yield path, ErrorCode(value)
    else:
        yield path, bytes(value) if isinstance(value, memoryview) else value


def _label(item: object, index: int) -> object:
    if isinstance(item, str):
        return item
    return next((value for name in NAMES if (value := getattr(item, name, None)) not in (None, "")), index)
