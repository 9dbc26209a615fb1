"""AddRaftVoter (KIP-853): add a controller to a KRaft quorum. Klamm has no such quorum and refuses.

v1 lets the caller choose to hear back before the change is committed, for controllers that add themselves (KIP-1186).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String, UInt16, Uuid


@struct
class Listener:
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@message(key=80, kind="request", versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: String | None = field(nullable="0+")
    timeout_ms: Int32 = field()
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()
    listeners: list[Listener] = field()
    ack_when_committed: Bool = field("1+", default=True)


@message(key=80, kind="response", versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", ignorable=True)
