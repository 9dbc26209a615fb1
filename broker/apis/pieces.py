"""Requests of very many elements, handled as several smaller ones.

For an API, `PATHS` has the arrays of the request with elements that are handled one by one, and the arrays of the
response with their results. `cut` makes requests of at most so many elements, `join` makes one response of their
responses. A check of the whole request is then made for each piece: an element that occurs twice in a request may be in
two pieces, and offsets are stored in one batch per piece. Produce and Fetch have turns of their own; the APIs that are
not in the table do next to nothing for each element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from klamm.protocol.apis import ApiKey

PIECE_ELEMENTS = 500

Path = tuple[str, ...]


class Paths(NamedTuple):
    """Names of nested arrays, the outermost first."""

    request: Path
    response: Path


def _paths(request: str, response: str) -> Paths:
    return Paths(tuple(request.split(".")), tuple(response.split(".")))


PATHS: Mapping[int, tuple[Paths, ...]] = {
    ApiKey.LIST_OFFSETS: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.METADATA: (_paths("topics", "topics"),),
    ApiKey.OFFSET_COMMIT: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.OFFSET_FETCH: (
        _paths("groups.topics.partition_indexes", "groups.topics.partitions"),
        _paths("topics.partition_indexes", "topics.partitions"),
    ),
    ApiKey.FIND_COORDINATOR: (_paths("coordinator_keys", "coordinators"),),
    ApiKey.LEAVE_GROUP: (_paths("members", "members"),),
    ApiKey.DESCRIBE_GROUPS: (_paths("groups", "groups"),),
    ApiKey.CREATE_TOPICS: (_paths("topics", "topics"),),
    ApiKey.DELETE_TOPICS: (_paths("topics", "responses"), _paths("topic_names", "responses")),
    ApiKey.DELETE_RECORDS: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _paths("transactions.topics.partitions", "results_by_transaction.topic_results.results_by_partition"),
        _paths("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_paths("transactional_ids", "transaction_states"),),
    ApiKey.WRITE_TXN_MARKERS: (_paths("markers.topics.partition_indexes", "markers.topics.partitions"),),
    ApiKey.DESCRIBE_CONFIGS: (_paths("resources", "results"),),
    ApiKey.ALTER_CONFIGS: (_paths("resources", "responses"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_paths("resources", "responses"),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_paths("dirs.topics.partitions", "results.partitions"),),
    ApiKey.CREATE_PARTITIONS: (_paths("topics", "results"),),
    ApiKey.DELETE_GROUPS: (_paths("groups_names", "results"),),
    ApiKey.ELECT_LEADERS: (_paths("topic_partitions.partitions", "replica_election_results.partition_result"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_paths("topics.partitions", "responses.partitions"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_paths("entries", "entries"),),
    ApiKey.DESCRIBE_QUORUM: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.OFFSET_DELETE: (_paths("topics.partitions", "topics.partitions"),),
    ApiKey.DESCRIBE_PRODUCERS: (_paths("topics.partition_indexes", "topics.partitions"),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_paths("group_ids", "groups"),),
}


def paths_of(api_key: int, request: Any) -> Paths | None:
    """Return the paths of this request's elements; None when it cannot be cut, or has none."""
    return next((paths for paths in PATHS.get(api_key, ()) if getattr(request, paths.request[0])), None)


def cut(whole: Any, path: Path, size: int = PIECE_ELEMENTS) -> Iterator[Any]:
    """Yield copies of `whole` with at most `size` elements each, in order; `whole` itself if it has no more."""
    name, inner = path[0], path[1:]
    items = getattr(whole, name)
    if not items or (not inner and len(items) <= size):
        yield whole
    elif not inner:
        for start in range(0, len(items), size):
            yield _with(whole, name, items[start : start + size])
    else:
        piece: list[Any] = []
        left = size
        for share in (share for item in items for share in cut(item, inner, size)):
            count = _count(share, inner)
            if piece and count > left:
                yield _with(whole, name, piece)
                piece, left = [], size
            piece.append(share)
            left -= count
        yield _with(whole, name, piece)


def _count(whole: Any, path: Path) -> int:
    """Return the number of elements along the path, including `whole` itself."""
    items = getattr(whole, path[0]) or ()
    return 1 + (sum(_count(item, path[1:]) for item in items) if path[1:] else len(items))


def _with(whole: Any, name: str, items: list[Any]) -> Any:
    """Return a copy that has these items."""
    copy = object.__new__(type(whole))
    for field in type(whole).__slots__:
        setattr(copy, field, getattr(whole, field))
    setattr(copy, name, items)
    return copy


def join(response: Any, following: Any, path: Path) -> None:
    """Add the results of the following piece. A part that was cut in two, such as a topic, becomes one again."""
    name, inner = path[0], path[1:]
    answers, more = getattr(response, name), getattr(following, name)
    if inner and answers and more and _is_rest(more[0], answers[-1], inner[0]):
        join(answers[-1], more.pop(0), inner)
    answers += more


def _is_rest(part: Any, other: Any, name: str) -> bool:
    """Return whether both are equal except for that array."""
    return all(getattr(part, field) == getattr(other, field) for field in type(part).__slots__ if field != name)
