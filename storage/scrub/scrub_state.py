"""The position and the findings of the scrubber of a log directory: the plain file `klamm.scrub` in it.

JSON, replaced as a whole, from time to time, and at once when damage is found:
    {"version": 1, "began_ms": 1763700000000, "ended_ms": null, "cursor": ["t", 0, 1200],
     "damage": [{"topic": "t", "partition": 0, "topic_id": "...", "segment": 1200, "position": 4096, ...}]}
A pass began at `began_ms` and has verified everything before `cursor`, in the order of topic, partition and base
offset. A pass that has ended has `ended_ms` and no cursor. A missing or damaged file means a new pass and no known
damage: it will be found again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm.storage import paths
from klamm.storage.filesystem import Filesystem, replace_file
from klamm.storage.log.results import DamagedRange
from klamm.storage.paths import TopicPartition

logger = logging.getLogger(__name__)

VERSION: Final = 1

Cursor = tuple[str, int, int]
"""Topic, partition, base offset of the next segment."""


@dataclass(frozen=True, slots=True)
class KnownDamage:
    """The known damage of one partition. `topic_id` is Kafka's base64, empty when there is none."""

    partition: TopicPartition
    topic_id: str
    ranges: tuple[DamagedRange, ...]


@dataclass(slots=True)
class ScrubState:
    began_ms: int = 0
    ended_ms: int | None = 0
    """0: there was no pass yet."""
    cursor: Cursor | None = None
    damage: list[KnownDamage] = field(default_factory=list)

    @property
    def damaged_count(self) -> int:
        """The number of damaged ranges when the state was last saved."""
        return sum(len(known.ranges) for known in self.damage)

    def format(self) -> bytes:
        damage = [
            {
                "topic": known.partition.topic,
                "partition": known.partition.partition,
                "topic_id": known.topic_id,
                "segment": each.segment,
                "position": each.position,
                "end_position": each.end_position,
                "first_offset": each.first_offset,
                "next_offset": each.next_offset,
                "problem": each.problem,
            }
            for known in self.damage
            for each in known.ranges
        ]
        fields = {
            "version": VERSION,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "cursor": self.cursor,
            "damage": damage,
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> ScrubState:
        """Parse the file. Raises ValueError."""
        try:
            fields = json.loads(content)
            if fields["version"] != VERSION:
                raise ValueError(f"version {fields['version']!r} is not {VERSION}")
            cursor, ended_ms = fields["cursor"], fields["ended_ms"]
            return cls(
                int(fields["began_ms"]),
                int(ended_ms) if ended_ms is not None else None,
                (str(cursor[0]), int(cursor[1]), int(cursor[2])) if cursor is not None else None,
                _parse_damage(fields["damage"]),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"{error!r} in {content[:60]!r}") from error


def _parse_damage(rows: Iterable[dict[str, Any]]) -> list[KnownDamage]:
    found: dict[tuple[TopicPartition, str], list[DamagedRange]] = {}
    for row in rows:
        key = TopicPartition(str(row["topic"]), int(row["partition"])), str(row["topic_id"])
        numbers = [int(row[name]) for name in ("segment", "position", "end_position", "first_offset", "next_offset")]
        segment, position, end_position, first_offset, next_offset = numbers
        each = DamagedRange(segment, position, end_position, first_offset, next_offset, str(row["problem"]))
        found.setdefault(key, []).append(each)
    return [KnownDamage(partition, topic_id, tuple(ranges)) for (partition, topic_id), ranges in found.items()]


def load(filesystem: Filesystem, log_dir: Path) -> ScrubState:
    """Return the saved state; a missing or unreadable file means a new state. Raises other OSErrors."""
    try:
        return ScrubState.parse(filesystem.read_bytes(log_dir / paths.SCRUB))
    except FileNotFoundError:
        return ScrubState()
    except ValueError as error:
        logger.warning("%s: %s is unreadable, scrubbing restarts: %s", log_dir, paths.SCRUB, error)
        return ScrubState()


def save(filesystem: Filesystem, log_dir: Path, state: ScrubState, *, sync: bool = True) -> None:
    """Write the state. Raises OSError."""
    replace_file(filesystem, log_dir / paths.SCRUB, state.format(), sync=sync)


def forget_damage(filesystem: Filesystem, log_dir: Path, partition: TopicPartition) -> None:
    """Forget the damage of a partition that was repaired. Raises OSError."""
    state = load(filesystem, log_dir)
    kept = [known for known in state.damage if known.partition != partition]
    if len(kept) != len(state.damage):
        state.damage = kept
        save(filesystem, log_dir, state)
