"""Two-phase commit: tasks fill transactions, the driver commits all or none.

Any process that knows the transactional id, producer id and epoch may end a transaction; Kafka accepts EndTxn from any
connection. So tasks leave theirs open (`Producer.leave_open`), the driver collects them, and ends them only when all
tasks are done.

`commit_all` first checks that every transaction is still open and unchanged. If one has timed out, or its producer was
fenced by another attempt of the task, it aborts all of them. Then it commits them one after the other, quickly but not
atomically. If the driver is killed in between, some are committed, and the coordinator aborts the others when they
time out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from klamm.pipeline.errors import ClusterError, NotWritten
from klamm.pipeline.kafka.cluster import Cluster, error_code
from klamm.pipeline.kafka.coordinator import Coordinator, KeyType
from klamm.pipeline.kafka.producer import OpenTransaction, Producer
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.describe_transactions import DescribeTransactionsRequest
from klamm.protocol.messages.end_txn import EndTxnRequest

ONGOING: Final = "Ongoing"


def commit_all(cluster: Cluster, transactions: Iterable[OpenTransaction]) -> None:
    """Commit all, or abort all and raise NotWritten."""
    every = list(transactions)
    try:
        for one in every:
            _check_open(cluster, one)
    except ClusterError as error:
        abort_all(cluster, every)
        raise NotWritten(f"{error}; nothing was written") from None
    for done, one in enumerate(every):
        if (code := _ended(cluster, one, committed=True)) != ErrorCode.NONE:
            raise NotWritten(
                f"transaction {one.transactional_id}: {code.name}, {code.default_message};"
                f" {done} of {len(every)} transactions were committed"
            )


def abort_all(cluster: Cluster, transactions: Iterable[OpenTransaction]) -> None:
    """Abort those that are still open. The coordinator aborts those that cannot be reached when they time out."""
    for one in transactions:
        try:
            _ended(cluster, one, committed=False)
        except ClusterError:
            continue


def fence_all(cluster: Cluster, transactional_ids: Iterable[str], transaction_timeout_s: float) -> None:
    """End all open transactions of these ids; their producers can write nothing more.

    The timeout is the one that the tasks use, so the cluster accepts it; no transaction begins here. If a coordinator
    cannot be reached, the transactions are left to their timeouts.
    """
    with suppress(ClusterError):
        for transactional_id in transactional_ids:
            with Producer(cluster, transactional_id=transactional_id, transaction_timeout_s=transaction_timeout_s):
                pass  # its start fences


def _check_open(cluster: Cluster, one: OpenTransaction) -> None:
    coordinator = Coordinator(cluster, one.transactional_id, KeyType.TRANSACTION)
    request = DescribeTransactionsRequest(transactional_ids=[one.transactional_id])
    response = coordinator.request(request, lambda response: [item.error_code for item in response.transaction_states])
    (state,) = response.transaction_states
    if code := error_code(state.error_code):
        raise NotWritten(f"transaction {one.transactional_id}: {code.name}, {code.default_message}")
    if (state.producer_id, state.producer_epoch) != (one.producer_id, one.producer_epoch):
        raise NotWritten(f"transaction {one.transactional_id} has timed out, or another attempt has taken over")
    if state.transaction_state != ONGOING:
        raise NotWritten(f"transaction {one.transactional_id} is not open any more ({state.transaction_state})")


def _ended(cluster: Cluster, one: OpenTransaction, *, committed: bool) -> ErrorCode:
    request = EndTxnRequest(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        committed=committed,
    )
    coordinator = Coordinator(cluster, one.transactional_id, KeyType.TRANSACTION)
    response = coordinator.request(
        request, lambda response: [response.error_code], least=one.least_version, most=one.most_version
    )
    return error_code(response.error_code)
