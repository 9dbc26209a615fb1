"""Select the batches for a read_committed reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import CONTROL_FLAG, NO_PRODUCER_ID, TRANSACTIONAL_FLAG, read_header
from klamm.protocol.records.columnar.batch_headers import BatchHeaders, Bools, Bytes, DamagedBatch
from klamm.protocol.records.control import read_end_marker


class Aborts:
    """A filter that leaves out control batches and aborted transactions, as batches pass in offset order.

    A transaction is given as (producer id, first offset). It begins with the first batch of the producer that reaches
    its first offset, and ends with the producer's abort marker: the rule of Kafka's consumer.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._pending = deque(sorted((first_offset, producer_id) for producer_id, first_offset in aborted))
        self._active: set[int] = set()

    def kept(self, data: Bytes, batch_headers: BatchHeaders) -> Bools:
        """Return for each of the next batches whether its records count. Raises DamagedBatch for an invalid marker."""
        control = (batch_headers.attributes & CONTROL_FLAG) != 0
        kept: Bools = ~control
        if not self._pending and not self._active:
            return kept
        transactional = (batch_headers.attributes & TRANSACTIONAL_FLAG != 0) & (
            batch_headers.producer_ids > NO_PRODUCER_ID
        )
        for row in np.flatnonzero(transactional).tolist():
            while self._pending and self._pending[0][0] <= batch_headers.last_offsets[row]:
                self._active.add(self._pending.popleft()[1])
            producer_id = int(batch_headers.producer_ids[row])
            if producer_id in self._active:
                if not control[row]:
                    kept[row] = False
                elif _is_abort(data, batch_headers, row):
                    self._active.remove(producer_id)
        return kept


def _is_abort(data: Bytes, batch_headers: BatchHeaders, row: int) -> bool:
    position = int(batch_headers.positions[row])
    view = data.data
    try:
        marker = read_end_marker(view, read_header(view, position), position)
    except InvalidRecord as error:
        raise DamagedBatch(int(batch_headers.base_offsets[row]), position, error.message) from None
    return marker is not None and not marker.is_commit
