"""ListTransactions (66): v0-2. Transactional ids by state, producer id, age (v1) and name (v2: KIP-1152).

The pattern is a regular expression in RE2 syntax, like all patterns from clients: its time is proportional to the
length of the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.broker.coordinator.transaction.states import State
from klamm.protocol.errors import CoordinatorLoadInProgress
from klamm.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    transactions = broker.transactions
    if transactions.topic.loading:
        transactions.start()
        raise CoordinatorLoadInProgress("transactions are being loaded")
    names = {state.value: state for state in State}
    unknown = [name for name in request.state_filters if name not in names]
    wanted = {names[name] for name in request.state_filters if name in names}
    producers = set(request.producer_id_filters)
    matches = _matcher(request.transactional_id_pattern)
    now_ms = broker.clock.wall_ms()
    found = [
        TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.value,
        )
        for transaction in transactions.transactions()
        if (not request.state_filters or transaction.state in wanted)
        and (not producers or transaction.producer_id in producers)
        and (request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter)
        and matches(transaction.transactional_id)
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _matcher(pattern: str | None) -> Callable[[str], object]:
    """Return a function that matches whole names. Raises InvalidRegularExpression."""
    if not pattern:
        return lambda name: True
    from klamm.broker.coordinator.group.consumer.regexes import compiled  # a library that is rarely needed

    matches: Callable[[str], object] = compiled(pattern).fullmatch
    return matches
