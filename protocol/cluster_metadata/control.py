"""The control records of a KRaft log: the quorum's own, not part of the metadata.

Their key is that of every control record, version i16 (0) and type i16; the value is the message of version 0.
"""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, UInt16, Uuid


@struct
class LeaderChangeMessageVoter:
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field("1+")


@message(kind="data", versions="0-1", flexible="0+")
class LeaderChangeMessage(Message):
    version: Int16 = field()
    leader_id: Int32 = field()
    voters: list[LeaderChangeMessageVoter] = field()
    granting_voters: list[LeaderChangeMessageVoter] = field()


@message(kind="data", versions="0", flexible="0+")
class SnapshotHeaderRecord(Message):
    version: Int16 = field()
    last_contained_log_timestamp: Int64 = field()


@message(kind="data", versions="0", flexible="0+")
class SnapshotFooterRecord(Message):
    version: Int16 = field()


@message(kind="data", versions="0", flexible="0+")
class KRaftVersionRecord(Message):
    version: Int16 = field()
    kraft_version: Int16 = field()


@struct
class Endpoint:
    name: String = field()
    host: String = field()
    port: UInt16 = field()


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@struct
class VotersRecordVoter:
    voter_id: Int32 = field()
    voter_directory_id: Uuid = field()
    endpoints: list[Endpoint] = field()
    kraft_version_feature: KRaftVersionFeature = field()


@message(kind="data", versions="0", flexible="0+")
class VotersRecord(Message):
    version: Int16 = field()
    voters: list[VotersRecordVoter] = field()
