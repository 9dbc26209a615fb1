"""Brokers and controllers in the cluster metadata: registrations and fencing."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Bool, Int8, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class BrokerEndpoint:
    name: String = field()
    host: String = field()
    port: UInt16 = field()
    security_protocol: Int16 = field()


@struct
class BrokerFeature:
    name: String = field()
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@message(key=0, kind="metadata", versions="0-4", flexible="0+")
class RegisterBrokerRecord(Message):
    broker_id: Int32 = field()
    is_migrating_zk_broker: Bool = field("2+")
    incarnation_id: Uuid = field()
    broker_epoch: Int64 = field()
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()
    rack: String | None = field(nullable="0+")
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = field("1+")
    log_dirs: list[Uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", nullable="4+", default=None, tag=1)


@message(key=1, kind="metadata", versions="0", flexible="0+")
class UnregisterBrokerRecord(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field()


@message(key=7, kind="metadata", versions="0", flexible="0+")
class FenceBrokerRecord(Message):
    id: Int32 = field()
    epoch: Int64 = field()


@message(key=8, kind="metadata", versions="0", flexible="0+")
class UnfenceBrokerRecord(Message):
    id: Int32 = field()
    epoch: Int64 = field()


@message(key=17, kind="metadata", versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field()
    fenced: Int8 = field(tag=0)
    in_controlled_shutdown: Int8 = field("1+", tag=1)
    log_dirs: list[Uuid] = field("2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", nullable="3+", default=None, tag=3)


@struct
class ControllerEndpoint:
    name: String = field()
    host: String = field()
    port: UInt16 = field()
    security_protocol: Int16 = field()


@struct
class ControllerFeature:
    name: String = field()
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@message(key=27, kind="metadata", versions="0", flexible="0+")
class RegisterControllerRecord(Message):
    controller_id: Int32 = field()
    incarnation_id: Uuid = field()
    zk_migration_ready: Bool = field()
    end_points: list[ControllerEndpoint] = field()
    features: list[ControllerFeature] = field()


@message(key=29, kind="metadata", versions="0", flexible="0+")
class UnregisterControllerRecord(Message):
    controller_id: Int32 = field()
