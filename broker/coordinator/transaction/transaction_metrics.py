"""Metrics of the transaction coordinator: transactional ids by state, and the outcomes of transactions.

Ids are counted at scrape time; the others are running counters. A transaction is late if it has not ended by its own
timeout: its markers cannot be written, or its deadline was not handled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.states import State

if TYPE_CHECKING:
    from klamm.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from klamm.broker.metrics import Metrics


def register(metrics: Metrics, transactions: TransactionCoordinator) -> None:
    """Register the metrics of this coordinator."""
    machine = transactions.state_machine

    def by_state() -> Iterable[tuple[str, int]]:
        counts = Counter(transaction.state for transaction in machine)
        for state in State:
            yield f'{{state="{state.value}"}}', counts[state]

    def late() -> int:
        now_ms = transactions.now().wall_ms
        return sum(
            transaction.started_ms + transaction.timeout_ms < now_ms
            for transaction in machine
            if transaction.state is State.ONGOING or transaction.state.is_preparing
        )

    metrics.gauges("klamm_transactional_ids", "Transactional ids of this coordinator.", by_state)
    metrics.gauge("klamm_late_transactions", "Transactions that have not ended when their time was over.", late)
    for name, text, value in (
        ("klamm_transactions_committed_total", "Transactions that were committed.", lambda: machine.committed_count),
        ("klamm_transactions_aborted_total", "Transactions that were aborted.", lambda: machine.aborted_count),
        (
            "klamm_transactions_timed_out_total",
            "Transactions that were aborted because they took too long.",
            lambda: machine.timed_out_count,
        ),
    ):
        metrics.counter(name, text, value)
