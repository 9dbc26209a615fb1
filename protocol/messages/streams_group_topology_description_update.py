"""StreamsGroupTopologyDescriptionUpdate (KIP-1331): a member pushes the full graph of its topology.

It does so when StreamsGroupHeartbeat asked for it; StreamsGroupDescribe hands it on. New in Apache Kafka 4.4.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String


@struct
class TopologyDescriptionNode:
    name: String = field()
    node_type: Int8 = field()  # 1 source, 2 processor, 3 sink
    source_topics: list[String] = field()
    sink_topic: String | None = field(nullable="0+", default=None)
    stores: list[String] = field()
    successors: list[String] = field()


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: String = field()
    nodes: list[TopologyDescriptionNode] = field()


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field()
    processor: TopologyDescriptionNode = field()


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = field()
    global_stores: list[TopologyDescriptionGlobalStore] = field()


@message(key=93, kind="request", versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: String = field()
    member_id: String = field()
    topology_epoch: Int32 = field()
    topology_description: TopologyDescription = field()


@message(key=93, kind="response", versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
