"""Why a connection is closed: the reason in the log, and the kind of reason in the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CloseReason:
    """`kind` is the label in the metrics."""

    kind: str
    text: str


HALF_FRAME = CloseReason("half_frame", "end of stream inside a frame")
CLOSED_BY_PEER = CloseReason("eof", "closed by the peer")
