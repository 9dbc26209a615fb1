"""What happens to topics while they are loaded."""

from __future__ import annotations

import time

from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


def delete_before(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[part])
    cluster.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))


def delete_topic(cluster: Cluster, name: str) -> None:
    topics = [DeleteTopicState(name=name)]
    cluster.ask(DeleteTopicsRequest(topics=topics, topic_names=[name], timeout_ms=10_000))
    while name in cluster.topics([name], missing_ok=True):
        time.sleep(0.05)
