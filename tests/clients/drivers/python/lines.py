"""The code that all drivers in Python share: a JSON question a line on stdin, a JSON answer a line on stdout.

`tests/clients/driver.py` describes the protocol. Output of a library goes to stderr.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

TIMEOUT_S = 30.0
SESSION_MS = 6_000
HEARTBEAT_MS = 200

Answer = Callable[[dict[str, Any]], Any]


def serve(answers: Mapping[str, Answer]) -> None:
    """Answer until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"ok": answers[question["do"]](question)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


Header = tuple[str, "bytes | None"]
Sent = tuple[int, "int | None", "bytes | None", "bytes | None", list[Header]]


SECURITY = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}


def security(config: dict[str, str]) -> dict[str, Any]:
    """How a config encrypts and logs in, in the words of kafka-python and aiokafka; empty for plaintext alone."""
    words: dict[str, Any] = {SECURITY[name]: value for name, value in config.items() if name in SECURITY}
    if "ssl.ca.location" in config:
        words["ssl_context"] = ssl.create_default_context(cafile=config["ssl.ca.location"])
        if "ssl.certificate.location" in config:
            words["ssl_context"].load_cert_chain(config["ssl.certificate.location"], config["ssl.key.location"])
    return words


def sent(question: dict[str, Any]) -> list[Sent]:
    """(partition, timestamp, key, value, headers) of each record to send."""
    return [
        (partition, timestamp, decoded(key), decoded(value), [(name, decoded(content)) for name, content in headers])
        for partition, timestamp, key, value, headers in question["records"]
    ]


def row(
    partition: int,
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header],
) -> list[Any]:
    """A record that was received."""
    return [
        partition,
        offset,
        timestamp,
        encoded(key),
        encoded(value),
        [[name, encoded(data)] for name, data in headers],
    ]


class Reading:
    """How far a consumer of assigned partitions has come; raises when it takes too long."""

    def __init__(self, question: dict[str, Any]) -> None:
        self.positions = {int(partition): offset for partition, offset in question["starts"].items()}
        self._ends = {int(partition): end for partition, end in question["ends"].items()}
        self._until = time.monotonic() + TIMEOUT_S
        self.rows: list[list[Any]] = []

    def add(self, received: list[Any]) -> None:
        self.positions[received[0]] = received[1] + 1
        self.rows.append(received)

    def is_done(self) -> bool:
        if time.monotonic() > self._until:
            raise TimeoutError(f"at {self.positions} of {self._ends}")
        return all(self.positions[partition] >= end for partition, end in self._ends.items())
