from __future__ import annotations

import pytest

from klamm.broker.controller.features import INITIAL, SUPPORTED, FeatureUpdate, UpgradeType, plan
from klamm.protocol.errors import InvalidUpdateVersion

RANGES = {"metadata.version": (7, 33), "group.version": (0, 1), "transaction.version": (0, 2)}
FINALIZED = {"metadata.version": 30, "transaction.version": 2}


def test_what_is_finalized_at_first_is_supported() -> None:
    assert INITIAL["metadata.version"] == 33
    assert all(SUPPORTED[name][0] <= level <= SUPPORTED[name][1] for name, level in INITIAL.items())


@pytest.mark.parametrize(
    ("update", "level"),
    [
        (FeatureUpdate("group.version", 1), 1),
        (FeatureUpdate("metadata.version", 33), 33),
        (FeatureUpdate("metadata.version", 30), 30),
        (FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE), 1),
        (FeatureUpdate("transaction.version", 0, UpgradeType.UNSAFE_DOWNGRADE), None),
    ],
)
def test_a_level_may_change(update: FeatureUpdate, level: int | None) -> None:
    levels = plan(FINALIZED, [update], RANGES)
    assert levels.get(update.feature) == level
    assert FINALIZED == {"metadata.version": 30, "transaction.version": 2}


@pytest.mark.parametrize(
    "update",
    [
        FeatureUpdate("nonsense", 1),
        FeatureUpdate("group.version", 2),
        FeatureUpdate("group.version", -1),
        FeatureUpdate("group.version", 1, 0),
        FeatureUpdate("group.version", 1, 7),
        FeatureUpdate("group.version", 1, UpgradeType.SAFE_DOWNGRADE),
        FeatureUpdate("transaction.version", 1),
        FeatureUpdate("metadata.version", 34),
        FeatureUpdate("metadata.version", 6),
        FeatureUpdate("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE),
        FeatureUpdate("metadata.version", 0, UpgradeType.UNSAFE_DOWNGRADE),
    ],
)
def test_a_level_may_not_change(update: FeatureUpdate) -> None:
    with pytest.raises(InvalidUpdateVersion, match=update.feature):
        plan(FINALIZED, [update], RANGES)
