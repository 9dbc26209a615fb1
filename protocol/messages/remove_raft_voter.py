"""RemoveRaftVoter (KIP-853): take a controller out of a KRaft quorum. Klamm has no such quorum and refuses."""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, Int32, String, Uuid


@message(key=81, kind="request", versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: String | None = field(nullable="0+")
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()


@message(key=81, kind="response", versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", ignorable=True)
