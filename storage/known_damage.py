"""Move the scrubber's findings between the file of a log directory and the segments of its open logs.

The file (`scrub/scrub_state.py`) outlives the process. While logs are open, each segment holds its own damage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm.protocol.wire import uuid_to_text
from klamm.storage.scrub import scrub_state
from klamm.storage.scrub.scrub_state import KnownDamage

if TYPE_CHECKING:
    from klamm.storage.log_dir import LogDir

logger = logging.getLogger(__name__)


def load(log_dir: LogDir) -> None:
    """Read the position and findings of the scrubber, and mark the damaged segments."""
    log_dir.scrub = scrub_state.load(log_dir.filesystem, log_dir.path)
    for known in log_dir.scrub.damage:
        log = log_dir.logs.get(known.partition)
        if log is None or _id_text(log.topic_id) != known.topic_id:
            continue
        for segment in log.local.segments.all:
            segment.damage = tuple(each for each in known.ranges if each.segment == segment.base_offset)
            for each in segment.damage:
                logger.warning(
                    "%s: known to be damaged, not served: segment=%d offsets=[%d, %d)",
                    known.partition, each.segment, each.first_offset, each.next_offset,
                )  # fmt: skip


def save(log_dir: LogDir) -> None:
    """Write the position and findings of the scrubber. Raises OSError."""
    kept = [known for known in log_dir.scrub.damage if known.partition in log_dir.offline]
    for partition, log in list(log_dir.logs.items()):
        ranges = tuple(each for segment in log.local.segments.all for each in segment.damage)
        if ranges:
            kept.append(KnownDamage(partition, _id_text(log.topic_id), ranges))
    log_dir.scrub.damage = kept
    scrub_state.save(log_dir.filesystem, log_dir.path, log_dir.scrub)


def _id_text(topic_id: bytes | None) -> str:
    return uuid_to_text(topic_id) if topic_id is not None else ""
