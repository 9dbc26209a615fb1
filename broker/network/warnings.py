"""Rate-limited warnings for junk input: peers must not fill the disk with log lines."""

from __future__ import annotations

import logging

logger = logging.getLogger("klamm.broker.network")

INTERVAL_S = 10.0
HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")


class RateLimitedWarning:
    """A log limit of one line per kind in `INTERVAL_S`; the next line counts the suppressed ones."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, kind: str, now: float, message: str, *arguments: object) -> None:
        last = self._last.get(kind)
        if last is not None and now - last < self._interval_s:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last[kind] = now
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            message += " (and %d more like it)"
            arguments += (left_out,)
        logger.warning(message, *arguments)


def describe_junk(prefix: bytes) -> str:
    """Describe what a peer that sends these first bytes probably wanted."""
    if prefix[:4] in HTTP_METHODS:
        return "an HTTP request on a Kafka listener (metrics are on klamm.metrics.listener)"
    if prefix[:2] == b"\x16\x03":
        return "a TLS handshake on a PLAINTEXT listener"
    return f"not the Kafka protocol, first bytes {prefix[:8].hex(' ')}"
