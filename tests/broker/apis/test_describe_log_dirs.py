"""DescribeLogDirs: where partitions are and what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.support.embedded import EmbeddedBroker, batch


def describe(broker: EmbeddedBroker, version: int = 5, topics: dict[str, list[int]] | None = None) -> Any:
    wanted = None
    if topics is not None:
        wanted = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    response = broker.call(DescribeLogDirsRequest(topics=wanted), version)
    assert response.error_code == 0
    return response.results


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): part.partition_size for topic in result.topics for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
def test_everything_is_described(broker: EmbeddedBroker, tmp_path: Path, version: int) -> None:
    sent = batch(b"x")
    broker.produce("t", sent, partition=1)
    (result,) = describe(broker, version)
    assert (result.error_code, result.log_dir) == (0, str((tmp_path / "data").absolute()))
    assert sizes(result) == {("t", 0): 0, ("t", 1): len(sent)}
    assert all((part.offset_lag, part.is_future_key) == (0, False) for t in result.topics for part in t.partitions)
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert not result.is_cordoned


def test_only_what_is_asked_for_and_there(broker: EmbeddedBroker) -> None:
    (result,) = describe(broker, topics={"t": [1, 7], "nobody": [0]})
    assert set(sizes(result)) == {("t", 1)}
    (result,) = describe(broker, topics={})
    assert sizes(result) == {}


def test_several_log_dirs(tmp_path: Path) -> None:
    dirs = [str(tmp_path / "one"), str(tmp_path / "two")]
    with EmbeddedBroker(tmp_path, {"log.dirs": ",".join(dirs)}) as broker:
        broker.create_topic("t", partitions=4)
        results = describe(broker)
        assert [result.log_dir for result in results] == dirs
        assert [len(sizes(result)) for result in results] == [2, 2]
