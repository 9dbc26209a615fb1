"""A log directory without a log manager."""

from __future__ import annotations

from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import NewLog, create_logs
from klamm.storage.log_dir import LogDir


def create_log(log_dir: LogDir, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
    """Make one log; raises what `create_logs` returns for it."""
    (created,) = create_logs(log_dir, [NewLog(topic, partition, topic_id, config)])
    if not isinstance(created, Log):
        raise created
    return created
