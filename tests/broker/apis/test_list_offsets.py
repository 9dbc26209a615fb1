"""ListOffsets: the answer can be encoded in every version, with what that version has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.apis.list_offsets import EARLIEST, LATEST, handle
from klamm.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EPOCH = 3


def broker() -> Any:
    log = SimpleNamespace(
        log_start_offset=2,
        log_end_offset=7,
        leader_epochs=SimpleNamespace(epoch_of=lambda _: EPOCH),
        segment_offsets=lambda timestamp, _: [7, 5, 2] if timestamp == LATEST else [2],
    )
    partition = SimpleNamespace(
        index=0,
        leader_epoch=EPOCH,
        high_watermark=7,
        last_stable_offset=7,
        online_log=lambda: log,
        check_leader_epoch=lambda _: None,
    )
    return SimpleNamespace(partitions=SimpleNamespace(get=lambda *_: partition))


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize(("timestamp", "offset"), [(LATEST, 7), (EARLIEST, 2)])
def test_every_version_gets_the_fields_that_it_has(version: int, timestamp: int, offset: int) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=3)]
            )
        ],
    )
    context: Any = SimpleNamespace(api_version=version)
    response = handle(broker(), context, request)
    data = ListOffsetsResponse.encode[version](response, bytearray())  # type: ignore[attr-defined]
    decoded = ListOffsetsResponse.decode[version](data)[0]  # type: ignore[attr-defined]
    answer = decoded.topics[0].partitions[0]
    if version == 0:
        assert answer.old_style_offsets == ([7, 5, 2] if timestamp == LATEST else [2])
    else:
        assert answer.offset == offset
        assert answer.leader_epoch == (EPOCH if version >= 4 else -1)
