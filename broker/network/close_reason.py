"""The reason for closing a connection: a text for the log, and a kind for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CloseReason:
    """A reason for closing; `kind` is the label in the metrics."""

    kind: str
    text: str


HALF_FRAME = CloseReason("half_frame", "end of stream inside a frame")
CLOSED_BY_PEER = CloseReason("eof", "closed by the peer")
