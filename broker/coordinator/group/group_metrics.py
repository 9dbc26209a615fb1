"""Metrics of the group coordinator: Kafka's group metrics under Klamm's names.

Groups by protocol and state are counted at scrape time; the others are running counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer.consumer_states import GroupState

if TYPE_CHECKING:
    from klamm.broker.coordinator.group.coordinator import GroupCoordinator
    from klamm.broker.metrics import Metrics

STATES = {"classic": tuple(State), "consumer": tuple(GroupState)}


def register(metrics: Metrics, groups: GroupCoordinator) -> None:
    """Register the metrics of this coordinator."""

    def by_state() -> Iterable[tuple[str, int]]:
        counts = Counter((group.kind, group.state.value) for group in groups.groups)
        for protocol, states in STATES.items():
            for state in states:
                yield f'{{protocol="{protocol}",state="{state.value}"}}', counts[protocol, state.value]

    metrics.gauges("klamm_groups", "Groups of this coordinator.", by_state)
    metrics.gauge("klamm_committed_offsets", "Offsets that groups have committed.", lambda: len(groups.offsets))
    for name, text, value in (
        (
            "klamm_classic_group_rebalances_total",
            "Generations of classic groups that have begun.",
            lambda: groups.classic.rebalances.count,
        ),
        (
            "klamm_consumer_group_rebalances_total",
            "Epochs of consumer groups that have begun.",
            lambda: groups.consumers.reconciler.rebalance_count,
        ),
        ("klamm_offset_commits_total", "Offsets that were committed.", lambda: groups.commits.count),
        ("klamm_offset_expirations_total", "Offsets that have expired.", lambda: groups.expiry.expired_count),
        (
            "klamm_offset_deletions_total",
            "Offsets that were deleted on request.",
            lambda: groups.removals.deleted_count,
        ),
    ):
        metrics.counter(name, text, value)
