"""The process that checks logs after a crash, `klamm.storage.recovery.recovery_worker`, started by `recovery_pool`.

It reads lines of JSON, each a `Task`. For each task it writes `{"log": [level, logger, text]}` for each log message,
`{"segment": bytes}` for each checked segment, and at the end `{"recovered": true}` or `{"offline": why}`. A recovered
log has its indexes, epochs and producer snapshot as a clean close leaves them, but not synced: opening it then checks
no batches.

It ends at once when its standard input ends: a broker that dies leaves no worker that writes to its log directory.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from klamm.protocol.errors import KafkaStorageError
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem, describe
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery.loader import LogDamaged, LogSource, open_log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """The input of `open_log` for an unclean log, and the amount of data to check."""

    directory: str
    config: LogConfig
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    power_loss: bool
    quarantine: str | None
    producer_expiration_ms: int
    segments: int
    size_bytes: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Task:
        fields: dict[str, Any] = json.loads(line)
        fields["config"] = LogConfig(**fields["config"])
        return cls(**fields)


def recover(task: Task, on_segment: Callable[[int], None]) -> str | None:
    """Check one log and complete its files, unsynced; return why it cannot be opened, or None."""
    try:
        log = open_log(
            LogSource(
                Path(task.directory),
                task.config,
                clock=SystemClock(),
                filesystem=OsFilesystem(),
                log_start_offset=task.log_start_offset,
                recovery_point=task.recovery_point,
                high_watermark=task.high_watermark,
                clean=False,
                power_loss=task.power_loss,
                quarantine=Path(task.quarantine) if task.quarantine is not None else None,
                producer_expiration_ms=task.producer_expiration_ms,
                on_segment=on_segment,
            )
        )
        for segment in log.local.segments.all:
            segment.become_inactive()
            segment.write_indexes()
        log.write_snapshot()
        log.leader_epochs.write()
        log.local.abandon("handed over")
    except (LogDamaged, KafkaStorageError) as error:
        return str(error)
    except OSError as error:
        return describe(error)
    except Exception as error:  # one bad log must not stop the others
        logger.exception("%s: cannot be opened", Path(task.directory).name)
        return repr(error)
    return None


class _ToTheBroker(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        say({"log": [record.levelno, record.name, text]})


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _read_tasks(tasks: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    os._exit(0)


def main() -> None:
    logging.basicConfig(level=logging.INFO, handlers=[_ToTheBroker()], format="%(message)s")
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(tasks,), daemon=True).start()
    while True:
        reason = recover(Task.decode(tasks.get()), lambda size_bytes: say({"segment": size_bytes}))
        say({"recovered": True} if reason is None else {"offline": reason})


if __name__ == "__main__":
    main()
