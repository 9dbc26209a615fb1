"""Feature levels (KIP-584): the levels this version supports, the finalized levels, and their permitted changes.

A level is finalized only when its feature is built: Java clients switch to other request versions and semantics when
they see one. ``metadata.version`` must be there, as clients fall back to old behaviour without it; it stands for the
metadata format of Apache Kafka 4.4 that Klamm's responses follow. The epoch grows with each change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from klamm.protocol.errors import InvalidUpdateVersion

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"  # 1: consumer groups (KIP-848)
TRANSACTION_VERSION = "transaction.version"  # 1: flexible records, 2: an epoch for each transaction (KIP-890)

SUPPORTED: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 33),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}  # 7: 3.3-IV3, as Apache Kafka 4 has it
INITIAL: dict[str, int] = {METADATA_VERSION: 33, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}


class UpgradeType(IntEnum):
    """The type of a change, as in UpdateFeatures v1."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The wanted level of a feature; 0 removes it."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def plan(
    finalized: Mapping[str, int], updates: Sequence[FeatureUpdate], supported: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """Return the finalized levels after all updates. Raises InvalidUpdateVersion for the first that is not allowed."""
    levels = dict(finalized)
    for update in updates:
        check(update, levels.get(update.feature, 0), supported)
        if update.level:
            levels[update.feature] = update.level
        else:
            levels.pop(update.feature, None)
    return levels


def check(update: FeatureUpdate, current: int, supported: Mapping[str, tuple[int, int]]) -> None:
    """Raise InvalidUpdateVersion unless the feature may go from ``current`` to the wanted level."""
    reason = _reason_against(update, current, supported)
    if reason:
        raise InvalidUpdateVersion(f"Invalid update version {update.level} for feature {update.feature}. {reason}")


def _reason_against(update: FeatureUpdate, current: int, supported: Mapping[str, tuple[int, int]]) -> str:
    level = update.level
    if update.upgrade_type not in tuple(UpgradeType):
        return "The given upgrade type is not supported."
    if level < 0:
        return "A feature version cannot be less than 0."
    bounds = supported.get(update.feature)
    if bounds is None:
        return "This cluster does not support the feature."
    low, high = bounds
    if level and not low <= level <= high:
        return f"This cluster supports versions {low} to {high} only."
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return "A downgrade needs the upgrade type safe or unsafe downgrade."
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "An upgrade cannot have the upgrade type of a downgrade."
    if update.feature == METADATA_VERSION and level < current:
        return "The metadata version cannot be lowered: metadata of the current version might get lost."
    return ""
