"""Topics of a real cluster: found by pattern, made, changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.pipeline.errors import BadOption, ClusterError, UnknownTopic
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import add_partitions, create_topic, matching, set_configs, topic_configs
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker,
        Cluster(broker.address) as cluster,
    ):
        yield cluster


def test_a_topic_is_made_and_changed(cluster: Cluster) -> None:
    made = create_topic(cluster, "made", partitions=2, configs={"retention.ms": "1000"})
    assert made == cluster.topics(["made"])["made"]
    assert made.partitions == (0, 1)
    set_configs(cluster, "made", {"retention.ms": None, "cleanup.policy": "compact"})
    add_partitions(cluster, "made", 3)
    assert topic_configs(cluster, ["made"]) == {"made": {"cleanup.policy": "compact"}}
    assert topic_configs(cluster, []) == {}
    assert cluster.topics(["made"])["made"].partitions == (0, 1, 2)


def test_what_is_refused_is_one_line(cluster: Cluster) -> None:
    create_topic(cluster, "twice")
    with pytest.raises(ClusterError, match=r"^topic twice: TOPIC_ALREADY_EXISTS"):
        create_topic(cluster, "twice")
    with pytest.raises(ClusterError, match=r"^topic a b: INVALID_TOPIC_EXCEPTION"):
        create_topic(cluster, "a b")
    with pytest.raises(ClusterError, match=r"^partitions of topic twice: INVALID_PARTITIONS"):
        add_partitions(cluster, "twice", 1)
    with pytest.raises(ClusterError, match=r"^configs of topic twice: INVALID_CONFIG"):
        set_configs(cluster, "twice", {"retention.ms": "soon"})
    with pytest.raises(ClusterError, match=r"^configs of topic nosuch: UNKNOWN_TOPIC_OR_PARTITION"):
        topic_configs(cluster, ["nosuch"])


def test_a_pattern_matches_whole_names_and_no_internal_topic(cluster: Cluster) -> None:
    for name in ("air.one", "air.two", "airport"):
        create_topic(cluster, name)
    assert list(matching(cluster, r"air\..*")) == ["air.one", "air.two"]
    assert not any(name.startswith("__") for name in matching(cluster, ".*"))
    with pytest.raises(UnknownTopic, match=r"^no topic on 127.0.0.1:\d+ matches subscribePattern air$"):
        matching(cluster, "air")
    with pytest.raises(BadOption, match=r"^subscribePattern \( is not a regular expression: missing \)"):
        matching(cluster, "(")
