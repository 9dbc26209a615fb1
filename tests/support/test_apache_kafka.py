"""Apache Kafka runs from the jars that Maven fetched."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.apache_kafka import apache_kafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_a_broker_starts_serves_and_closes_its_logs(tmp_path):
    with apache_kafka(tmp_path, {"num.partitions": "3"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        metadata = admin.list_topics("made", timeout=20)
        assert list(metadata.brokers) == [1]
        kafka.stop()
    assert (kafka.log_dir / ".kafka_cleanshutdown").exists()
