"""FindCoordinator (10): the broker that coordinates a group, a transactional id or a share partition.

v1 adds the key type (0 group, 1 transaction, 2 share), the throttle time and error messages, v3 is flexible, v4 asks
for many keys at once (KIP-699), v5 may answer TRANSACTION_ABORTABLE (KIP-890), v6 has share keys "group:topic
id:partition" (KIP-932).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String


@message(key=10, kind="request", versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: String = field("0-3")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+")


@struct
class Coordinator:
    key: String = field("4+")
    node_id: Int32 = field("4+")
    host: String = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: String | None = field("4+", nullable="4+", ignorable=True)


@message(key=10, kind="response", versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0-3")
    error_message: String | None = field("1-3", nullable="1-3", ignorable=True)
    node_id: Int32 = field("0-3")
    host: String = field("0-3")
    port: Int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")
