"""The counter of produced records for `klamm-pipeline audit`. For applications to use: it needs no other module.

    counter = AuditCounter(lambda key, value: producer.send("audit", key=key, value=value))
    counter.count("flights", record_timestamp_ms)          # once a record is acknowledged
    counter.flush()                                        # every minute or so, and at the end

A message is JSON, keyed by the topic. It holds the records of a window counted since the last message of this counter:

    {"tier": "producer", "counter": "5f0c...", "sequence": 7, "topic": "flights", "window_start_ms": 1700000400000,
     "window_ms": 600000, "count": 1234}

`counter` and `sequence` identify a message that is delivered twice. Counts that are not flushed when the process dies
are lost: the audit then finds more records at the broker than were reported. The window of an audit must be a multiple
of this one.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

WINDOW_MS: Final = 600_000
TIER: Final = "producer"

Send = Callable[[bytes, bytes], object]


class AuditCounter:
    """Counts of records by topic and window. May be used by several threads at once."""

    def __init__(self, send: Send, *, window_ms: int = WINDOW_MS) -> None:
        self._send = send
        self._window_ms = window_ms
        self._name = uuid.uuid4().hex
        self._sequence = 0
        self._counts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def count(self, topic: str, timestamp_ms: int, records: int = 1) -> None:
        """Count records with (about) this timestamp in the topic."""
        with self._lock:
            self._counts[topic, timestamp_ms // self._window_ms * self._window_ms] += records

    def flush(self) -> None:
        """Send the counts since the last flush. If `send` raises, the counts not sent are kept."""
        with self._lock:
            for (topic, window_start_ms), records in sorted(self._counts.items()):
                message = {
                    "tier": TIER,
                    "counter": self._name,
                    "sequence": self._sequence,
                    "topic": topic,
                    "window_start_ms": window_start_ms,
                    "window_ms": self._window_ms,
                    "count": records,
                }
                self._send(topic.encode(), json.dumps(message).encode())
                self._sequence += 1
                del self._counts[topic, window_start_ms]


def lines_to(path: str | Path) -> Send:
    """Return a `send` that appends messages to a file as lines, instead of a topic."""

    def send(key: bytes, value: bytes) -> None:
        with open(path, "ab") as file:
            file.write(value + b"\n")

    return send
