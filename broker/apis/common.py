"""Helpers of several handlers: the advertised address, and the bits of authorized operations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from klamm.broker.security.authorizer.codes import ResourceType

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.apis.rights.asker import Asker
    from klamm.broker.broker import Broker

NOT_ASKED = -(2**31)  # the client did not ask for authorized operations

# All operations of a resource type, as the sum of 1 << code.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def topic_operations(context: RequestContext, name: str) -> int:
    """Return the operations that the client may do on a topic: without an authorizer, all of them."""
    ask: Asker | None = getattr(context, "ask", None)
    return TOPIC_OPERATIONS & (ask.operations(ResourceType.TOPIC, name) if ask is not None else -1)


def group_operations(context: RequestContext, group_id: str) -> int:
    """Return the operations that the client may do on a group."""
    ask: Asker | None = getattr(context, "ask", None)
    return GROUP_OPERATIONS & (ask.operations(ResourceType.GROUP, group_id) if ask is not None else -1)


def cluster_operations(context: RequestContext) -> int:
    """Return the operations that the client may do on the cluster; none without the right to describe it."""
    ask: Asker | None = getattr(context, "ask", None)
    if ask is None:
        return CLUSTER_OPERATIONS
    return CLUSTER_OPERATIONS & ask.operations(ResourceType.CLUSTER) if ask.may_describe_cluster() else 0


def advertised_address(broker: Broker, context: RequestContext) -> tuple[str, int]:
    """Return the host and port that the client of this request should connect to.

    ``advertised.listeners`` where it is set for the listener of the request; else the local address of the accepted
    socket, which the client can reach.
    """
    connection = context.connection
    advertised = broker.advertised.get(connection.listener)
    if advertised is not None:
        return advertised
    return connection.local_address


def unseen(context: RequestContext, key: Hashable) -> bool:
    """Return whether the request, in any of its pieces, asks for `key` for the first time. Long results are returned
    once, or a small request would make a response of gigabytes.
    """
    seen: set[Hashable] | None = getattr(context, "seen", None)
    if seen is None:
        seen = context.seen = set()
    if key in seen:
        return False
    seen.add(key)
    return True


def mutation_count(context: RequestContext, *, strict_from: int) -> Callable[[int], None] | None:
    """What counts the partitions that a request makes or deletes; None when no quota is for its client."""
    if context.charge is None:
        return None
    return context.charge.count_mutations(strict=context.api_version >= strict_from)
