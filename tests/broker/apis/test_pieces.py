"""Requests are cut into pieces, and the answers of the pieces make one response."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.apis.pieces import PATHS, Path, cut, join, paths_of
from klamm.protocol.apis import request_class, response_class
from klamm.protocol.fields import specs
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

SIZES = st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=5)


@pytest.mark.parametrize("api_key", PATHS)
def test_every_path_leads_through_arrays(api_key: int) -> None:
    for paths in PATHS[api_key]:
        for cls, path in ((request_class(api_key), paths.request), (response_class(api_key), paths.response)):
            part: Any = cls
            for name in path:
                spec = next(spec for spec in specs(part) if spec.name == name)
                assert spec.array
                part = spec.struct if spec.wire is None else None


def asked(sizes: list[list[int]]) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=f"g{number}",
                topics=[
                    OffsetFetchRequestTopics(name=f"t{place}", partition_indexes=list(range(size)))
                    for place, size in enumerate(group)
                ],
            )
            for number, group in enumerate(sizes)
        ]
    )


PATH: Path = ("groups", "topics", "partition_indexes")


@given(SIZES, st.integers(3, 8))
def test_no_piece_has_more_and_together_they_are_the_whole(sizes: list[list[int]], size: int) -> None:
    """Requests stand for responses here: the pieces are joined along the same path."""
    pieces = list(cut(asked(sizes), PATH, size))
    for piece in pieces:
        leaves = sum(len(topic.partition_indexes) for group in piece.groups for topic in group.topics)
        assert leaves <= size
        assert len(piece.groups) <= size
    whole = pieces[0]
    for piece in pieces[1:]:
        join(whole, piece, PATH)
    assert whole == asked(sizes)


def test_a_request_is_not_changed_by_being_cut() -> None:
    request = asked([[10, 10]])
    list(cut(request, PATH, 3))
    assert request == asked([[10, 10]])


def test_all_topics_cannot_be_cut() -> None:
    assert paths_of(MetadataRequest.api_key or 0, MetadataRequest(topics=None)) is None
