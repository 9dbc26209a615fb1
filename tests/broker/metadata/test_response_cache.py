"""Topics of Metadata, encoded once: the bytes equal those of a fresh description, and follow every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.metadata.response_cache import MetadataResponseCache
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm.protocol.schema import encode_part
from tests.support.embedded import EmbeddedBroker

VERSIONS = range(MetadataResponse.versions[0], MetadataResponse.versions[1] + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_that_was_encoded_before_gives_the_same_bytes(version: int) -> None:
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1]) for index in (0, 1)]
    topics = [MetadataResponseTopic(name=name, partitions=partitions) for name in ("a", "b" * 200)]
    encoded = [bytes(encode_part(MetadataResponse, MetadataResponseTopic, version)(one, bytearray())) for one in topics]
    expected = MetadataResponse.encode[version](MetadataResponse(brokers=[], topics=topics), bytearray())
    for mixed in (encoded, [encoded[0], topics[1]]):
        response = MetadataResponse(brokers=[], topics=mixed)  # type: ignore[arg-type]
        assert MetadataResponse.encode[version](response, bytearray()) == expected


def test_an_answer_is_kept_until_the_topic_changes(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as embedded:
        broker = embedded.broker
        embedded.create_topic("a")
        embedded.create_topic("b")
        answers = MetadataResponseCache(broker.partitions)
        before = answers.all(broker.image.topics, 9, 0)
        assert answers.all(broker.image.topics, 9, 0) is before
        embedded.create_topic("c")
        after = answers.all(broker.image.topics, 9, 0)
        assert after[:2] == before and after[0] is before[0] and len(after) == 3
        assert answers.all(broker.image.topics, 8, 0) != after


def test_the_answers_of_a_topic_go_with_it(tmp_path: Path) -> None:
    """This holds even where nobody ever asks for all topics."""
    with EmbeddedBroker(tmp_path) as embedded:
        for name in ("a", "b"):
            embedded.create_topic(name)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            assert embedded.call(asked, 9).topics[0].error_code == 0
        kept = embedded.broker.metadata_responses._topics
        assert sorted(kept) == ["a", "b"]
        embedded.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4)
        assert sorted(kept) == ["b"]


def test_an_offline_partition_is_reported_at_once_until_it_is_back(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as embedded:
        embedded.create_topic("a")
        asked = MetadataRequest(topics=None)

        def offline() -> list[int]:
            (partition,) = embedded.call(asked, 9).topics[0].partitions
            return list(partition.offline_replicas)

        assert offline() == []
        partition = embedded.broker.partitions.get_partition("a", 0)
        assert partition is not None
        log, partition.log = partition.log, None
        try:
            assert offline() == [1]
        finally:
            partition.log = log
        assert offline() == []
