"""All keys that a single group may override (resource type GROUP, KIP-848 and later), with the broker key of each.

A value must be within the limits of the broker's own ``group.<kind>.min...`` and ``...max...`` keys.
"""

from __future__ import annotations

from typing import Final

from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import ConfigKey, Status, Type, Validator, Value
from klamm.config.validators import OneOf, Range


def _own(
    name: str, kind: Type, default: Value, doc: str, validator: Validator | None = None, *, status: Status = "later"
) -> ConfigKey:
    """Return a key with the default of the broker's key `group.<name>`, if there is one."""
    row = BROKER_KEYS.get(f"group.{name}")
    synonyms = ((f"group.{name}", 1),) if row is not None else ()
    default = row.default if row is not None else default
    return ConfigKey(name, kind, default, doc, validator, "cluster-wide", "medium", status, "", synonyms)


_POSITIVE = Range(1)

_ROWS = (
    _own("consumer.session.timeout.ms", Type.INT, 45000, "Session timeout of a consumer group.", _POSITIVE,
         status="works"),
    _own("consumer.heartbeat.interval.ms", Type.INT, 5000, "Heartbeat interval of a consumer group.", _POSITIVE,
         status="works"),
    _own("consumer.assignment.interval.ms", Type.INT, 1000, "The least time between two assignments of a consumer "
         "group.", Range(0), status="works"),
    _own("consumer.assignor.offload.enable", Type.BOOLEAN, True, "Run the assignor in another thread.",
         status="no use"),
    _own("share.session.timeout.ms", Type.INT, 45000, "Session timeout of a share group.", _POSITIVE),
    _own("share.heartbeat.interval.ms", Type.INT, 5000, "Heartbeat interval of a share group.", _POSITIVE),
    _own("share.record.lock.duration.ms", Type.INT, 30000, "How long a share consumer may have a record.", _POSITIVE),
    _own("share.delivery.count.limit", Type.INT, 5, "How often a share group delivers a record.", _POSITIVE),
    _own("share.partition.max.record.locks", Type.INT, 2000, "Records of a partition in flight.", _POSITIVE),
    _own("share.auto.offset.reset", Type.STRING, "latest", "Where a new share group begins."),
    _own("share.isolation.level", Type.STRING, "read_uncommitted", "Which records a share group reads.",
         OneOf(("read_committed", "read_uncommitted"))),
    _own("share.renew.acknowledge.enable", Type.BOOLEAN, True, "Whether a share consumer may renew its lock."),
    _own("share.assignment.interval.ms", Type.INT, 1000, "The least time between two assignments of a share group.",
         Range(0)),
    _own("share.assignor.offload.enable", Type.BOOLEAN, True, "Run the assignor in another thread.", status="no use"),
    _own("streams.session.timeout.ms", Type.INT, 45000, "Session timeout of a streams group.", _POSITIVE),
    _own("streams.heartbeat.interval.ms", Type.INT, 5000, "Heartbeat interval of a streams group.", _POSITIVE),
    _own("streams.num.standby.replicas", Type.INT, 0, "Standby replicas of each task.", Range(0)),
    _own("streams.initial.rebalance.delay.ms", Type.INT, 3000, "How long a new streams group waits.", Range(0)),
    _own("streams.assignment.interval.ms", Type.INT, 1000, "The least time between two assignments of a streams "
         "group.", Range(0)),
)  # fmt: skip

GROUP_KEYS: Final[dict[str, ConfigKey]] = {row.name: row for row in _ROWS}
