"""The records of `__share_group_state` (KIP-932): a snapshot (kind 0) of a share partition, and updates (kind 1)."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String, Uuid


@struct
class StateBatch:
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_state: Int8 = field()
    delivery_count: Int16 = field()


@message(key=0, kind="coordinator-key", versions="0")
class ShareSnapshotKey(Message):
    group_id: String = field()
    topic_id: Uuid = field()
    partition: Int32 = field()


@message(key=0, kind="coordinator-value", versions="0", flexible="0+")
class ShareSnapshotValue(Message):
    snapshot_epoch: Int32 = field()
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = field(default=-1, tag=0, tagged="0+")
    create_timestamp: Int64 = field()
    write_timestamp: Int64 = field()
    state_batches: list[StateBatch] = field()


@message(key=1, kind="coordinator-key", versions="0")
class ShareUpdateKey(Message):
    group_id: String = field()
    topic_id: Uuid = field()
    partition: Int32 = field()


@message(key=1, kind="coordinator-value", versions="0", flexible="0+")
class ShareUpdateValue(Message):
    snapshot_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = field(default=-1, tag=0, tagged="0+")
    state_batches: list[StateBatch] = field()
