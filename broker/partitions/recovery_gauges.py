"""Metrics of the progress of log recovery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klamm.broker.metrics.recording import escape

if TYPE_CHECKING:
    from klamm.broker.metrics import Metrics
    from klamm.broker.metrics.recording import Sample
    from klamm.storage.log_dir import LogDir


def register(metrics: Metrics, log_dirs: Sequence[LogDir]) -> None:
    """Register the gauges of these log directories."""

    def remaining_logs() -> Iterator[Sample]:
        for log_dir in log_dirs:
            yield f'{{dir="{escape(str(log_dir.path))}"}}', log_dir.recovery.remaining_logs

    def remaining_segments() -> Iterator[Sample]:
        for log_dir in log_dirs:
            for worker, count in sorted(log_dir.recovery.remaining_segments.items()):
                yield f'{{dir="{escape(str(log_dir.path))}",thread="{worker}"}}', count

    def remaining_bytes() -> Iterator[Sample]:
        for log_dir in log_dirs:
            yield f'{{dir="{escape(str(log_dir.path))}"}}', log_dir.recovery.remaining_bytes

    for name, help_text, samples in (
        ("klamm_remaining_logs_to_recover", "Logs that the start has not opened yet.", remaining_logs),
        (
            "klamm_remaining_segments_to_recover",
            "Segments still to be checked of the log that a recovery worker is at.",
            remaining_segments,
        ),
        ("klamm_remaining_bytes_to_recover", "Bytes of logs still to be checked.", remaining_bytes),
    ):
        metrics.gauges(name, help_text, samples)
